"""Where the parts of tables are, and who computes on them: object memory and tasks of Weft; or this process, where no
other is wanted (`in_this_process`, for tests).

A part is named by a handle: a ref, or in this process the value itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import weft
from weft.exceptions import TaskError

Share = tuple[Any, ...]
"""The arguments of one call, handles among them."""


class Home(Protocol):
    def count(self) -> int:
        """Into how many parts a table is cut."""

    def put(self, value: Any) -> Any:
        """A handle of a value."""

    def run(self, function: Callable[..., Any], shares: Sequence[Share], returns: int) -> list[Any]:
        """Handles of what a function gives for each share; a list of handles for each where it returns several."""

    def get(self, handles: list[Any]) -> list[Any]:
        """The values. What a call raised is raised as it was."""


class OnWeft:
    def count(self) -> int:
        return max(2, int(weft.cluster_resources().get("CPU", 1)))

    def put(self, value: Any) -> Any:
        return weft.put(value)

    def run(self, function: Callable[..., Any], shares: Sequence[Share], returns: int) -> list[Any]:
        task = _task(function, returns)
        return [task.remote(*share) for share in shares]

    def get(self, handles: list[Any]) -> list[Any]:
        try:
            return list(weft.get(handles))
        except TaskError as error:
            raise _root(error) from error


class InThisProcess:
    def __init__(self, parts: int) -> None:
        self._parts = parts

    def count(self) -> int:
        return self._parts

    def put(self, value: Any) -> Any:
        return _unpacked(value)

    def run(self, function: Callable[..., Any], shares: Sequence[Share], returns: int) -> list[Any]:
        made = [function(*share) for share in shares]
        return [tuple(map(_unpacked, each)) if returns > 1 else _unpacked(each) for each in made]

    def get(self, handles: list[Any]) -> list[Any]:
        return handles


def _unpacked(value: Any) -> Any:
    """What whoever loads it would get. Only what packs, with pandas 2, has loaded `packing`."""
    packing = sys.modules.get("weft.pandas.packing")
    return value.frame if packing is not None and isinstance(value, packing.PackedFrame) else value


def _root(error: BaseException) -> BaseException:
    """What was raised first: a task that is given a failed ref fails with an error around that of the ref."""
    while isinstance(error, TaskError) and error.cause is not None:
        error = error.cause
    return error


@functools.cache
def _task(function: Callable[..., Any], returns: int) -> Any:
    return weft.remote(num_returns=returns)(function)


_chosen: Home | None = None


def home() -> Home:
    """Weft's, which is started by the first call."""
    global _chosen
    if _chosen is None:
        _chosen = OnWeft()
    if isinstance(_chosen, OnWeft) and not weft.is_initialized():
        weft.init()
    return _chosen


def use_this_process(parts: int = 3) -> None:
    """From now on parts are computed here, one after another: what is tested is then the plans, not the engine."""
    global _chosen
    _chosen = InThisProcess(parts)


@contextmanager
def in_this_process(parts: int = 3) -> Iterator[None]:
    """The same, until the end."""
    global _chosen
    before = _chosen
    use_this_process(parts)
    try:
        yield
    finally:
        _chosen = before
