"""A first-in first-out queue that any task or actor can use. The items live in one async actor.

>>> queue = Queue(maxsize=10)
>>> queue.put("a"); queue.get()
'a'
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import Any

import weft

__all__ = ["Empty", "Full", "Queue"]


class Empty(queue.Empty):
    """There is nothing to get."""


class Full(queue.Full):
    """There is no room."""


class Queue:
    """As `queue.Queue`, across processes. `maxsize` 0 means without bound; `actor_options` are the actor's.

    Can be passed to tasks. It ends with its last copy, or by `shutdown()`.

    >>> queue = Queue(maxsize=2)
    >>> queue.put("first")
    >>> weft.get(weft.remote(lambda queue: queue.get()).remote(queue))
    'first'
    >>> queue.empty()
    True
    >>> queue.shutdown()
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        if isinstance(maxsize, bool) or not isinstance(maxsize, int):
            raise TypeError(f"maxsize must be an int, but got {maxsize!r}")
        self.maxsize = maxsize
        self.actor: Any = weft.remote(_QueueActor).options(**(actor_options or {})).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items are in it."""
        return int(weft.get(self.actor.qsize.remote()))

    qsize = size

    def empty(self) -> bool:
        """Whether it has no items."""
        return bool(weft.get(self.actor.empty.remote()))

    def full(self) -> bool:
        """Whether `maxsize` items are in it."""
        return bool(weft.get(self.actor.full.remote()))

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item, waiting for room unless `block` is False. Full when there is none in time."""
        _check_timeout(block, timeout)
        if block:
            weft.get(self.actor.put.remote(item, timeout))
        else:
            weft.get(self.actor.put_nowait.remote(item))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """As `put`, without blocking the event loop."""
        _check_timeout(block, timeout)
        if block:
            await self.actor.put.remote(item, timeout)
        else:
            await self.actor.put_nowait.remote(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item, waiting for one unless `block` is False. Empty when there is none in time."""
        _check_timeout(block, timeout)
        return weft.get(self.actor.get.remote(timeout) if block else self.actor.get_nowait.remote())

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """As `get`, without blocking the event loop."""
        _check_timeout(block, timeout)
        return await (self.actor.get.remote(timeout) if block else self.actor.get_nowait.remote())

    def put_nowait(self, item: Any) -> None:
        """As `put`, but `Full` at once."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """As `get`, but `Empty` at once."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Add all of them, or none and raise Full."""
        if not isinstance(items, Iterable):
            raise TypeError("Argument 'items' must be an Iterable")
        weft.get(self.actor.put_nowait_batch.remote(list(items)))

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Take so many items, or none and raise Empty."""
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        taken: list[Any] = weft.get(self.actor.get_nowait_batch.remote(num_items))
        return taken

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the actor, after the calls that it has been sent unless `force`."""
        if self.actor is None:
            return
        if not force:
            ended = self.actor.__ray_terminate__.remote()
            ready, _ = weft.wait([ended], timeout=grace_period_s)
            force = not ready
        if force:
            weft.kill(self.actor, no_restart=True)
        self.actor = None


def _check_timeout(block: bool, timeout: float | None) -> None:
    if block and timeout is not None and timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number, but got {timeout}")


class _QueueActor:
    """Holds the items. Its plain methods run between the awaits of the others, so each is atomic."""

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    def qsize(self) -> int:
        return self.queue.qsize()

    def empty(self) -> bool:
        return self.queue.empty()

    def full(self) -> bool:
        return self.queue.full()

    async def put(self, item: Any, timeout: float | None = None) -> None:
        try:
            await asyncio.wait_for(self.queue.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full from None

    async def get(self, timeout: float | None = None) -> Any:
        try:
            return await asyncio.wait_for(self.queue.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty from None

    def put_nowait(self, item: Any) -> None:
        try:
            self.queue.put_nowait(item)
        except asyncio.QueueFull:
            raise Full from None

    def get_nowait(self) -> Any:
        try:
            return self.queue.get_nowait()
        except asyncio.QueueEmpty:
            raise Empty from None

    def put_nowait_batch(self, items: list[Any]) -> None:
        if self.maxsize > 0 and len(items) + self.qsize() > self.maxsize:
            raise Full(f"Cannot add {len(items)} items to queue of size {self.qsize()} and maxsize {self.maxsize}.")
        for item in items:
            self.queue.put_nowait(item)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self.qsize():
            raise Empty(f"Cannot get {num_items} items from queue of size {self.qsize()}.")
        return [self.queue.get_nowait() for _ in range(num_items)]
