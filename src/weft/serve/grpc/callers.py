"""The calls under way in a gRPC front, and which of them give way: those that wait for their client. On its loop.

A client that sends half a message, says nothing in a stream, or reads no answer costs a place among the calls that may
be under way, and perhaps one in a replica. When others want it, and when it lasts too long, the call is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc

from weft.serve.crowds import CROWDED_S, crowds_first, patience_s
from weft.serve.grpc.talks import Refused

SWEEP_S = 0.25
_FULL = grpc.StatusCode.RESOURCE_EXHAUSTED


class Caller:
    """One call under way."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.app = ""
        """The application, once it is known."""
        self.waits_since_s: float | None = None
        """Since when it has waited for the client."""
        self.task = asyncio.current_task()
        self.is_sent_away = False

    def send_away(self) -> None:
        self.is_sent_away = True
        if self.task is not None:
            self.task.cancel()


class Callers:
    """All calls under way."""

    def __init__(self, most: int, patience_s: float, waiting: Callable[[str], int]) -> None:
        """`patience_s`: so long a client is waited for where nobody else wants its place. `waiting`: how many requests
        of an application wait for a replica."""
        self._most = most
        self._patience_s = patience_s
        self._waiting = waiting
        self._crowded_since_s: dict[str, float] = {}
        self._under_way: dict[Caller, None] = {}

    @contextlib.contextmanager
    def arrival(self, context: Any) -> Iterator[Caller]:
        """Of one call, until it ends; Refused where there is no place for it."""
        if len(self._under_way) >= self._most and not self._free(1 + self._most // 16, lambda _: True, 0.0):
            raise Refused(_FULL, "too many calls are under way: try again later")
        caller = Caller(context.peer().rpartition(":")[0])
        self._under_way[caller] = None
        try:
            yield caller
        except asyncio.CancelledError:
            if not caller.is_sent_away:
                raise
            if (uncancel := getattr(caller.task, "uncancel", None)) is not None:
                uncancel()
            raise Refused(_FULL, "others want the place of a call whose client is waited for") from None
        finally:
            del self._under_way[caller]

    async def message(self, caller: Caller, bodies: AsyncIterator[bytes]) -> bytes:
        """The only one of a call; Refused."""
        with self.waits(caller):
            async for body in bodies:
                return body
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")

    @contextlib.contextmanager
    def waits(self, caller: Caller) -> Iterator[None]:
        """For its client, in the meantime."""
        caller.waits_since_s = asyncio.get_running_loop().time()
        yield
        caller.waits_since_s = None

    async def sweep(self) -> None:
        """End what has waited too long, again and again."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now_s = asyncio.get_running_loop().time()
            self._free(len(self._under_way), lambda _: True, self._patience_s)
            waiting = {app: self._waiting(app) for app in {one.app for one in self._under_way} if app}
            waiting = {app: count for app, count in waiting.items() if count}
            self._crowded_since_s = {app: self._crowded_since_s.get(app, now_s) for app in waiting}
            for app, since_s in self._crowded_since_s.items():
                if now_s - since_s >= CROWDED_S:
                    keeping = sum(one.app == app and one.waits_since_s is not None for one in self._under_way)
                    patient_s = patience_s(keeping, waiting[app])
                    self._free(waiting[app], lambda one, app=app: one.app == app, patient_s)  # type: ignore[misc]

    def _free(self, wanted: int, is_meant: Callable[[Caller], bool], waited_s: float) -> int:
        """So many, or fewer, of those that have waited so long give way; how many."""
        before_s = asyncio.get_running_loop().time() - waited_s
        those = [
            (since_s, one.host, one)
            for one in self._under_way
            if (since_s := one.waits_since_s) is not None
            and since_s <= before_s
            and not one.is_sent_away
            and is_meant(one)
        ]
        found = crowds_first(those)[:wanted]
        for one in found:
            one.send_away()
        return len(found)
