"""What ran where: operations on blocks, moves between pandas and Weft, and what fell back to pandas, and why.

One journal a process. `explain` reads it; strict mode makes a fall-back an error instead.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FallbackError", "explain", "strict"]

_NO_PARALLEL_FORM = "Modin has no parallel form of it: the whole frame is brought into this process and given to pandas"
_FUNCTION = re.compile(r"^<function (.+)>$")
"""As Modin names some methods."""
_OWN_PACKAGES = ("modin", "weft.pandas", "pandas")


class FallbackError(NotImplementedError):
    """In strict mode: an operation that would be run by pandas, in this process, on the whole frame."""

    def __init__(self, operation: str, reason: str, place: str) -> None:
        super().__init__(operation, reason, place)
        self.operation = operation
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return (
            f"{self.operation} at {self.place} would fall back to pandas: {self.reason}. "
            "Leave strict mode to allow it, or call .modin.to_pandas() where it is meant."
        )


@dataclass
class Fallback:
    """One operation that pandas ran, where it was called first, and how often."""

    operation: str
    reason: str
    place: str
    count: int = 0


@dataclass
class Journal:
    strict: bool = False
    warns_once: bool = False
    """Modin warns each time; programs that import weft.pandas.modin are told once, and the rest is in `explain`."""
    fallbacks: dict[str, Fallback] = field(default_factory=dict)
    tasks: Counter[str] = field(default_factory=Counter)
    near: Counter[str] = field(default_factory=Counter)
    """What pandas did on a copy of a frame of Weft because it is quicker there, not for want of another way."""

    def note_fallback(self, message: str, reason: str) -> bool:
        """Whether the user is to be warned. FallbackError in strict mode."""
        operation = _FUNCTION.sub(r"\1", message.strip("` ")) or "an operation"
        place = _place()
        if self.strict:
            raise FallbackError(operation, reason or _NO_PARALLEL_FORM, place)
        entry = self.fallbacks.setdefault(operation, Fallback(operation, reason or _NO_PARALLEL_FORM, place))
        entry.count += 1
        return entry.count == 1 or not self.warns_once

    def note_tasks(self, kind: str) -> None:
        self.tasks[kind] += 1

    def note_near(self, operation: str) -> None:
        self.near[operation] += 1


journal = Journal()


def _place() -> str:
    """The line of the user's program that called for it."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not any(name == package or name.startswith(package + ".") for package in _OWN_PACKAGES):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def strict(on: bool = True) -> Any:
    """From now on a fall-back to pandas raises FallbackError; as a context manager, until its end.

    >>> import weft.pandas.modin as pd
    >>> with pd.strict():
    ...     int(pd.DataFrame({"n": [1, 2]}).n.sum())
    3
    """
    before = journal.strict
    journal.strict = on

    @contextmanager
    def until_end() -> Iterator[None]:
        try:
            yield
        finally:
            journal.strict = before

    return until_end()


def explain(frame: Any = None) -> str:
    """Where a frame is and how it is cut, then what ran as tasks so far and what fell back to pandas, and why."""
    lines = [] if frame is None else _describe(frame)
    if journal.tasks:
        kinds = ", ".join(f"{kind} × {count}" for kind, count in sorted(journal.tasks.items()))
        lines.append(f"on Weft: {kinds}")
    if journal.near:
        kinds = ", ".join(f"{kind} × {count}" for kind, count in sorted(journal.near.items()))
        lines.append(f"in this process, where that is quicker: {kinds}")
    if not journal.fallbacks:
        lines.append("nothing fell back to pandas")
    for entry in sorted(journal.fallbacks.values(), key=lambda entry: -entry.count):
        lines.append(f"in pandas: {entry.operation} × {entry.count}, first at {entry.place}: {entry.reason}")
    return "\n".join(lines)


def _describe(frame: Any) -> list[str]:
    compiler = getattr(frame, "_query_compiler", None)
    if compiler is None:
        raise TypeError(f"explain takes a frame or series of weft.pandas.modin, but got a {_full_name(type(frame))}")
    kind = type(frame).__name__
    if frame.get_backend() != "Weft":
        rows, columns = compiler._max_shape()
        return [f"{kind} of {rows} rows, {columns} columns, in backend {frame.get_backend()}, in this process"]
    blocks = compiler._modin_frame._partitions
    queued = sum(len(block.call_queue) for block in blocks.flatten())
    line = f"{kind} on Weft, cut into {blocks.shape[0]} × {blocks.shape[1]} blocks in object memory"
    return [f"{line}, {queued} calls queued" if queued else line]


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
