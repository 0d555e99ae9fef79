"""What the tasks of this worker ask of actors, noted so that `weft replay` can give them the same answers.

Noted where WEFT_RECORD_CALLS is set, else nothing of this is on a call's way. The refs of the answers are held until
their task has ended or given way, their values are taken when the task fails, or when an actor's call ends whose
history is kept (`call_history`). At most `MOST_CALLS` of a task and `MOST_TASKS` tasks. Used by many threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from weft.engine.process.calls import current

MOST_CALLS = 1_000
MOST_TASKS = 64


@dataclass
class Notes:
    """Of one task. Pickled by `recorded_inputs`, with the values of the refs in their place."""

    answers: list[tuple[str, str, Any]] = field(default_factory=list)
    """(actor, method, what `remote` returned), in the order of the calls."""
    names: dict[tuple[str, str | None], tuple[str, str]] = field(default_factory=dict)
    """What `get_actor` was asked, (name, namespace), and found: (class, actor)."""
    left_out: int = 0
    """Calls beyond the first `MOST_CALLS`."""


@dataclass(frozen=True)
class NotRecorded:
    """In the place of an answer."""

    why: str


_lock = threading.Lock()
_tasks: OrderedDict[bytes, Notes] = OrderedDict()


def take(task: bytes) -> Notes | None:
    """What that task has asked; it is forgotten here."""
    with _lock:
        return _tasks.pop(task, None)


def note_name(name: str, namespace: str | None, class_name: str, actor: bytes) -> None:
    with _lock:
        _of_current_task().names[name, namespace] = (class_name, actor.hex())


class NotedCall:
    """A submitter of an actor's method that notes what it returns."""

    def __init__(self, call: Any, actor: bytes, method: str, streams: bool) -> None:
        self._call = call
        self._actor = actor.hex()
        self._method = method
        self._streams = streams

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._call(*args, **kwargs)
        answer = NotRecorded("answers of generators are not recorded") if self._streams else made
        with _lock:
            notes = _of_current_task()
            if len(notes.answers) < MOST_CALLS:
                notes.answers.append((self._actor, self._method, answer))
            else:
                notes.left_out += 1
        return made


def _of_current_task() -> Notes:
    task = current.task()[0]
    notes = _tasks.get(task)
    if notes is None:
        notes = _tasks[task] = Notes()
        if len(_tasks) > MOST_TASKS:
            _tasks.popitem(last=False)
    return notes
