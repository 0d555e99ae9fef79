"""Answers clients such as grpcurl, which ask a gRPC front for its services, methods and messages. On its loop.

Their streams count among the calls under way like all others, and give way to them: none of them needs a replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from weft.serve.grpc.callers import Caller, Callers
from weft.serve.grpc.talks import Refused

PATH = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
MOST_BYTES = 64 * 1024
"""That a stream may ask with: some thousand names."""
_CODE = grpc.StatusCode


class Reflection:
    def __init__(self, services: Iterable[str], callers: Callers) -> None:
        self._servicer = reflection.aio.ReflectionServicer((*sorted(services), reflection.SERVICE_NAME))
        self._callers = callers

    def handler(self) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._answer)

    async def _answer(self, bodies: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        try:
            with self._callers.arrival(context) as caller, self._callers.waits(caller):
                async for answer in self._servicer.ServerReflectionInfo(_questions(bodies, caller), context):
                    yield answer.SerializeToString()
        except Refused as refused:
            await context.abort(refused.code, refused.reason)


async def _questions(bodies: AsyncIterator[bytes], caller: Caller) -> AsyncIterator[Any]:
    left = MOST_BYTES
    async for body in bodies:
        caller.waits_since_s = asyncio.get_running_loop().time()
        left -= len(body) + 1
        if left < 0:
            raise Refused(_CODE.RESOURCE_EXHAUSTED, f"a stream may ask with at most {MOST_BYTES} bytes")
        try:
            yield reflection_pb2.ServerReflectionRequest.FromString(body)
        except Exception:  # protobuf has several
            raise Refused(_CODE.INVALID_ARGUMENT, "the message is no question about services") from None
