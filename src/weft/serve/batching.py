"""`@serve.batch`: single requests in, one call with a list, single answers out.

1. BAT-1: a batch begins as soon as no other is under way and it is full, or its oldest request has waited long enough.
2. BAT-2: a batch that has to wait for one under way grows meanwhile, so that the size follows the load by itself.
3. BAT-3: an Exception among the results is raised to its own request only; one raised by the call, to all of them.

Runs on the replica's loop; a plain function's batches run on a thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from weft.library.checks import at_least
from weft.library.keywords import answers_keywords
from weft.serve.context import NO_CONTEXT, calls_of_request, request_context
from weft.serve.lane import acceptable

_ATTRIBUTE = "_weft_serve_batches"


@overload
def batch(function: Callable[..., Any], /) -> Callable[..., Any]: ...
@overload
def batch(
    *,
    max_batch_size: int = ...,
    batch_wait_timeout_s: float | None = ...,
    wait_s: float | None = ...,
    stack: bool = ...,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
@answers_keywords(max_size="write max_batch_size=...", size="write max_batch_size=...", timeout="write wait_s=...")
def batch(
    function: Callable[..., Any] | None = None,
    /,
    *,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float | None = None,
    wait_s: float | None = None,
    stack: bool = False,
) -> Any:
    """Have an async caller's single values answered together.

    The function takes a list of values and returns as many results, in their order. `wait_s` (or
    `batch_wait_timeout_s`, default 0.01) is how long a request waits for others when the function is idle.

    With `stack`, values are arrays and the function takes one array with a row for each, copied together straight from
    where they arrived. A value of another shape or type than the batch's first is refused, alone.

    >>> @batch(max_batch_size=8)
    ... async def double(values: list[int]) -> list[int]: return [2 * one for one in values]
    >>> import asyncio
    >>> asyncio.run(double(4))
    8
    """
    if wait_s is not None and batch_wait_timeout_s is not None:
        raise TypeError("wait_s and batch_wait_timeout_s are two names of one thing: give one of them")
    chosen = wait_s if wait_s is not None else batch_wait_timeout_s
    patience_s = 0.01 if chosen is None else chosen
    if isinstance(max_batch_size, bool) or not isinstance(max_batch_size, int) or max_batch_size < 1:
        raise ValueError(f"max_batch_size must be a positive integer, but got {max_batch_size!r}")
    at_least("wait_s", patience_s, 0)

    def make(made: Callable[..., Any]) -> Any:
        is_method = next(iter(inspect.signature(made).parameters), "") == "self"
        queues: dict[Any, Batches] = {}

        @functools.wraps(made)
        async def submit(*args: Any) -> Any:
            owner, values = (args[0], args[1:]) if is_method else (None, args)
            if len(values) != 1:
                raise TypeError(f"{made.__qualname__} takes one value a request, but got {len(values)}")
            held = queues if owner is None else owner.__dict__.setdefault(_ATTRIBUTE, {})
            key = (made.__qualname__, asyncio.get_running_loop())
            if key not in held:
                call = functools.partial(made, owner) if is_method else made
                held[key] = Batches(call, max_batch_size, patience_s, stack)
            return await held[key].submit(values[0])

        return submit

    return make if function is None else make(function)


class Batches:
    """The requests of one batched function that wait, and the batch under way."""

    def __init__(self, call: Callable[[Any], Any], size: int, patience_s: float, stacks: bool = False) -> None:
        self._call = call
        self._size = size
        self._patience_s = patience_s
        self._stacks = stacks
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._since_s: deque[float] = deque()
        """When each of them came."""
        self._runner: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()

    async def submit(self, value: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((value, answer))
        self._since_s.append(loop.time())
        self._arrived.set()
        if self._runner is None:
            self._runner = loop.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        # Made by the first request, whose deadline and end are no matter of the others, whom it may outlast.
        request_context.set(NO_CONTEXT)
        calls_of_request.set(None)
        try:
            while self._waiting:
                await self._fill()
                taken = [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]
                for _ in taken:
                    self._since_s.popleft()
                taken = [one for one in taken if not one[1].done()]
                if taken:
                    await self._answer(taken)
        finally:
            self._runner = None

    async def _fill(self) -> None:
        """Wait for a full batch, until the oldest of it has waited as long as the patience lasts."""
        loop = asyncio.get_running_loop()
        deadline_s = self._since_s[0] + self._patience_s
        while len(self._waiting) < self._size and (left_s := deadline_s - loop.time()) > 0:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left_s)
            except asyncio.TimeoutError:
                return

    async def _answer(self, taken: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        if self._stacks and not (taken := _alike(taken)):
            return
        values: Any = [value for value, _ in taken]
        try:
            if self._stacks:
                values = np.stack(values)
            if inspect.iscoroutinefunction(getattr(self._call, "func", self._call)):
                results = await self._call(values)
            else:
                results = await asyncio.get_running_loop().run_in_executor(None, _called, self._call, values)
            if len(results) != len(values):
                raise TypeError(f"a batch of {len(values)} requests must have as many results, but got {len(results)}")
        except asyncio.CancelledError as error:  # by the function itself: nobody else has this task
            results = [RuntimeError(f"the batch was cancelled: {error}")] * len(values)
        except Exception as error:
            results = [error] * len(values)
        for (_, answer), result in zip(taken, results, strict=True):
            if answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(acceptable(result))
            else:
                answer.set_result(result)


def _called(call: Callable[[Any], Any], values: Any) -> Any:
    try:
        return call(values)
    except StopIteration as error:
        raise acceptable(error) from error


def _alike(taken: list[tuple[Any, asyncio.Future[Any]]]) -> list[tuple[Any, asyncio.Future[Any]]]:
    """As arrays, without those that are none or do not fit the first, whose requests fail."""
    kept: list[tuple[Any, asyncio.Future[Any]]] = []
    for value, answer in taken:
        try:
            array = np.asarray(value)
            first = kept[0][0] if kept else array
            if (array.shape, array.dtype) != (first.shape, first.dtype):
                raise ValueError(
                    f"a value of a batch must be {first.dtype} {first.shape}, as its first, but got {array.dtype} "
                    f"{array.shape}"
                )
        except Exception as error:
            answer.set_exception(error)
        else:
            kept.append((array, answer))
    return kept
