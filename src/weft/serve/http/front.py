"""The HTTP front: an actor that runs uvicorn on a thread of its own and calls deployments by their handles.

It reads a request whole, up to a limit, sends it to a replica over the engine, and writes what comes back. It decodes
nothing: a body that can not be read harms no one but its sender, in the replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import uuid
from typing import Any

import uvicorn

import weft
from weft.serve.context import RequestContext, request_context
from weft.serve.errors import BackPressureError, DeploymentGoneError, ServeError
from weft.serve.handle import DeploymentHandle
from weft.serve.http.bodies import BadRequest, refusal
from weft.serve.http.messages import CALL, STREAM, HttpAnswer, HttpHead, HTTPOptions, HttpRequest, find_route

LONGEST_REQUEST_ID = 128
STOP_S = 30.0
BACKLOG = 2048


class ClientLeft(Exception):
    """There is nobody to answer."""


class HttpFront:
    """The actor's class. Its methods run on the actor's thread, the server on its own."""

    def __init__(self, controller: Any, options: HTTPOptions) -> None:
        self._controller = controller
        self._app = HttpApp(controller, options)
        self.learn()
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((options.host, options.port))
        self._socket.listen(BACKLOG)
        config = uvicorn.Config(
            self._app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=options.keep_alive_s,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="weft-http", daemon=True
        )
        self._thread.start()

    def address(self) -> str:
        """Connections are taken already."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def learn(self) -> None:
        """Returns when all applications that run now are known."""
        self._app.take(*weft.get(self._controller.listen_routes.remote(-1)))

    def stop(self) -> None:
        """Finish what is under way, then close the port."""
        self._server.should_exit = True
        self._thread.join(STOP_S)


class HttpApp:
    """The ASGI app. Runs on the server's loop."""

    def __init__(self, controller: Any, options: HTTPOptions) -> None:
        self._controller = controller
        self._options = options
        self._routes: dict[str, DeploymentHandle] = {}
        self._revision = -1
        self._listening: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id", b""))
        request_context.set(RequestContext(request_id))
        try:
            await self._answer(scope, receive, send, request_id, headers.get(b"serve-model-id", b"").decode("latin-1"))
        except ClientLeft:
            return
        except BadRequest as error:
            extra = ((b"connection", b"close"),) if error.status in (408, 413) else ()
            await _send(send, refusal(error.status, error.reason, extra), request_id)
        except BackPressureError:
            retry = ((b"retry-after", str(self._options.retry_after_s).encode()),)
            await _send(send, refusal(503, "all replicas are busy: try again later", retry), request_id)
        except DeploymentGoneError:
            await _send(send, refusal(404, "the application is gone"), request_id)
        except ServeError:
            await _send(send, refusal(502, "the replica died with the request, which may have run in part"), request_id)
        except asyncio.TimeoutError:
            await _send(send, refusal(504, "the deployment did not answer in time"), request_id)

    async def _answer(self, scope: Any, receive: Any, send: Any, request_id: str, model: str) -> None:
        found = find_route(self._routes, scope["path"])
        if found is None:
            raise BadRequest(404, "no application has this path")
        prefix, handle = found
        if model:
            handle = handle.options(multiplexed_model_id=model)
        body = await asyncio.wait_for(self._body(scope, receive), self._options.body_timeout_s)
        root = "" if prefix == "/" else prefix
        request = HttpRequest(
            scope["method"],
            scope["path"],
            root,
            scope["query_string"],
            tuple(scope["headers"]),
            body,
            scope["http_version"],
            scope["scheme"],
            scope.get("client"),
            scope.get("server"),
        )
        if handle._stream:
            await self._stream(handle.remote(request), receive, send, request_id)
            return
        response = handle.remote(request)
        try:
            answer = await asyncio.wait_for(response, self._options.request_timeout_s)
        except asyncio.TimeoutError:
            response.cancel()
            raise
        await _send(send, answer, request_id)

    async def _stream(self, items: Any, receive: Any, send: Any, request_id: str) -> None:
        """Ends when the items do, or when the client leaves."""
        left = asyncio.get_running_loop().create_task(_until_disconnected(receive))
        has_begun = False
        try:
            while not left.done():
                try:
                    item = await asyncio.wait_for(items.__anext__(), self._options.request_timeout_s)
                except StopAsyncIteration:
                    break
                if isinstance(item, HttpHead):
                    has_begun = True
                    await send(_start(item, request_id))
                else:
                    await send({"type": "http.response.body", "body": item, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except Exception as error:
            if not has_begun:
                raise
            print(f"weft.serve: the stream of request {request_id} broke: {error!r}")
        finally:
            left.cancel()
            await items.aclose()

    async def _body(self, scope: Any, receive: Any) -> bytes:
        limit = self._options.max_body_bytes
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced[:20]) > limit:
            raise BadRequest(413, f"the body must have at most {limit} bytes")
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise BadRequest(413, f"the body must have at most {limit} bytes")
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def take(self, revision: int, routes: dict[str, tuple[str, str, bool]]) -> None:
        """From any thread; what is older than what is known is dropped."""
        if revision > self._revision:
            self._revision = revision
            self._routes = {
                prefix: DeploymentHandle(self._controller, app, name, STREAM if streams else CALL, streams)
                for prefix, (app, name, streams) in routes.items()
            }

    async def _listen(self) -> None:
        """Learn which applications there are, until the controller is gone."""
        with contextlib.suppress(Exception):  # of a controller that has ended: the front ends with it
            while True:
                self.take(*await self._controller.listen_routes.remote(self._revision))


async def _until_disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Any, answer: HttpAnswer, request_id: str) -> None:
    length = (b"content-length", str(len(answer.body)).encode())
    headers = tuple(one for one in answer.headers if one[0] != b"content-length")
    await send(_start(HttpHead(answer.status, (*headers, length)), request_id))
    await send({"type": "http.response.body", "body": answer.body})


def _start(head: HttpHead, request_id: str) -> dict[str, Any]:
    headers = [*head.headers, (b"x-request-id", request_id.encode())]
    return {"type": "http.response.start", "status": head.status, "headers": headers}


def _request_id(given: bytes) -> str:
    """The client's, if it is one that can be logged and sent back."""
    text = given.decode("latin-1")
    is_sane = 0 < len(text) <= LONGEST_REQUEST_ID and text.isascii() and text.isprintable()
    return text if is_sane else uuid.uuid4().hex
