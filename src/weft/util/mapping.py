"""Results as they come, from refs or from a remote function over many inputs.

>>> @weft.remote
... def square(x):
...     return x * x
>>> sorted(map_unordered(square, [1, 2, 3]))
[1, 4, 9]
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

import weft
from weft import ObjectRef
from weft.engine.process.objects.refs import call_on_loop

__all__ = ["Completed", "as_completed", "map_unordered"]

T = TypeVar("T")
_AT_ONCE = 100
"""At most so many that are ready are fetched together."""


@overload
def as_completed(refs: Iterable[ObjectRef[T]], *, chunk_size: int | None = None) -> Completed[T]: ...
@overload
def as_completed(
    refs: Iterable[ObjectRef[T]], *, chunk_size: int | None = None, yield_obj_refs: Literal[True]
) -> Completed[ObjectRef[T]]: ...
@overload
def as_completed(
    refs: Iterable[ObjectRef[Any]], *, chunk_size: int | None = None, yield_obj_refs: bool = False
) -> Completed[Any]: ...
def as_completed(refs: Iterable[Any], *, chunk_size: int | None = None, yield_obj_refs: bool = False) -> Completed[Any]:
    """The values of the refs in the order in which they become ready, or the refs themselves: for `for`, and for
    `async for` in a coroutine. A task's exception is raised in its place, and what was ready with it is lost to `for`
    loops: take the refs to go on behind it.

    `chunk_size`: so many are waited for and fetched at a time; without it nothing that is ready waits for what is not.

    >>> sorted(weft.as_completed([weft.put(1), weft.put(2)]))
    [1, 2]
    """
    if chunk_size is not None and (isinstance(chunk_size, bool) or not isinstance(chunk_size, int)):
        raise TypeError(f"chunk_size must be an int or None, but got {chunk_size!r}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, but got {chunk_size}")
    if isinstance(refs, ObjectRef):
        raise TypeError(f"as_completed() expects a list of refs, but got a single one: as_completed([{refs!r}])")
    pending = list(refs)
    for ref in pending:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"as_completed() expects a list of refs, but got one that has {ref!r} in it")
    return Completed(pending, chunk_size, yield_obj_refs)


class Completed(Generic[T]):
    """What `as_completed` returns; an iterator of either kind, once."""

    def __init__(self, pending: list[Any], chunk_size: int | None, yield_obj_refs: bool) -> None:
        self._pending = pending
        self._yields_refs = yield_obj_refs
        self._values = _completed(pending, chunk_size, yield_obj_refs)
        self._arrivals: AsyncIterator[Any] | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._values)  # type: ignore[no-any-return]

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if self._arrivals is None:
            self._arrivals = _arrivals(self._pending)
        ref = await self._arrivals.__anext__()
        return ref if self._yields_refs else await ref  # type: ignore[no-any-return]


def _completed(pending: list[Any], chunk_size: int | None, yield_obj_refs: bool) -> Iterator[Any]:
    while pending:
        ready, pending = weft.wait(pending, num_returns=min(chunk_size or 1, len(pending)))
        if pending and chunk_size is None:
            more, pending = weft.wait(pending, num_returns=min(_AT_ONCE, len(pending)), timeout=0)
            ready += more
        yield from ready if yield_obj_refs else weft.get(ready)


async def _arrivals(pending: list[Any]) -> AsyncIterator[Any]:
    """The refs as they become ready, without a thread that waits."""
    import asyncio

    arrived: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for ref in pending:
        call_on_loop(ref, loop, partial(arrived.put_nowait, ref))
    for _ in pending:
        yield await arrived.get()


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
) -> Iterator[Any]:
    """A remote function's results over the items, as they come. At most `backpressure_size` calls are under way.

    >>> square = weft.remote(lambda x: x * x)
    >>> sorted(map_unordered(square, range(4)))
    [0, 1, 4, 9]
    """
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
    yield from _completed(pending, chunk_size, yield_obj_refs)
