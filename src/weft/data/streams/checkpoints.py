"""Where checkpoints are kept: in the job's memory, and, where a folder is given, in files that outlive the program.

CHK-1 A checkpoint exists when the snapshots of all subtasks do: its file is written aside and renamed.
CHK-2 Outputs of a checkpoint are given to the sink after it exists, under its number; a sink that remembers the number
      can leave out what it already has.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from typing import Any

KEPT = 2


@dataclass
class Checkpoint:
    number: int
    states: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By (stage, subtask)."""
    outputs: list[Any] = field(default_factory=list)


class Checkpoints:
    """Collects the snapshots of the checkpoint under way, and keeps the last complete one."""

    def __init__(self, subtasks: set[tuple[int, int]], folder: str | None) -> None:
        self._subtasks = subtasks
        self._folder = folder
        self._under_way: Checkpoint | None = None
        self.last: Checkpoint | None = self._load()

    @property
    def next_number(self) -> int:
        return 1 if self.last is None else self.last.number + 1

    @property
    def under_way(self) -> int | None:
        return None if self._under_way is None else self._under_way.number

    def begin(self) -> int:
        assert self._under_way is None
        self._under_way = Checkpoint(self.next_number)
        return self._under_way.number

    def abandon(self) -> None:
        """The subtasks are gone: what has come of a checkpoint counts for nothing."""
        self._under_way = None

    def acknowledged(
        self, subtask: tuple[int, int], number: int, state: bytes, outputs: list[Any]
    ) -> Checkpoint | None:
        """The checkpoint, once all subtasks have acknowledged it."""
        current = self._under_way
        if current is None or current.number != number:
            return None
        current.states[subtask] = state
        current.outputs.extend(outputs)
        if set(current.states) != self._subtasks:
            return None
        self._save(current)
        self.last, self._under_way = current, None
        return current

    def _file(self, number: int) -> str:
        return f"{self._folder}/checkpoint-{number:08d}"

    def _save(self, checkpoint: Checkpoint) -> None:
        if self._folder is None:
            return
        os.makedirs(self._folder, exist_ok=True)
        file = self._file(checkpoint.number)
        with open(file + ".new", "wb") as out:
            pickle.dump((checkpoint.number, checkpoint.states, checkpoint.outputs), out, 5)
            out.flush()
            os.fsync(out.fileno())
        os.replace(file + ".new", file)
        old = self._file(checkpoint.number - KEPT)
        if os.path.exists(old):
            os.remove(old)

    def _load(self) -> Checkpoint | None:
        if self._folder is None or not os.path.isdir(self._folder):
            return None
        found = sorted(
            name for name in os.listdir(self._folder) if name.startswith("checkpoint-") and not name.endswith(".new")
        )
        if not found:
            return None
        with open(f"{self._folder}/{found[-1]}", "rb") as file:
            loaded = Checkpoint(*pickle.load(file))
        if set(loaded.states) != self._subtasks:
            raise ValueError(
                f"{self._folder}/{found[-1]} is of a stream with {len(loaded.states)} subtasks, but this one has "
                f"{len(self._subtasks)}: run it with the stages and the parallelism that it had, or with another folder"
            )
        return loaded
