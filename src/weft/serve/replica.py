"""One replica: an async actor around the user's code. It takes a request at once or refuses it at once.

1. REP-1: at most `max_ongoing_requests` are under way; what is refused has not begun, so its caller may ask another.
2. REP-2: once it drains it takes nothing new; `drain` returns when nothing is under way.

Every answer carries how many requests are under way here, from all callers: that is what callers choose by.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import weft
from weft import cloudpickle
from weft.actor import exit_actor
from weft.serve.bundles import REFUSED, TAKEN, Bundles
from weft.serve.callers import Begun, UnderWay
from weft.serve.config import DeploymentConfig
from weft.serve.context import (
    NO_CONTEXT,
    ReplicaContext,
    RequestContext,
    calls_of_request,
    replica_context,
    request_context,
)
from weft.serve.errors import DeadlineExceededError
from weft.serve.http.messages import GO_ON
from weft.serve.latencies import Figures, Latencies
from weft.serve.user_code import UserCode

Answer = tuple[int, int, Any]
"""(TAKEN or REFUSED, requests under way, value)"""


class Replica:
    """The actor's class."""

    def __init__(self, identity: ReplicaContext) -> None:
        if weft.get_runtime_context().was_current_actor_reconstructed:  # it lacks what `construct` did
            raise RuntimeError(f"replica {identity.replica} has ended; the controller starts another")
        self._identity = identity
        self._code = UserCode(identity.deployment)
        self._code.hold, self._code.release = self._hold, self._release
        self._limit = 1
        self._ongoing = 0
        self._is_ready = False
        self._is_draining = False
        self._bundles: dict[str, Bundles] = {}
        """By caller: its process, and a bundler of it."""
        self._under_way = UnderWay()
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

    async def answer(self, caller: str, given: tuple[Any, ...] | None, method: str, args: Any, kwargs: Any) -> Answer:
        """`given` are the fields of the request's context, if it has any: plain values travel faster."""
        if given is None:
            return await self._answer(caller, NO_CONTEXT, method, args, kwargs)
        context = RequestContext(*given)
        if context.deadline_s == math.inf:
            return await self._answer(caller, context, method, args, kwargs)
        with self._within(context.deadline_s):
            return await self._answer(caller, context.arrived(time.monotonic()), method, args, kwargs)

    @contextlib.contextmanager
    def _within(self, left_s: float) -> Iterator[None]:
        """Around what awaits: cancelled when the time is over, and raises that then."""
        task = asyncio.current_task()
        assert task is not None
        is_over = False

        def expire() -> None:
            nonlocal is_over
            is_over = True
            task.cancel()

        timer = asyncio.get_running_loop().call_later(left_s, expire)
        try:
            yield
        except asyncio.CancelledError:
            if not is_over:
                raise
            raise DeadlineExceededError(f"{self._identity.app}:{self._identity.deployment}") from None
        finally:
            timer.cancel()

    async def _answer(self, caller: str, context: RequestContext, method: str, args: Any, kwargs: Any) -> Answer:
        """By its caller, who knows when the time is over."""
        if self._is_draining or self._ongoing >= self._limit:
            return REFUSED, self._ongoing, None
        begun = self._begin(caller, context)
        try:
            found = self._code.async_method(method)
            if found is not None:
                value = await found(*args, **kwargs)
            else:
                value = await self._code.call(method, args, kwargs)
        except asyncio.CancelledError:
            _give_up_calls()
            raise
        except Exception:
            self._latencies.failed += 1
            raise
        finally:
            self._end(begun)
        return TAKEN, self._ongoing, value

    async def exchange(self, caller: str, packed: bytes) -> bytes:
        """`answer` for many requests together. Their arguments and values are plain."""
        bundles = self._bundles.get(caller)
        if bundles is None:
            bundles = self._bundles[caller] = Bundles(partial(self._answer, caller.partition("/")[0]), self._load)
        return await bundles.exchange(packed)

    async def give_up(self, caller: str, number: int) -> None:
        """Cancel a request that came in a bundle."""
        if caller in self._bundles:
            self._bundles[caller].give_up(number)

    async def callers_ended(self, callers: list[str]) -> None:
        """These processes are dead: what is under way for them is for nobody."""
        self._under_way.give_up(callers)
        for name in [one for one in self._bundles if one.partition("/")[0] in callers]:
            self._bundles.pop(name).close()

    async def deliver(self, inbox: str, message: Any) -> bool:
        """Something more for a request that is under way here; False if it is not, or reads no more."""
        return await self._code.inboxes.deliver(inbox, message)

    async def stream(
        self, caller: str, context: RequestContext, method: str, args: Any, kwargs: Any
    ) -> AsyncIterator[Answer]:
        """First whether the request is taken, then the items."""
        if method != GO_ON and (self._is_draining or self._ongoing >= self._limit):
            yield REFUSED, self._ongoing, None
            return
        context = context.arrived(time.monotonic())
        begun = self._begin(caller, context)
        has_ended = False
        try:
            yield TAKEN, self._ongoing, None
            items = self._code.stream(method, args, kwargs)
            try:
                async for item in items if context.deadline_s == math.inf else self._in_time(items, context):
                    yield TAKEN, self._ongoing, item
                has_ended = True
            finally:
                await items.aclose()  # type: ignore[attr-defined]
        finally:
            if not has_ended:
                _give_up_calls()
            self._end(begun)

    async def _in_time(self, items: AsyncIterator[Any], context: RequestContext) -> AsyncIterator[Any]:
        while True:
            with self._within(context.deadline_s - time.monotonic()):
                try:
                    item = await items.__anext__()
                except StopAsyncIteration:
                    return
            yield item

    async def room(self) -> int:
        """Returns once a request would be taken, or never will be; how many are under way."""
        while not self._is_draining and self._ongoing >= self._limit:
            await self._change()
        return self._ongoing

    async def check_health(self) -> tuple[int, int, float | None, list[str]]:
        """Raises what the user's check raises; else how many requests are under way, how many were answered, what the
        last of them took, and who has asked for those that last."""
        await self._code.check_health()
        lasting = self._under_way.lasting(time.perf_counter())
        return self._ongoing, self._latencies.served, self._latencies.recent_s(), lasting

    async def load(self) -> int:
        return self._ongoing

    def _load(self) -> int:
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

    def _begin(self, caller: str, context: RequestContext) -> Begun:
        self._ongoing += 1
        request_context.set(context)
        replica_context.set(self._identity)
        calls_of_request.set([])
        return self._under_way.begin(caller, time.perf_counter())

    def _end(self, begun: Begun) -> None:
        self._ongoing -= 1
        self._under_way.end(begun)
        self._latencies.add(time.perf_counter() - begun.began_s)
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


def _give_up_calls() -> None:
    """Those of the request that is answered now: nobody waits for it any more."""
    for call in calls_of_request.get() or ():
        call.give_up()


def _own_node() -> str:
    return weft.get_runtime_context().get_node_id()


def make(identity: ReplicaContext, config: DeploymentConfig, name: str, namespace: str, place: Any = None) -> Any:
    """A new replica's actor; its user code is not there before `construct` has returned. `place`: a strategy."""
    spare = 1000
    options = {"max_concurrency": config.max_ongoing_requests + spare, "max_restarts": 0, **config.actor_options}
    if place is not None:
        options["scheduling_strategy"] = place
    named = {"name": name, "namespace": namespace, "lifetime": "detached"}
    return weft.remote(Replica).options(**options, **named).remote(identity)
