"""What the front does with each request: find the application, send it to a replica, write what comes back.

It decodes nothing: a body that cannot be read harms no one but its sender, in the replica. Runs on the server's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from weft.serve.bundler import run_on
from weft.serve.context import RequestContext, request_context, sane_request_id
from weft.serve.errors import (
    BackPressureError,
    DeadlineExceededError,
    DeploymentGoneError,
    RequestFailedError,
    ServeError,
)
from weft.serve.handle import DeploymentHandle, DeploymentResponseGenerator
from weft.serve.http import sockets
from weft.serve.http.access_log import LEFT as CLIENT_LEFT
from weft.serve.http.access_log import AccessLog
from weft.serve.http.bodies import LATE, content_type, refusal
from weft.serve.http.bounds import bound_unread, free_places
from weft.serve.http.exchange import ClientLeft, Exchange
from weft.serve.http.halves import Halves
from weft.serve.http.heads import Heads
from weft.serve.http.messages import (
    APP,
    CALL,
    GO_ON,
    SOCKET,
    STREAM,
    HttpAnswer,
    HttpHead,
    HTTPOptions,
    HttpRequest,
    Kind,
    find_route,
)
from weft.serve.http.traffic import Traffic
from weft.serve.http.upload import Upload
from weft.serve.http.written import BadHead
from weft.serve.inboxes import LEFT
from weft.serve.requests import BundledRequest
from weft.serve.router import Router, router_of

LARGE_BODY_BYTES = 64 * 1024
"""Travels alone: others should not wait until it is copied."""
SWEEP_S = 0.25
_READY = HttpAnswer(200, content_type(b"text/plain"), b"ready")


@dataclass
class Route:
    """An application as the front calls it."""

    prefix: str
    kind: Kind
    handle: DeploymentHandle
    router: Router
    crowded_since_s: float | None = None
    """Since when requests wait for a replica."""

    @property
    def root_path(self) -> str:
        return "" if self.prefix == "/" else self.prefix

    def current_router(self) -> Router:
        if self.router.is_over:
            self.router = router_of(self.handle._controller, self.handle._key)
        return self.router


class HttpCall(BundledRequest):
    """The request of an exchange whose answer comes whole."""

    __slots__ = ("_app", "_exchange")

    def __init__(
        self, app: HttpApp, exchange: Exchange, loop: asyncio.AbstractEventLoop, context: RequestContext
    ) -> None:
        super().__init__(loop, context, CALL, (exchange.head.fields, exchange.body))
        self._app = app
        self._exchange = exchange

    def end(self, value: Any, error: BaseException | None) -> None:
        if error is None:  # from its bundle, on the loop
            self._exchange.respond(value)
        else:
            self._app.fail_from_anywhere(self._exchange, error)


class AppCall(BundledRequest):
    """The request of an exchange that an ASGI app answers, perhaps in pieces."""

    __slots__ = ("_app", "_exchange", "_inbox", "_route")

    def __init__(
        self, app: HttpApp, exchange: Exchange, route: Route, loop: asyncio.AbstractEventLoop, context: RequestContext
    ) -> None:
        inbox = app.new_id()  # not the request's, which its client may have chosen
        super().__init__(loop, context, APP, (_fields(exchange, route, inbox),))
        self._app = app
        self._exchange = exchange
        self._route = route
        self._inbox = inbox

    def end(self, value: Any, error: BaseException | None) -> None:
        if error is not None:
            self._app.fail_from_anywhere(self._exchange, error)
        elif value[2] is not None:
            self._exchange.respond(value)
        elif self._exchange.is_over:
            self.peer.actor.deliver.remote(self._inbox, LEFT)
        else:
            request = self._route.router.stream_on(self.peer, self.context, GO_ON, (self._inbox,))
            self._app.write_pieces(self._exchange, DeploymentResponseGenerator(request), self._inbox)


class HttpApp:
    """One a front."""

    def __init__(self, controller: Any, options: HTTPOptions) -> None:
        self._controller = controller
        self.options = options
        self.most_connections = options.max_connections
        """Fewer where the process may not have so many descriptors."""
        self.now_s = 0.0
        """The loop's time, as of the last sweep."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._routes: dict[str, Route] = {}
        self._revision = -1
        self._under_way: dict[Exchange, None] = {}
        """The one whose deadline comes first is first."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._halves = Halves()
        self.half_streams = 0
        """Requests of HTTP/2 that have not come whole."""
        self._id_prefix = os.urandom(8).hex()
        self._numbers = itertools.count(1)
        self._traffic = Traffic()
        self._access_log = AccessLog(options.access_log) if options.access_log else None
        self.heads = Heads()
        self.is_draining = False
        """Whether it is about to end: answered as ever, but balancers shall send nothing more."""
        self.look_at_certificates: Callable[[], None] | None = None
        """If the front speaks TLS."""
        self.default_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.date_line = b""
        """A header, as of the last sweep."""

    def start(self, server_state: Any) -> None:
        """On the loop, before the first connection."""
        self._loop = asyncio.get_running_loop()
        self._tell_time(server_state)
        self.spawn(self._listen())
        self.spawn(self._sweep(server_state))

    # ---- requests ------------------------------------------------------------------------------------------

    def begin(self, exchange: Exchange) -> None:
        """Have a request answered, now or later."""
        head = exchange.head
        exchange.request_id, model, session = self._identify(head.noted)
        path = head.path
        found = None if path.startswith("/-/") else find_route(self._routes, path)
        if found is None:
            exchange.respond(self._answer_itself(exchange))
            return
        route = found[1]
        exchange.route = route.prefix
        exchange.deadline_s = self.now_s + self.options.request_timeout_s
        self._under_way[exchange] = None
        context = RequestContext(exchange.request_id, model, session_id=session)
        if route.kind is Kind.WHOLE:  # others have as long for each piece of their answer, however many these are
            context = context._replace(deadline_s=exchange.deadline_s)
        if exchange.upload is not None and exchange.upload.lacks:
            self._halves.begin(exchange, route, lambda: self._work(exchange, self._stream(exchange, route, context)))
        elif route.kind is Kind.APP and exchange.upload is None and len(exchange.body) <= LARGE_BODY_BYTES:
            assert self._loop is not None
            self._submit(exchange, route, AppCall(self, exchange, route, self._loop, context))
        elif route.kind is not Kind.WHOLE:
            self._work(exchange, self._stream(exchange, route, context))
        elif len(exchange.body) > LARGE_BODY_BYTES:
            self._work(exchange, self._call_alone(exchange, route, context))
        else:
            assert self._loop is not None
            self._submit(exchange, route, HttpCall(self, exchange, self._loop, context))

    def _identify(self, noted: Mapping[bytes, bytes]) -> tuple[str, str, str]:
        """(request id, model, session)"""
        if not noted:
            return self.new_id(), "", ""
        given_id = sane_request_id(noted.get(b"x-request-id", b"").decode("latin-1"))
        session = noted.get(b"serve-session-id", b"").decode("latin-1")
        return given_id or self.new_id(), noted.get(b"serve-model-id", b"").decode("latin-1"), session

    def new_id(self) -> str:
        """For a request or an inbox."""
        return f"{self._id_prefix}{next(self._numbers):016x}"

    def reads_pieces(self, exchange: Exchange, is_endless: bool = False) -> bool:
        """Whether the exchange is to begin before its body has come. `is_endless`: its head does not say how long that
        is."""
        head = exchange.head
        if not is_endless and b"transfer-encoding" not in head.noted and head.body_bytes <= LARGE_BODY_BYTES:
            return False
        found = find_route(self._routes, head.path)
        return found is not None and found[1].kind is Kind.APP

    def has_websockets(self, path: str) -> bool:
        found = find_route(self._routes, path)
        return found is not None and found[1].kind is Kind.APP

    def _submit(self, exchange: Exchange, route: Route, request: BundledRequest) -> None:
        exchange.work = request.give_up
        try:
            route.current_router().submit(request)
        except ServeError as error:
            self.fail(exchange, error)

    def fail_from_anywhere(self, exchange: Exchange, error: BaseException) -> None:
        """In any thread."""
        assert self._loop is not None
        run_on(self._loop, partial(self.fail, exchange, error))

    async def _call_alone(self, exchange: Exchange, route: Route, context: RequestContext) -> None:
        request_context.set(context)
        handle = route.handle.options(multiplexed_model_id=context.multiplexed_model_id)
        exchange.respond(await handle.remote(exchange.head.fields, exchange.body))

    async def _stream(self, exchange: Exchange, route: Route, context: RequestContext) -> None:
        """Ends when the items do, or when the client leaves."""
        request_context.set(context)
        handle = route.handle.options(multiplexed_model_id=context.multiplexed_model_id)
        inbox = self.new_id()  # not the request's, which its client may have chosen
        items = handle.remote(_fields(exchange, route, inbox))
        await self._carry(exchange, items, inbox if route.kind is Kind.APP else "")

    def write_pieces(self, exchange: Exchange, items: DeploymentResponseGenerator, inbox: str) -> None:
        """Write what comes, until it ends or the client leaves."""
        self._work(exchange, self._carry(exchange, items, inbox))

    async def _carry(self, exchange: Exchange, items: DeploymentResponseGenerator, inbox: str) -> None:
        """To the client what comes, to the inbox, if there is one, what the client sends and that it has left."""
        uploading = None
        has_ended = False
        try:
            await items.taken()
            if exchange.upload is not None:
                uploading = self.spawn(_carry_body(exchange.upload, items, inbox))
            async for item in items:
                if isinstance(item, HttpHead):
                    exchange.start(item)
                else:
                    exchange.write(item)
                    await exchange.connection.drained()
                self._postpone(exchange)
            has_ended = True
            exchange.finish()
        finally:
            if uploading is not None:
                uploading.cancel()
            if not has_ended and inbox:
                self.spawn(_tell_left(items, inbox))
            else:
                await items.aclose()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI, called for WebSockets only."""
        headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
        request_id, model, session = self._identify(dict(headers))
        found = find_route(self._routes, scope["path"])
        if found is None or found[1].kind is not Kind.APP:
            await sockets.refuse(refusal(404, "no application has a WebSocket at this path"), receive, send)
            return
        route, inbox = found[1], self.new_id()
        request_context.set(RequestContext(request_id, model, session_id=session))
        fields = HttpRequest(
            "GET",
            scope["path"],
            route.root_path,
            scope["query_string"],
            headers,
            b"",
            scope["http_version"],
            "https" if scope["scheme"] == "wss" else "http",
            scope.get("client"),
            scope.get("server"),
            inbox,
        )
        handle = route.handle.options(method_name=SOCKET, multiplexed_model_id=model)
        try:
            await sockets.talk(handle.remote(tuple(fields)), inbox, receive, send)
        except BackPressureError as error:
            await sockets.refuse(self._refusal_for(request_id, error), receive, send)
        except ServeError as error:
            print(f"weft.serve: WebSocket {request_id} broke off: {error!r}")
            await send({"type": "websocket.close", "code": 1011})

    def _work(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Run it for the exchange, which ends with it."""
        task = self.spawn(work)
        task.add_done_callback(partial(self._worked, exchange))
        exchange.work = task.cancel

    def _worked(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(exchange, error)
        self._halves.begin_where_there_is_room()

    def fail(self, exchange: Exchange, error: BaseException) -> None:
        if exchange.is_over:
            return
        if exchange.has_started:
            if not isinstance(error, ClientLeft):
                print(f"weft.serve: the answer to request {exchange.request_id} broke off: {error!r}")
            exchange.abort()
            return
        exchange.respond(self._refusal_for(exchange.request_id, error))

    def _refusal_for(self, request_id: str, error: BaseException) -> HttpAnswer:
        if isinstance(error, BackPressureError):
            retry = ((b"retry-after", str(self.options.retry_after_s).encode()),)
            return refusal(503, "all replicas are busy: try again later", retry)
        if isinstance(error, DeploymentGoneError):
            return refusal(404, "the application is gone")
        if isinstance(error, DeadlineExceededError):
            return refusal(504, LATE)
        if isinstance(error, ServeError) and not isinstance(error, RequestFailedError):
            return refusal(502, "the replica died with the request, which may have run in part")
        print(f"weft.serve: request {request_id} failed: {error!r}")
        if isinstance(error, BadHead):
            return refusal(500, "the deployment's answer is malformed")
        return refusal(500, "the deployment failed with this request; its log says how")

    def exchange_ended(self, exchange: Exchange) -> None:
        """It has its answer, or its client left."""
        self._under_way.pop(exchange, None)
        duration_s = time.perf_counter() - exchange.began_s
        self._traffic.record(exchange.route, exchange.status or CLIENT_LEFT, duration_s)
        if self._access_log is not None:
            self._access_log.write(exchange, duration_s)

    def count_refusal(self, status: int) -> None:
        """A client was refused before it had made a whole request."""
        self._traffic.count("", status)

    def _answer_itself(self, exchange: Exchange) -> HttpAnswer:
        """For the paths that are the front's own."""
        if exchange.path == "/-/healthz":
            return HttpAnswer(200, content_type(b"text/plain"), b"ok")
        if exchange.path == "/-/readyz":
            return refusal(503, "this front is about to end") if self.is_draining else _READY
        if exchange.path == "/-/routes":
            names = {prefix: route.handle.app_name for prefix, route in self._routes.items()}
            return HttpAnswer(200, content_type(b"application/json"), msgspec.json.encode(names))
        if exchange.path == "/-/metrics":
            gauges = [gauge for route in self._routes.values() for gauge in _gauges(route)]
            return HttpAnswer(200, content_type(b"text/plain; version=0.0.4"), self._traffic.text(gauges).encode())
        return refusal(404, "no application has this path")

    # ---- time ----------------------------------------------------------------------------------------------

    async def _sweep(self, server_state: Any) -> None:
        """End what has taken too long, again and again."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._tell_time(server_state)
            while self._under_way and (oldest := next(iter(self._under_way))).deadline_s <= self.now_s:
                self._expire(oldest)
            if self._access_log is not None:
                self._access_log.flush()
            if self.look_at_certificates is not None:
                self.look_at_certificates()
            for connection in list(server_state.connections):
                connection.sweep(self.now_s)
            bound_unread(server_state.connections)
            free_places(self._routes, server_state.connections, self.now_s)
            self._halves.begin_where_there_is_room()

    def _expire(self, exchange: Exchange) -> None:
        self._under_way.pop(exchange, None)
        end: Callable[[], Any] | None = exchange.work
        if exchange.has_started:
            exchange.abort()
        else:
            exchange.respond(refusal(504, LATE))
        if end is not None:
            end()

    def _postpone(self, exchange: Exchange) -> None:
        """A piece of its answer came: the next may take as long again."""
        if self._under_way.pop(exchange, self) is not self:
            exchange.deadline_s = self.now_s + self.options.request_timeout_s
            self._under_way[exchange] = None

    def _tell_time(self, server_state: Any) -> None:
        self.now_s = asyncio.get_running_loop().time()
        self.default_headers = tuple(server_state.default_headers)
        self.date_line = b"".join(b"%b: %b\r\n" % one for one in self.default_headers)

    # ---- routes --------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, dict[str, float]]:
        """From any thread: see `Traffic.summary`."""
        return self._traffic.summary()

    def close(self) -> None:
        """When the server has ended."""
        if self._access_log is not None:
            self._access_log.close()

    def take(self, revision: int, routes: dict[str, tuple[str, str, Kind]]) -> None:
        """From any thread; what is older than what is known is dropped."""
        if revision <= self._revision:
            return
        self._revision = revision
        known = {}
        for prefix, (app, name, kind) in routes.items():
            is_whole = kind is Kind.WHOLE
            handle = DeploymentHandle(self._controller, app, name, CALL if is_whole else STREAM, not is_whole)
            known[prefix] = Route(prefix, kind, handle, router_of(self._controller, handle._key))
        self._routes = known

    async def _listen(self) -> None:
        """Learn which applications there are, until the controller is gone."""
        with contextlib.suppress(Exception):  # of a controller that has ended: the front ends with it
            while True:
                self.take(*await self._controller.listen_routes.remote(self._revision))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _carry_body(upload: Upload, items: DeploymentResponseGenerator, inbox: str) -> None:
    more = True
    while more:
        piece, more = await upload.take()
        if not await items.deliver(inbox, (piece, more)):
            return


async def _tell_left(items: DeploymentResponseGenerator, inbox: str) -> None:
    """Have the app know that its client left, then end its answer."""
    await items.deliver(inbox, LEFT)
    await items.aclose()


def _fields(exchange: Exchange, route: Route, inbox: str) -> tuple[Any, ...]:
    """Those of an `HttpRequest`: plain values travel faster."""
    connection, head = exchange.connection, exchange.head
    return (
        head.method,
        head.path,
        route.root_path,
        head.query,
        head.headers,
        exchange.body,
        head.http_version,
        connection.app.options.scheme,
        connection.client,
        connection.server,
        inbox,
        exchange.upload is not None,
    )


def _gauges(route: Route) -> list[tuple[str, str, float]]:
    router = route.current_router()
    ongoing, replicas = router.ongoing
    return [
        ("weft_serve_waiting", router.key, router.waiting),
        ("weft_serve_ongoing", router.key, ongoing),
        ("weft_serve_replicas", router.key, replicas),
    ]
