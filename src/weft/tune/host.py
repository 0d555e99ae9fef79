"""The actor that trials run in, one after another, and the messages between it and the runner.

Trials run in the thread of one call that never returns, `serve`, so that a trial that blocks in `weft.get` lends its
CPUs as any task does. Results gather in an outbox, which the runner empties with `pull`, a call of another concurrency
group: it returns when a period has passed, or at once when the trial waits for a decision or has ended. So a trial
never waits for the runner, except at its milestones.

What a trial reports is written to a journal of this machine too, before anyone hears of it: a process that dies leaves
there what was not pulled yet (`journal_of`).

HOST-1  One trial at a time; a `Start` or a `StartAll` ends the one before it.
HOST-2  Items leave the outbox in the order in which the trial made them; a checkpoint lies in the storage before its
        item is in the outbox.
HOST-3  A result is in the journal before `report` returns. The journal goes when the next trial starts, by when the
        runner has pulled all of it. Trials in a bundle have none (`weft.tune.bundles`).
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import weft
from weft.library.storage import LocalStorage, Storage
from weft.tune.trial import SavedCheckpoint

__all__ = ["Batch", "Bundle", "End", "Go", "HostSettings", "Start", "StartAll", "TrialHost"]

Items = list[tuple[Any, ...]]
RUNNING, WAITING, SAVED, ENDED, FAILED = "running", "waiting", "saved", "ended", "failed"
MARKER = ".experiment"
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What all trials of an experiment share."""

    trainable: Callable[..., Any]
    storage: Storage
    experiment: str
    experiment_id: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    period_s: float = 0.05
    """How long results are gathered."""
    heartbeat_s: float = 1.0
    """How long a pull may take without results."""


@dataclass(frozen=True, slots=True)
class Start:
    """Run this trial from here on."""

    trial_id: str
    trial_name: str
    trial_dir: str
    config: dict[str, Any]
    incarnation: int
    checkpoint: SavedCheckpoint | None
    packed: dict[str, bytes] | None
    """The checkpoint's files, for a host that cannot see the storage."""
    milestone: tuple[str, float] | None
    resources: Any = None


@dataclass(frozen=True, slots=True)
class StartAll:
    """Run these trials one after another, as a bundle."""

    starts: tuple[Start, ...]


@dataclass(frozen=True, slots=True)
class Go:
    """To a trial that waits: go on, perhaps after saving."""

    milestone: tuple[str, float] | None
    save: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """End; a trial that waits may save first."""

    save: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    phase: str
    items: Items
    error: tuple[str, str] | None = None
    """(message, traceback)"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The answer to `StartAll`."""

    done: list[tuple[str, Batch]]
    """By trial."""
    unstarted: tuple[str, ...]
    left: str | None
    """The trial that still runs, alone from here on."""
    elapsed_s: float


class TrialHost:
    """The actor. The runner calls `serve` once, and then has one call of the group "control" outstanding at a time."""

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._run: Any = None
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        self._kept: Any = None
        """A class trainable that its next trial may reuse."""
        shared = settings.storage.read(MARKER) == settings.experiment_id.encode()
        self._storage = settings.storage if shared else None
        """None when this machine cannot see it; checkpoints then travel in batches."""
        self._journals = journals_of(settings.storage, settings.experiment_id) if shared else None
        """None on a machine whose files the runner cannot see."""

    def serve(self) -> None:
        """Run trials as they come."""
        while (run := self._waiting.get()) is not None:
            run.main()

    @weft.method(concurrency_group=CONTROL)
    def is_there(self) -> bool:
        """Its answer means that the actor was placed and made."""
        return True

    @weft.method(concurrency_group=CONTROL)
    def pull(self, command: Start | StartAll | Go | End | None = None) -> Batch | Bundle:
        """Obey the command, then return what the trial, or the bundle, made."""
        if isinstance(command, Start | StartAll):
            if self._run is not None:
                self._kept = self._run.end_and_wait()
                self._run.delete_journal()
            self._run = self._new_run(command)
            self._kept = None
            self._waiting.put(self._run)
        elif command is not None:
            self._run.obey(command)
        made: Batch | Bundle = self._run.take(self._settings.period_s, self._settings.heartbeat_s)
        if isinstance(made, Bundle) and made.left is not None:
            self._run = self._run.left
        return made

    def _new_run(self, command: Start | StartAll) -> Any:
        if isinstance(command, StartAll):
            from weft.tune.bundle_run import BundleRun

            return BundleRun(command.starts, self._settings, self._storage, self._journals)
        from weft.tune.trial_run import TrialRun

        return TrialRun(command, self._settings, self._storage, self._kept, self._journals)

    @weft.method(concurrency_group=CONTROL)
    def close(self) -> None:
        """End what runs, and let a class trainable clean up."""
        if self._run is not None:
            self._kept = self._run.end_and_wait()
        if self._kept is not None:
            self._kept.stop()


def journals_of(storage: Storage, experiment_id: str) -> LocalStorage:
    """Where the journals of an experiment's trials lie: beside the experiment, or for a URL on this machine."""
    if isinstance(storage, LocalStorage):
        return LocalStorage(storage.path(".staging"))
    return LocalStorage(os.path.join(_own_folder(), f"journals-{experiment_id}"))


def journal_of(trial_id: str, incarnation: int) -> str:
    return f"{trial_id}-{incarnation}.journal"


def local_trial_dir(storage: Storage | None, trial_dir: str) -> str:
    if isinstance(storage, LocalStorage):
        return storage.path(trial_dir)
    return os.path.join(_own_folder(), trial_dir)


def _own_folder() -> str:
    """For files of experiments whose storage is elsewhere. Its name can be guessed, and what lies in it is unpickled:
    PermissionError where another user was there first, or can write to it."""
    path = os.path.join(tempfile.gettempdir(), f"weft-tune-{os.getuid()}")
    os.makedirs(path, 0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path} is not a folder of this user alone: remove it, or set TMPDIR to another folder")
    return path
