"""The refs of a generator task, as they come: for loops, `async for`, and `wait`.

The producer runs at most a window ahead of what is taken here. A generator that is dropped or closed ends its task
at the next `yield`, and what was not taken is freed. What the task raises is the last item: `get` of it raises.

>>> @weft.remote
... def count(n):
...     yield from range(n)
>>> [weft.get(ref) for ref in count.remote(3)]
[0, 1, 2]
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from weft import _native
from weft._native import ObjectRef
from weft.exceptions import GetTimeoutError, ObjectRefStreamEndOfStreamError, TaskError

DEFAULT_WINDOW = 256
NO_LIMIT = 0x7FFFFFFF
_CANCEL_REFUSED = 3


def window(backpressure: int | None) -> int:
    """How many items the producer may be ahead; -1 means without limit."""
    if backpressure is None:
        return DEFAULT_WINDOW
    return NO_LIMIT if backpressure < 0 else min(backpressure, NO_LIMIT)


class ObjectRefGenerator:
    """Iterates over the refs of a generator task. Belongs to the process that submitted it.

    >>> @weft.remote
    ... def count(to):
    ...     yield from range(to)
    >>> [weft.get(ref) for ref in count.remote(3)]
    [0, 1, 2]
    """

    __slots__ = ("__weakref__", "_ended", "_generator_ref", "_peeked")

    def __init__(self, ref: ObjectRef[Any]) -> None:
        self._generator_ref = ref
        self._ended = False
        self._peeked: ObjectRef[Any] | None = None

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> ObjectRef[Any]:
        """Waits for the next item's ref."""
        item = self._take(-1.0)
        if item is None:
            raise StopIteration
        return item

    def _take(self, timeout_s: float) -> ObjectRef[Any] | None:
        """The next item's ref, None at the end; GetTimeoutError."""
        item = self._peeked
        if item is not None:
            self._peeked = None
            return item
        if self._ended:
            return None
        try:
            item = _native.next_item(self._generator_ref, timeout_s)
        except Exception as error:
            timed_out = isinstance(error, GetTimeoutError) and not isinstance(error, TaskError)
            if timed_out or not self._generator_ref.is_ready():
                raise
            self._ended = True
            return self._generator_ref  # the task failed as a whole: its error is the last item
        self._ended = item is None
        return item

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> ObjectRef[Any]:
        while True:
            try:
                item = self._take(0.0)
            except GetTimeoutError:
                await self._arrival()
                continue
            if item is None:
                raise StopAsyncIteration
            return item

    async def _arrival(self) -> None:
        """Until an item, or the end, has come."""
        from weft.engine.process.objects.refs import signal

        await signal(self._on_item)

    def _on_item(self, callback: Callable[[], None]) -> None:
        """Call it once an item, or the end, has come."""
        _native.on_item(self._generator_ref, callback)

    def next_ready(self) -> bool:
        """Whether `next` would give an item at once; at the end it would not."""
        return self.answers_at_once() and not self.is_finished()

    def answers_at_once(self) -> bool:
        """Whether `next` would not wait: there is an item, or the end."""
        if self._peeked is None and not self._ended:
            try:
                self._peeked = self._take(0.0)
            except GetTimeoutError:
                return False
        return True

    def completed(self) -> ObjectRef[Any]:
        """A ref that is ready when the task has ended; `get` of it raises what ended it early."""
        return self._generator_ref

    def is_finished(self) -> bool:
        """Whether every item was taken."""
        return self._ended and self._peeked is None

    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef[Any]:
        item = self._take(-1.0 if timeout_s is None else timeout_s)
        if item is None:
            raise ObjectRefStreamEndOfStreamError("the generator has no more items")
        return item

    def task_id(self) -> Any:
        """Of the task that yields."""
        return self._generator_ref.task_id()  # type: ignore[attr-defined]

    def close(self) -> None:
        """No more items are wanted: the task is told, what came is freed."""
        self._ended, self._peeked = True, None
        _native.close_stream(self._generator_ref)

    def cancel(self, force: bool = False, recursive: bool = True) -> None:
        """As `weft.cancel(generator)`."""
        cancel_task(self._generator_ref, force, recursive)

    def __del__(self) -> None:
        if not self._ended:
            with contextlib.suppress(Exception):
                _native.close_stream(self._generator_ref)

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._generator_ref.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an ObjectRefGenerator cannot be sent to another process: its items come to the process that submitted "
            "the task. Send the refs that it gives, or list(generator)."
        )


