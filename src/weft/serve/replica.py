"""One replica: an async actor around the user's code. It takes a request at once or refuses it at once.

1. REP-1: at most `max_ongoing_requests` are under way; what is refused has not begun, so its caller may ask another.
2. REP-2: once it drains it takes nothing new; `drain` returns when nothing is under way.

Every answer carries how many requests are under way here, from all callers: that is what callers choose by.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import weft
from weft import cloudpickle
from weft.actor import exit_actor
from weft.serve.bundles import REFUSED, TAKEN, Bundles
from weft.serve.config import DeploymentConfig
from weft.serve.context import ReplicaContext, RequestContext, replica_context, request_context
from weft.serve.http.messages import GO_ON
from weft.serve.latencies import Figures, Latencies
from weft.serve.user_code import UserCode

Answer = tuple[int, int, Any]
"""(TAKEN or REFUSED, requests under way, value)"""


class Replica:
    """The actor's class."""

    def __init__(self, identity: ReplicaContext) -> None:
        self._identity = identity
        self._code = UserCode(identity.deployment)
        self._code.hold, self._code.release = self._hold, self._release
        self._limit = 1
        self._ongoing = 0
        self._is_ready = False
        self._is_draining = False
        self._bundles: dict[str, Bundles] = {}
        """By caller."""
        self._latencies = Latencies()
        self._changed: asyncio.Event | None = None
        """Set, and forgotten, when a request has ended; made by whoever waits for that."""

    async def construct(self, code: bytes, config: DeploymentConfig) -> str:
        """The user's constructor; a call of its own so that what it raises comes back whole. The node that it is on.

        The code comes pickled, so that nothing but the replica loads it."""
        replica_context.set(self._identity)
        self._limit = config.max_ongoing_requests
        target, args, kwargs = cloudpickle.loads(code)
        await self._code.construct(target, args, kwargs)
        await self._code.reconfigure(config.user_config)
        self._is_ready = True
        return _own_node()

    async def is_ready(self) -> str:
        """The node that it is on once `construct` has succeeded, nothing before."""
        return _own_node() if self._is_ready else ""

    async def reconfigure(self, config: DeploymentConfig) -> None:
        replica_context.set(self._identity)
        self._limit = config.max_ongoing_requests
        self._wake()
        await self._code.reconfigure(config.user_config)

    async def answer(self, context: RequestContext, method: str, args: Any, kwargs: Any) -> Answer:
        if self._is_draining or self._ongoing >= self._limit:
            return REFUSED, self._ongoing, None
        began_s = self._begin(context)
        try:
            found = self._code.async_method(method)
            if found is not None:
                value = await found(*args, **kwargs)
            else:
                value = await self._code.call(method, args, kwargs)
        finally:
            self._end(began_s)
        return TAKEN, self._ongoing, value

    async def exchange(self, caller: str, packed: bytes) -> bytes:
        """`answer` for many requests together. Their arguments and values are plain."""
        bundles = self._bundles.get(caller)
        if bundles is None:
            bundles = self._bundles[caller] = Bundles(self.answer, lambda: self._ongoing)
        return await bundles.exchange(packed)

    async def give_up(self, caller: str, number: int) -> None:
        """Cancel a request that came in a bundle."""
        if caller in self._bundles:
            self._bundles[caller].give_up(number)

    async def deliver(self, inbox: str, message: Any) -> bool:
        """Something more for a request that is under way here; False if it is not, or reads no more."""
        return await self._code.inboxes.deliver(inbox, message)

    async def stream(self, context: RequestContext, method: str, args: Any, kwargs: Any) -> AsyncIterator[Answer]:
        """First whether the request is taken, then the items."""
        if method != GO_ON and (self._is_draining or self._ongoing >= self._limit):
            yield REFUSED, self._ongoing, None
            return
        began_s = self._begin(context)
        try:
            yield TAKEN, self._ongoing, None
            items = self._code.stream(method, args, kwargs)
            try:
                async for item in items:
                    yield TAKEN, self._ongoing, item
            finally:
                await items.aclose()  # type: ignore[attr-defined]
        finally:
            self._end(began_s)

    async def room(self) -> int:
        """Returns once a request would be taken, or never will be; how many are under way."""
        while not self._is_draining and self._ongoing >= self._limit:
            await self._change()
        return self._ongoing

    async def check_health(self) -> int:
        """Raises what the user's check raises; else how many requests are under way."""
        await self._code.check_health()
        return self._ongoing

    async def load(self) -> int:
        return self._ongoing

    async def figures(self) -> Figures:
        """Of the requests that it has answered."""
        return self._latencies.figures()

    async def drain(self) -> None:
        self._is_draining = True
        self._wake()
        while self._ongoing:
            await self._change()
        for bundles in self._bundles.values():
            bundles.close()
        await self._code.close()

    async def leave(self) -> None:
        """End the process once every answer has left it."""
        exit_actor()

    def _begin(self, context: RequestContext) -> float:
        self._ongoing += 1
        request_context.set(context)
        replica_context.set(self._identity)
        return time.perf_counter()

    def _end(self, began_s: float) -> None:
        self._ongoing -= 1
        self._latencies.add(time.perf_counter() - began_s)
        self._wake()

    def _hold(self) -> None:
        self._ongoing += 1

    def _release(self) -> None:
        self._ongoing -= 1
        self._wake()

    async def _change(self) -> None:
        """Returns when a request has ended, or the limit is another."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _own_node() -> str:
    return weft.get_runtime_context().get_node_id()


def make(identity: ReplicaContext, config: DeploymentConfig, name: str, namespace: str) -> Any:
    """A new replica's actor; its user code is not there before `construct` has returned."""
    spare = 1000
    options = {"max_concurrency": config.max_ongoing_requests + spare, "max_restarts": 0, **config.actor_options}
    named = {"name": name, "namespace": namespace, "lifetime": "detached"}
    return weft.remote(Replica).options(**options, **named).remote(identity)
