"""The messages that a gRPC client streams to a deployment, and the call that reads them. Runs in the replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from weft.serve.errors import GrpcError
from weft.serve.inboxes import LEFT, Inbox

if TYPE_CHECKING:
    from weft.serve.user_code import UserCode

TALK = "__grpc_talk__"
"""The method of a replica that calls another with a `GrpcInputStream`, and yields what that gives."""


class GrpcInputStream:
    """What an RPC that takes a stream is called with: read it with `async for`, in plain code with `for`.

    It ends when the client has sent its last message. If the client leaves before, reading raises
    `GrpcError("CANCELLED", ...)`, unless gRPC notices the end of its messages sooner than that it left: where half a
    stream must not be taken for a whole one, have the last message say that it is the last."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._loop = asyncio.get_running_loop()
        self._is_exhausted = False

    @property
    def is_exhausted(self) -> bool:
        """Whether the last message was read."""
        return self._is_exhausted

    def is_cancelled(self) -> bool:
        """Whether the client has left."""
        return self._inbox.left.is_set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = (None, False) if self._is_exhausted else await self._inbox.get()
        if message == LEFT:
            raise GrpcError("CANCELLED", "the client left before it had sent its last message")
        value, is_message = message
        if not is_message:
            self._is_exhausted = True
            raise StopAsyncIteration
        return value

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """On the thread of plain code."""
        try:
            return asyncio.run_coroutine_threadsafe(self.__anext__(), self._loop).result()
        except StopAsyncIteration:
            raise StopIteration from None


async def talk(code: UserCode, method: str, inbox_name: str) -> AsyncIterator[Any]:
    """Call the method with the messages that come to the inbox. When nobody wants its answers any more, its stream
    tells it so first: plain code that waits for a message holds the thread on which it would be ended."""
    inbox = code.inboxes.open(inbox_name)
    answers = code.stream(method, (GrpcInputStream(inbox),), {}).__aiter__()
    step: asyncio.Future[Any] | None = None
    try:
        while True:
            step = asyncio.ensure_future(answers.__anext__())
            await asyncio.wait((step,))
            try:
                answer = step.result()
            except StopAsyncIteration:
                return
            yield answer
    finally:
        inbox.left.set()
        code.inboxes.close(inbox_name)
        if step is not None and not step.done():
            step.cancel()
            await asyncio.wait((step,))
        await answers.aclose()  # type: ignore[attr-defined]