class DynamicObjectRefGenerator(ObjectRefGenerator):
    """Of a task with num_returns="dynamic". Unlike others it can be sent to another process: that waits until the task
    has ended, and takes along the refs that are not taken yet."""

    __slots__ = ("_gathered",)

    def __init__(self, ref: ObjectRef[Any]) -> None:
        super().__init__(ref)
        self._gathered: deque[ObjectRef[Any]] | None = None

    def _take(self, timeout_s: float) -> ObjectRef[Any] | None:
        if self._gathered is None:
            return super()._take(timeout_s)
        return self._gathered.popleft() if self._gathered else None

    def is_finished(self) -> bool:
        """Whether every item was taken."""
        return super().is_finished() and not self._gathered

    def _gather(self) -> deque[ObjectRef[Any]]:
        if self._gathered is None:
            self._gathered = deque(iter(lambda: super(DynamicObjectRefGenerator, self)._take(-1.0), None))
        return self._gathered

    def __len__(self) -> int:
        """How many items are left, once the task has ended."""
        return len(self._gather())

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return _sent, (self._generator_ref, list(self._gather()))


def _sent(ref: ObjectRef[Any], refs: list[ObjectRef[Any]]) -> DynamicObjectRefGenerator:
    made = DynamicObjectRefGenerator(ref)
    made._gathered, made._ended = deque(refs), True
    return made


def cancel_task(ref: ObjectRef[Any], force: bool, recursive: bool) -> None:
    """ValueError for a call of an actor that is to be forced."""
    if _native.cancel(ref, force, recursive) == _CANCEL_REFUSED:
        raise ValueError("force=True is not supported for actor tasks: end the actor with weft.kill() instead")


class StreamCall:
    """A submitter whose tasks are generators."""

    __slots__ = ("_call", "_kind")

    def __init__(self, call: Any, num_returns: str) -> None:
        self._call = call
        self._kind = DynamicObjectRefGenerator if num_returns == "dynamic" else ObjectRefGenerator

    def __call__(self, *args: Any, **kwargs: Any) -> ObjectRefGenerator:
        made = self._call(*args, **kwargs)
        return made if isinstance(made, ObjectRefGenerator) else self._kind(made)


def wait_for_any(waitables: list[Any], num_returns: int, timeout_s: float) -> tuple[list[Any], list[Any]]:
    """`wait` on refs and generators together. A generator is ready when its next item, or its end, is there."""
    deadline = None if timeout_s < 0 else time.monotonic() + timeout_s
    arrival = threading.Event()
    asked: set[int] = set()
    while True:
        arrival.clear()
        ready = [entry for entry in waitables if _is_ready(entry)]
        left = None if deadline is None else deadline - time.monotonic()
        if len(ready) >= num_returns or (left is not None and left <= 0):
            chosen = ready[:num_returns]
            picked = {id(entry) for entry in chosen}
            return chosen, [entry for entry in waitables if id(entry) not in picked]
        for index, entry in enumerate(waitables):
            if index in asked:
                continue
            asked.add(index)  # also what has become ready since the look above: its call comes at once
            if isinstance(entry, ObjectRefGenerator):
                entry._on_item(arrival.set)
            else:
                _native.on_ready(entry, arrival.set)
        arrival.wait(left)


def _is_ready(entry: Any) -> bool:
    return entry.answers_at_once() if isinstance(entry, ObjectRefGenerator) else bool(entry.is_ready())
