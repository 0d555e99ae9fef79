"""What ran on parts, what pandas did instead, where in the program and why. One journal a process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_OWN_PACKAGES = ("pandas", "weft.pandas", "numpy", "functools", "contextlib")


class FallbackError(NotImplementedError):
    """In strict mode: a call that pandas would have to do, in this process, on the whole frame."""

    def __init__(self, operation: str, reason: str, place: str) -> None:
        super().__init__(operation, reason, place)
        self.operation = operation
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return (
            f"{self.operation} at {self.place} would be done by pandas: {self.reason}. Leave strict mode to allow it."
        )


@dataclass
class Calls:
    """How often, how long, and of those that pandas did where the first was and why."""

    count: int = 0
    seconds: float = 0.0
    place: str = ""
    reason: str = ""


@dataclass
class Moves:
    strict: bool = False
    on_parts: dict[str, Calls] = field(default_factory=dict)
    in_pandas: dict[str, Calls] = field(default_factory=dict)
    cut: int = 0
    """Frames that were cut into parts."""
    settled: int = 0
    """Frames that were brought into this process."""

    @contextmanager
    def timed(self, calls: dict[str, Calls], operation: str) -> Iterator[None]:
        entry = calls.setdefault(operation, Calls())
        entry.count += 1
        start = time.perf_counter()
        try:
            yield
        finally:
            entry.seconds += time.perf_counter() - start

    def note_fallback(self, operation: str, reason: str) -> None:
        """Before pandas does it. FallbackError in strict mode."""
        if self.strict or operation not in self.in_pandas:
            place = _place()
            if self.strict:
                raise FallbackError(operation, reason, place)
            self.in_pandas[operation] = Calls(place=place, reason=reason)


moves = Moves()


def _place() -> str:
    """The line of the program that called for it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_of_a_library(frame.f_globals):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_of_a_library(names: dict[str, Any]) -> bool:
    name = str(names.get("__name__", ""))
    return any(name == package or name.startswith(package + ".") for package in _OWN_PACKAGES)


_WRITES = frozenset("__setitem__ update insert pop __iadd__ __isub__ __imul__ __itruediv__ __iand__ __ior__".split())


def who_looks() -> tuple[str, bool]:
    """The method of pandas that the program called, by the stack, and whether it writes: what made pandas look into a
    frame."""
    name, writes, frame = "an operation", False, sys._getframe(1)
    while frame.f_back is not None and _is_of_a_library(frame.f_globals):
        if str(frame.f_globals.get("__name__", "")).startswith("pandas"):
            name = frame.f_code.co_name
            writes = writes or name in _WRITES or frame.f_locals.get("inplace") is True
        frame = frame.f_back
    return name, writes


def strict(on: bool = True) -> Any:
    """From now on a call that pandas has to do for a deferred frame raises FallbackError; as a context manager, until
    its end."""
    before, moves.strict = moves.strict, on

    @contextmanager
    def until_end() -> Iterator[None]:
        try:
            yield
        finally:
            moves.strict = before

    return until_end()


def explain(frame: Any = None) -> str:
    """What a frame is, then what ran on parts so far, what pandas did instead, how long, where first, and why."""
    lines = [] if frame is None else [_described(frame)]
    lines += [f"{moves.cut} frames cut into parts, {moves.settled} brought into this process"]
    for name, calls in sorted(moves.on_parts.items(), key=lambda entry: -entry[1].seconds):
        lines.append(f"on parts: {name} × {calls.count}, {calls.seconds:.3f} s")
    for name, calls in sorted(moves.in_pandas.items(), key=lambda entry: -entry[1].seconds):
        where = f"first at {calls.place}: {calls.reason}"
        lines.append(f"in pandas: {name} × {calls.count}, {calls.seconds:.3f} s, {where}")
    return "\n".join(lines)


def _described(frame: Any) -> str:
    plan = getattr(frame, "__dict__", {}).get("_plan")
    if plan is not None:
        return f"{type(frame).__name__} in parts, {plan.depth - 1} steps waiting"
    if not hasattr(frame, "iloc"):
        raise TypeError(f"explain takes a frame or series, but got a {type(frame).__name__}")
    return f"{type(frame).__name__} of {len(frame)} rows, plain, in this process"
