"""What runs in a pool's workers: one actor each, which keeps what the initializer made.

What a call raises travels back as the standard pool does it: the exception itself, whose cause shows the worker's
traceback. One that cannot be pickled is left to the engine, which knows how to describe it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any

from weft import cloudpickle
from weft.util.portable_function import Packed, unpack

__all__ = ["APPLY", "EACH", "MAP", "STARMAP", "Failed", "PoolWorker"]

APPLY, MAP, STARMAP, EACH = range(4)
"""One call of (args, kwargs); calls of one argument; calls of many; calls whose failures do not end the chunk."""


class Failed:
    """Stands for the value of a call that raised."""

    def __init__(self, error: Any) -> None:
        self.error = error


class PoolWorker:
    """The actor."""

    def __init__(self, initializer: Packed | None, initargs: tuple[Any, ...]) -> None:
        if initializer is not None:
            unpack(initializer)(*initargs)

    def ping(self) -> None:
        """Answered once the initializer has run."""

    def leave(self) -> None:
        """End, as a worker of a closed pool."""
        from weft.actor import exit_actor

        exit_actor()

    def run(self, packed: Packed, kind: int, items: Any) -> Any:
        """The value or the list of values; Failed in place of what raised, which is the whole but for EACH."""
        try:
            function = unpack(packed)
            if kind == MAP:
                return list(map(function, items))
            if kind == APPLY:
                args, kwargs = items
                return function(*args, **kwargs)
            if kind == STARMAP:
                return [function(*args) for args in items]
            return [_outcome(function, item) for item in items]
        except Exception as error:
            return _failed(error)


def _outcome(function: Callable[..., Any], item: Any) -> Any:
    try:
        return function(item)
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Failed:
    wrapped = ExceptionWithTraceback(error, error.__traceback__)
    try:
        cloudpickle.loads(cloudpickle.dumps(wrapped))
    except Exception:
        traceback.clear_frames(error.__traceback__)
        raise error from None
    return Failed(wrapped)


def chunks_of(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
