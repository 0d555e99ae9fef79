"""Results as they come, from refs or from a remote function over many inputs.

>>> sorted(map_unordered(square, [1, 2, 3]))
[1, 4, 9]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import weft

__all__ = ["as_completed", "map_unordered"]


def as_completed(refs: Iterable[Any], *, chunk_size: int = 10, yield_obj_refs: bool = False) -> Iterator[Any]:
    """The values of the refs in the order in which they become ready, or the refs themselves.

    `chunk_size`: so many are waited for at a time; more means fewer waits and a later first result."""
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, but got {chunk_size}")
    return _as_completed(list(refs), chunk_size, yield_obj_refs)


def _as_completed(pending: list[Any], chunk_size: int, yield_obj_refs: bool) -> Iterator[Any]:
    while pending:
        ready, pending = weft.wait(pending, num_returns=min(chunk_size, len(pending)))
        yield from ready if yield_obj_refs else weft.get(ready)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
) -> Iterator[Any]:
    """A remote function's results over the items, as they come. At most `backpressure_size` calls are under way."""
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, but got {chunk_size}")
    if backpressure_size is not None and backpressure_size < chunk_size:
        raise ValueError(f"backpressure_size must be at least chunk_size, but got {backpressure_size} < {chunk_size}")
    return _map_unordered(fn, iter(items), backpressure_size, chunk_size, yield_obj_refs)


def _map_unordered(
    fn: Any, items: Iterator[Any], most: int | None, chunk_size: int, yield_obj_refs: bool
) -> Iterator[Any]:
    pending: list[Any] = []
    for item in items:
        pending.append(fn.remote(item))
        if most is not None and len(pending) >= most:
            ready, pending = weft.wait(pending, num_returns=min(chunk_size, len(pending)))
            yield from ready if yield_obj_refs else weft.get(ready)
    yield from _as_completed(pending, chunk_size, yield_obj_refs)
