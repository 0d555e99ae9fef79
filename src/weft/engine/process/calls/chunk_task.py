"""The task behind `weft.map`: one function over some items. What it raises comes back beside what was done before.

Runs in workers. It lies in the engine so that its frames are not in the tracebacks that users see.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft._native import ObjectRef, get
from weft.engine.process.calls.errors import dump_error


class Outcome(NamedTuple):
    """Of one chunk."""

    values: list[Any]
    """Of all items, or of those before the one that failed."""
    took_s: float
    error: bytes = b""
    """An error value."""


class ChunkTask:
    """Calls `function` with each item, or with the arguments that each item is a tuple of."""

    def __init__(self, function: Callable[..., Any], name: str, spreads: bool, raises: bool) -> None:
        self._function = function
        self._name = name
        self._spreads = spreads
        self._raises = raises
        """Whether the engine shall see the error, because it is to try again."""
        self.__name__ = self.__qualname__ = name
        self.__module__ = getattr(function, "__module__", __name__) or __name__

    def __call__(self, items: Sequence[Any], has_refs: bool) -> Outcome:
        began_s = time.perf_counter()
        if has_refs:
            items = [_resolved(item, self._spreads) for item in items]
        values: list[Any] = []
        calls = itertools.starmap(self._function, items) if self._spreads else map(self._function, items)
        try:
            values.extend(calls)  # what was done before an error stays in the list
            if len(values) < len(items):
                raise RuntimeError(f"{self._name}() raised StopIteration")
        except Exception as error:
            if self._raises:
                raise
            value, _ = dump_error(error, self._name)
            return Outcome(values, time.perf_counter() - began_s, value)
        return Outcome(values, time.perf_counter() - began_s)


def has_refs(items: Sequence[Any], spreads: bool) -> bool:
    """Whether a task must be given values in the place of refs."""
    if isinstance(items, range):
        return False
    if not spreads:
        return ObjectRef in set(map(type, items))
    return any(ObjectRef in set(map(type, arguments)) for arguments in items)


def _resolved(item: Any, spreads: bool) -> Any:
    if spreads:
        return tuple(_resolved(part, False) for part in item)
    return get(item) if type(item) is ObjectRef else item
