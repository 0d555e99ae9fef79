"""A call whose client streams its messages: they go to the replica's inbox while its answers come back.

Runs on the gRPC server's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from weft.serve.grpc.services import Method
from weft.serve.handle import DeploymentResponseGenerator
from weft.serve.inboxes import LEFT

if TYPE_CHECKING:
    from weft.serve.grpc.callers import Caller


class Refused(Exception):
    """The call ends with this status."""

    def __init__(self, code: Any, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def decoded(method: Method, body: bytes) -> Any:
    """The message; Refused."""
    try:
        return method.decode(body)
    except Exception:
        code = grpc.StatusCode.INVALID_ARGUMENT
        raise Refused(code, f"the message is not what {method.name} takes") from None


class Talk:
    """Gives the answers, once it has begun. TimeoutError when neither side says anything for so long."""

    def __init__(self, items: DeploymentResponseGenerator, inbox: str, patience_s: float, caller: Caller) -> None:
        self._items = items
        self._inbox = inbox
        self._patience_s = patience_s
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._carrying: asyncio.Task[None] | None = None
        self._step: asyncio.Future[Any] | None = None
        self._has_ended = False

    async def begin(self, method: Method, bodies: AsyncIterator[bytes]) -> None:
        """Returns when a replica has taken the call; then the client is read."""
        await asyncio.wait_for(self._items.taken(), self._patience_s)
        self._carrying = self._loop.create_task(self._carry(method, bodies))
        self._hear()

    def _hear(self) -> None:
        """One side has said something."""
        self._heard_s = self._loop.time()
        if self._carrying is not None and not self._carrying.done():
            self._caller.waits_since_s = self._heard_s

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self._hear()
        self._step = step = asyncio.ensure_future(self._items.__anext__())
        assert self._carrying is not None
        while not step.done():
            awaited = {step, self._carrying}
            if self._carrying.done():
                self._carrying.result()  # raises what was wrong with a message
                awaited = {step}
            left_s = self._heard_s + self._patience_s - self._loop.time()
            if left_s <= 0:
                raise asyncio.TimeoutError
            await asyncio.wait(awaited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        try:
            return step.result()
        except StopAsyncIteration:
            self._has_ended = True
            raise

    async def _carry(self, method: Method, bodies: AsyncIterator[bytes]) -> None:
        """No faster than they are read; what comes after the deployment has answered is dropped."""
        async for body in bodies:
            self._hear()
            if not await self._items.deliver(self._inbox, (decoded(method, body), True)):
                return
        self._caller.waits_since_s = None
        await self._items.deliver(self._inbox, (None, False))

    async def end(self) -> None:
        """Whatever has happened: the deployment's code is ended, if it has not."""
        running = [one for one in (self._carrying, self._step) if one is not None]
        for one in running:
            one.cancel()  # first: to who carries, a client that left looks like one that has sent all
        if not self._has_ended:
            await self._items.deliver(self._inbox, LEFT)
        await asyncio.gather(*running, return_exceptions=True)
        await self._items.aclose()
