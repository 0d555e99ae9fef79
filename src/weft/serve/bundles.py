"""The replica's half of `bundler.py`: starts the requests of a bundle, and answers as they end.

A bundle travels as one `bytes`: made of plain values only, it takes the C pickler half a microsecond a request, a tenth
of what it takes to pickle it as a value of the engine's.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from weft.serve.context import RequestContext

Parcel = tuple[int, str, str, float, str, str, tuple[Any, ...]]
"""(number at its caller, request id, model, time left, session, method, arguments)"""
Outcome = tuple[int, int, int, Any]
"""(number, TAKEN or REFUSED or FAILED, requests under way, value)"""
TAKEN = 0
REFUSED = 1
FAILED = 2
"""The value is what went wrong, in words."""
Answering = Callable[[RequestContext, str, tuple[Any, ...], dict[str, Any]], Coroutine[Any, Any, tuple[int, int, Any]]]

_GIVEN_UP = "the request was given up"
MOST_BYTES = 256 * 1024
"""Of bodies in one call's answer, but for its first: a small one shall not wait until large ones are copied."""
MOST_WAITING_CALLS = 4
"""A caller has more only when its requests end in larger bundles than they came in: then the oldest returns empty."""


def pack(bundle: list[Any]) -> bytes:
    return pickle.dumps(bundle, 5)


def unpacked(packed: bytes) -> list[Any]:
    found: list[Any] = pickle.loads(packed)
    return found


class Bundles:
    """All bundles of one caller, on the replica's loop."""

    def __init__(self, answer: Answering, load: Callable[[], int]) -> None:
        self._answer = answer
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ended: list[Outcome] = []
        self._calls: deque[asyncio.Future[list[Outcome]]] = deque()
        self._is_due = False
        self._is_closing = False

    async def exchange(self, packed: bytes) -> bytes:
        """Begins what is given; returns what has ended since, at least one."""
        now_s = time.monotonic()
        for number, request_id, model, left_s, session, method, args in unpacked(packed):
            work = self._run(number, RequestContext(request_id, model, now_s + left_s, session), method, args)
            self._running[number] = self._loop.create_task(work)
        call: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self._calls.append(call)
        if len(self._calls) > MOST_WAITING_CALLS:
            self._calls.popleft().set_result([])
        self._have_flushed()
        try:
            return pack(await call)
        except asyncio.CancelledError:  # its caller has died
            for number in self._running:
                self.give_up(number)
            raise

    def give_up(self, number: int) -> None:
        task = self._running.get(number)
        if task is not None:
            task.add_done_callback(lambda _: self._never_began(number))
            task.cancel()

    def _never_began(self, number: int) -> None:
        """If its task was cancelled before its first step, none of its code has run, not even what handles that."""
        if number in self._running:
            self._has_ended(number, FAILED, self._load(), _GIVEN_UP)

    def close(self) -> None:
        """Hold no call back that has nothing to wait for: its replica wants to leave."""
        self._is_closing = True
        self._have_flushed()

    async def _run(self, number: int, context: RequestContext, method: str, args: tuple[Any, ...]) -> None:
        try:
            verdict, load, value = await self._answer(context, method, args, {})
        except asyncio.CancelledError:
            verdict, load, value = FAILED, self._load(), _GIVEN_UP
        except Exception as error:
            verdict, load, value = FAILED, self._load(), f"{type(error).__name__}: {error}"
        self._has_ended(number, verdict, load, value)

    def _has_ended(self, number: int, verdict: int, load: int, value: Any) -> None:
        del self._running[number]
        self._ended.append((number, verdict, load, value))
        self._have_flushed()

    def _have_flushed(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        while self._calls and (self._ended or (self._is_closing and not self._running)):
            call = self._calls.popleft()
            if not call.done():
                call.set_result(self._take())

    def _take(self) -> list[Outcome]:
        """What has ended, as far as it travels together."""
        left_bytes = MOST_BYTES
        for count, (_, _, _, value) in enumerate(self._ended):
            left_bytes -= len(value[2] or b"") if isinstance(value, tuple) else 0
            if left_bytes < 0:
                taken, self._ended = self._ended[: count + 1], self._ended[count + 1 :]
                return taken
        taken, self._ended = self._ended, []
        return taken
