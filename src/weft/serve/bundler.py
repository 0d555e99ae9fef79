"""Carries many requests of one event loop to one replica in few calls. The replica's half is `bundles.py`.

All that a round of the loop sends to a replica goes in one call of its `exchange`. Such a call returns as soon as any
request of this bundler has ended, with all that have. A request costs a share of a call, and waits for no other.

1. BUN-1: while a replica has requests of this bundler, at least one call to it is under way.
2. BUN-2: when a call fails, the replica is gone, and so are all the requests that it had.
3. BUN-3: a request is given up after the call that carries it was made, so that the replica knows which is meant.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.serve.bundles import Parcel, pack, unpacked
from weft.serve.requests import BundledRequest

if TYPE_CHECKING:
    from weft.serve.peers import Peer


class Bundler:
    """Used on the loop, except for `send`. It tells the router what has ended."""

    def __init__(
        self,
        peer: Peer,
        loop: asyncio.AbstractEventLoop,
        process: str,
        answered: Callable[[Peer, list[tuple[BundledRequest, int, int, Any]]], None],
        lost: Callable[[Peer, list[BundledRequest], BaseException], None],
    ) -> None:
        self._peer = peer
        self._loop = loop
        self._answered = answered
        self._lost = lost
        self._name = f"{process}/{uuid.uuid4().hex}"
        self._outbox: deque[BundledRequest] = deque()
        self._is_due = False
        self._open: dict[int, BundledRequest] = {}
        self._numbers = 0
        self._calls = 0
        """Under way. Not counted by tasks: one that ends is known to have ended only in the loop's next round."""
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, request: BundledRequest) -> None:
        """From any thread, with the loop's next round."""
        self._outbox.append(request)
        if not self._is_due:
            self._is_due = True
            run_on(self._loop, self._flush)

    def give_up(self, request: BundledRequest) -> None:
        if self._open.get(request.number) is request:
            self._peer.actor.give_up.remote(self._name, request.number)

    def _flush(self) -> None:
        self._is_due = False  # before the outbox is emptied: what comes meanwhile is taken here or has its own flush
        parcels: list[Parcel] = []
        now_s = time.monotonic()
        given_up: list[BundledRequest] = []
        while self._outbox:
            request = self._outbox.popleft()
            self._numbers += 1
            request.number, request.bundler = self._numbers, self
            self._open[request.number] = request
            request_id, model, deadline_s, session = request.context
            left_s = deadline_s - now_s
            parcels.append((request.number, request_id, model, left_s, session, request.method, request.args))
            if request.is_given_up:
                given_up.append(request)
        if parcels:
            self._call(parcels)
        for request in given_up:
            self.give_up(request)

    def _call(self, parcels: list[Parcel]) -> None:
        answer = self._peer.actor.exchange.remote(self._name, pack(parcels))
        self._calls += 1
        task = self._loop.create_task(self._hear(answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear(self, answer: Any) -> None:
        try:
            answers = unpacked(await answer)
        except Exception as error:
            lost, self._open = list(self._open.values()), {}
            self._lost(self._peer, lost, error)
            return
        finally:
            self._calls -= 1
        known = []
        for number, verdict, load, value in answers:
            request = self._open.pop(number, None)
            if request is not None:
                request.bundler = None
                known.append((request, verdict, load, value))
        self._answered(self._peer, known)
        if self._open and not self._calls:  # BUN-1
            self._call([])


def run_on(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have the loop make the call in its next round; from any thread."""
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        loop.call_soon(call)
    else:
        loop.call_soon_threadsafe(call)
