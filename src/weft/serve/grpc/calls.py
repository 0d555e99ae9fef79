"""Sends gRPC calls to replicas and their answers back. Runs on the gRPC server's loop.

Messages are decoded here, so that one that cannot be read reaches no replica. What a deployment raises is told to its
log, not to the client; `serve.GrpcError` is what it raises to tell the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import grpc

from weft.serve.context import RequestContext, request_context, sane_request_id
from weft.serve.errors import (
    BackPressureError,
    DeadlineExceededError,
    DeploymentGoneError,
    GrpcError,
    MethodMissingError,
    RequestFailedError,
    ServeError,
)
from weft.serve.grpc import reflected
from weft.serve.grpc.callers import Caller, Callers
from weft.serve.grpc.input import TALK
from weft.serve.grpc.options import GRPCOptions
from weft.serve.grpc.services import HEALTH, SERVING, Method, Services, asked_service
from weft.serve.grpc.talks import Refused, Talk, decoded
from weft.serve.handle import DeploymentHandle
from weft.serve.router import router_of

Code = grpc.StatusCode


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers the methods of all services, for one front."""

    def __init__(self, controller: Any, options: GRPCOptions, services: Services) -> None:
        self._controller = controller
        self._options = options
        self._services = services
        self._known: dict[str, Any] = {HEALTH: grpc.stream_unary_rpc_method_handler(self._check_health)}
        self._ingresses: dict[str, str] = {}
        self.callers = Callers(options.max_concurrent_rpcs, options.request_timeout_s, self._waiting)
        if options.reflection:
            self._known[reflected.PATH] = reflected.Reflection(services.names, self.callers).handler()
        self._revision = -1
        self._id_prefix = os.urandom(8).hex()
        self._numbers = itertools.count(1)

    def take(self, revision: int, ingresses: dict[str, str]) -> None:
        """From any thread: the ingress deployments by application; what is older than what is known is dropped."""
        if revision > self._revision:
            self._revision, self._ingresses = revision, ingresses

    def _waiting(self, app: str) -> int:
        """How many requests of the application wait for a replica."""
        return router_of(self._controller, f"{app}:{self._ingresses[app]}").waiting if app in self._ingresses else 0

    async def listen(self) -> None:
        """Learn which applications there are, until the controller is gone."""
        while True:
            self.take(*await self._controller.listen_applications.remote(self._revision))

    def service(self, details: Any) -> Any:
        """Called by the server for each call. Only methods that exist are remembered."""
        handler = self._known.get(details.method)
        if handler is None and (method := self._services.method(details)) is not None:
            handler = self._known[details.method] = self._handler(method)
        return handler

    def _handler(self, method: Method) -> Any:
        """Registered as one that takes a stream, whichever it is: the server itself would wait for a message without
        end."""

        async def answer(bodies: AsyncIterator[bytes], context: Any) -> bytes:
            try:
                with self.callers.arrival(context) as caller:
                    if not method.takes_stream:
                        return await self._answer(method, await self.callers.message(caller, bodies), context)
                    async with contextlib.aclosing(self._converse(method, bodies, context, caller)) as messages:
                        async for message in messages:
                            return message
                    raise Refused(Code.INTERNAL, "the deployment gave no answer")
            except Refused as refused:
                await context.abort(refused.code, refused.reason)
                raise AssertionError("abort() raises") from None

        async def stream(bodies: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            try:
                with self.callers.arrival(context) as caller:
                    if method.takes_stream:
                        messages = self._converse(method, bodies, context, caller)
                    else:
                        messages = self._stream(method, await self.callers.message(caller, bodies), context, caller)
                    async with contextlib.aclosing(messages):
                        async for message in messages:
                            with self.callers.waits(caller):
                                yield message
            except Refused as refused:
                await context.abort(refused.code, refused.reason)

        if method.gives_stream:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.stream_unary_rpc_method_handler(answer)

    async def _answer(self, method: Method, body: bytes, context: Any) -> bytes:
        handle = self._handle(method, context)
        message = decoded(method, body)
        try:
            value = await handle.options(timeout_s=self._options.request_timeout_s).remote(message)
        except BaseException as error:
            raise self._refusal(method, error) from None
        return self._encoded(method, value)

    async def _stream(self, method: Method, body: bytes, context: Any, caller: Caller) -> AsyncGenerator[bytes, None]:
        handle = self._handle(method, context)
        caller.app = handle.app_name
        message = decoded(method, body)
        with self._errors_as_refusals(method):
            items = handle.options(stream=True).remote(message)
            try:
                await asyncio.wait_for(items.taken(), self._options.request_timeout_s)
                while True:
                    try:
                        item = await asyncio.wait_for(items.__anext__(), self._options.request_timeout_s)
                    except StopAsyncIteration:
                        return
                    yield self._encoded(method, item)
            finally:
                await items.aclose()

    async def _converse(
        self, method: Method, bodies: AsyncIterator[bytes], context: Any, caller: Caller
    ) -> AsyncGenerator[bytes, None]:
        handle = self._handle(method, context)
        caller.app = handle.app_name
        inbox = self._new_id()
        with self._errors_as_refusals(method):
            items = handle.options(method_name=TALK, stream=True).remote(method.name, inbox)
            talk = Talk(items, inbox, self._options.request_timeout_s, caller)
            try:
                await talk.begin(method, bodies)
                async for item in talk:
                    yield self._encoded(method, item)
            finally:
                await talk.end()

    @contextlib.contextmanager
    def _errors_as_refusals(self, method: Method) -> Iterator[None]:
        try:
            yield
        except (GeneratorExit, Refused):
            raise
        except BaseException as error:
            raise self._refusal(method, error) from None

    def _handle(self, method: Method, context: Any) -> DeploymentHandle:
        """The one to call; the request's context is set."""
        given = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        request_id = sane_request_id(given.get("request_id") or given.get("x-request-id") or "") or self._new_id()
        model = given.get("multiplexed_model_id") or given.get("serve-model-id") or ""
        context.set_trailing_metadata((("request_id", request_id),))
        app = self._application(given.get("application", ""))
        left_s = context.time_remaining()
        deadline_s = math.inf if left_s is None else time.monotonic() + left_s
        session = given.get("session_id", "")
        request_context.set(RequestContext(request_id, model, deadline_s, session))
        return DeploymentHandle(self._controller, app, self._ingresses[app], method.name, False, model)

    def _application(self, wanted: str) -> str:
        known = self._ingresses
        if wanted in known:
            return wanted
        if not wanted and len(known) == 1:
            return next(iter(known))
        if wanted:
            raise Refused(Code.NOT_FOUND, "there is no application of this name")
        raise Refused(Code.NOT_FOUND, "name one of the applications in the call's metadata: application")

    def _encoded(self, method: Method, value: Any) -> bytes:
        try:
            return bytes(method.encode(value))
        except Exception as error:
            print(f"weft.serve: {method.name} gave a {type(value).__name__}, which is not its message: {error!r}")
            raise Refused(Code.INTERNAL, "the deployment's answer is malformed") from None

    def _refusal(self, method: Method, error: BaseException) -> BaseException:
        """What to raise for it."""
        if isinstance(error, GrpcError):
            return Refused(Code.__members__.get(error.code, Code.UNKNOWN), error.reason)
        if isinstance(error, asyncio.TimeoutError | DeadlineExceededError):
            return Refused(Code.DEADLINE_EXCEEDED, "the deployment did not answer in time")
        if isinstance(error, MethodMissingError):
            return Refused(Code.UNIMPLEMENTED, f"the application has no method {method.name}")
        if isinstance(error, BackPressureError):
            return Refused(Code.RESOURCE_EXHAUSTED, "all replicas are busy: try again later")
        if isinstance(error, DeploymentGoneError):
            return Refused(Code.NOT_FOUND, "the application is gone")
        if isinstance(error, ServeError) and not isinstance(error, RequestFailedError):
            return Refused(Code.ABORTED, "the replica died with the request, which may have run in part")
        if not isinstance(error, Exception):
            return error
        print(f"weft.serve: request {request_context.get().request_id} of {method.name} failed: {error!r}")
        return Refused(Code.INTERNAL, "the deployment failed with this request; its log says how")

    def _new_id(self) -> str:
        return f"{self._id_prefix}{next(self._numbers):016x}"

    async def _check_health(self, bodies: AsyncIterator[bytes], context: Any) -> bytes:
        try:
            with self.callers.arrival(context) as caller:
                asked = asked_service(await self.callers.message(caller, bodies))
                if asked is None or (asked and asked not in self._services.names):
                    raise Refused(Code.NOT_FOUND, "there is no such service")
        except Refused as refused:
            await context.abort(refused.code, refused.reason)
        return SERVING
