"""Handles of actors in a replay: their calls return what was recorded when the task that is replayed made them.

The actors themselves are not there and nothing runs. Answers are given in order, method by method; arguments are not
compared with those of the recorded calls. What has no recorded answer raises `RuntimeError`, which says what to do.

Runs in the process of `weft replay`, in local mode; `expect` before each task or call that is replayed.
"""

from __future__ import annotations

import pickle
from collections import defaultdict, deque
from typing import Any

from weft.engine.process.calls.calls_made import Notes, NotRecorded

_HOW = "Run the program with WEFT_RECORD_CALLS=1 to have the answers recorded that actors give to a task"
_answers: defaultdict[tuple[str, str], deque[Any]] = defaultdict(deque)
_names: dict[tuple[str, str | None], tuple[str, str]] = {}
_missing = _HOW


def expect(packed: bytes, is_recorded: bool) -> None:
    """What the task that is to run now was told by actors; `packed` is a pickled `Notes`, or nothing."""
    global _missing
    _answers.clear()
    _names.clear()
    notes: Notes = pickle.loads(packed) if packed else Notes()
    for actor, method, answer in notes.answers:
        _answers[actor, method].append(answer)
    _names.update(notes.names)
    left_out = f", and {notes.left_out} more that were not recorded" if notes.left_out else ""
    _missing = (
        f"{len(notes.answers)} calls of actors were recorded until it failed{left_out}: it takes another way this time"
        if is_recorded
        else _HOW
    )


def named(name: str, namespace: str | None) -> RecordedActor | None:
    """The actor that `get_actor` found when the task ran."""
    found = _names.get((name, namespace))
    return None if found is None else RecordedActor(*found)


class RecordedActor:
    """In the place of an actor's handle."""

    def __init__(self, class_name: str, actor: str) -> None:
        self._class_name = class_name
        self._actor = actor

    def __getattr__(self, name: str) -> RecordedMethod:
        if name.startswith("__"):
            raise AttributeError(name)
        return RecordedMethod(self._class_name, self._actor, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedActor) and other._actor == self._actor

    def __hash__(self) -> int:
        return hash(self._actor)

    def __repr__(self) -> str:
        return f"RecordedActor({self._class_name}, {self._actor})"


class RecordedMethod:
    """`handle.method`: its `remote` returns the next recorded answer."""

    def __init__(self, class_name: str, actor: str, name: str) -> None:
        self._class_name = class_name
        self._actor = actor
        self._name = name

    def options(self, **given: Any) -> RecordedMethod:
        return self

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        kept = _answers.get((self._actor, self._name))
        answer = kept.popleft() if kept else NotRecorded(_missing)
        if isinstance(answer, NotRecorded):
            raise RuntimeError(
                f"{self._class_name}.{self._name} cannot be called in a replay, where its actor is not there, and no "
                f"answer to this call is recorded. {answer.why}."
            )
        return answer
