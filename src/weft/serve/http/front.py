"""The HTTP front's process: an actor that runs uvicorn's server on a thread of its own, with `HttpProtocol` in it."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
import threading
import time
from functools import partial
from typing import Any

import uvicorn

import weft
from weft.serve import descriptors
from weft.serve.certificates import Certificates
from weft.serve.http.app import HttpApp
from weft.serve.http.bounds import accept_encrypted
from weft.serve.http.messages import HTTPOptions
from weft.serve.http.protocol import HttpProtocol
from weft.util import get_node_ip_address

STOP_S = 10.0
BACKLOG = 2048
ALPN = ("h2", "http/1.1")


class Server(uvicorn.Server):
    """Tells the app when its loop runs."""

    def __init__(self, config: uvicorn.Config, app: HttpApp) -> None:
        super().__init__(config)
        self._serve_app = app
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        app, options = self._serve_app, self._serve_app.options
        app.start(self.server_state)
        if self.config.ssl is None:
            await super().startup(sockets)
            return
        self.config.ssl.set_alpn_protocols(ALPN)
        certificates = Certificates(options.ssl_certfile, options.ssl_keyfile, options.ssl_ca_certs)
        app.look_at_certificates = partial(self._take_over, certificates)
        await super().startup([])
        made = partial(HttpProtocol, app, self.config, self.server_state, self.lifespan.state)
        connections = self.server_state.connections
        self._accepting = [
            app.spawn(accept_encrypted(app, one, self.config, made, connections)) for one in sockets or ()
        ]

    def _take_over(self, certificates: Certificates) -> None:
        """Connections that come from now on are shown the certificate, and judged by the authorities, that lie in the
        files now."""
        if (renewed := certificates.renewed()) is not None:
            renewed.set_alpn_protocols(ALPN)
            self.config.ssl = renewed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in self._accepting:
            one.cancel()
        await super().shutdown(sockets)


class HttpFront:
    """The actor's class. Its methods run on the actor's thread, the server on its own."""

    def __init__(self, controller: Any, options: HTTPOptions) -> None:
        self._controller = controller
        self._app = HttpApp(controller, options)
        self._app.most_connections = min(options.max_connections, descriptors.allowed() * 3 // 4)
        self.learn()
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.workers > 1 or options.location == "every_node":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port = weft.get(controller.port.remote("http")) or options.port
        try:
            self._socket.bind((options.host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise OSError(f"HTTP cannot be served at {options.host}:{port}: {error}") from None
        weft.get(controller.port.remote("http", self._socket.getsockname()[1]))
        config = uvicorn.Config(
            self._app.__call__,
            http=partial(HttpProtocol, self._app),  # type: ignore[arg-type]
            interface="asgi3",
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws_max_size=options.max_body_bytes,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(options.drain_timeout_s),
            ssl_certfile=options.ssl_certfile or None,
            ssl_keyfile=options.ssl_keyfile or None,
            ssl_ca_certs=options.ssl_ca_certs or None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if options.ssl_ca_certs else ssl.CERT_NONE,
        )
        config.load()  # here, so that a certificate that cannot be read is told to who starts the front
        self._server = Server(config, self._app)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="weft-http", daemon=True
        )
        self._thread.start()

    def address(self) -> str:
        """Connections are taken already."""
        host, port = self._socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = get_node_ip_address()
        return f"{self._app.options.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def pid(self) -> int:
        return os.getpid()

    def learn(self) -> None:
        """Returns when all applications that run now are known."""
        self._app.take(*weft.get(self._controller.listen_routes.remote(-1)))

    def stop(self) -> None:
        """Say that it ends, finish what is under way, then close the port."""
        self._app.is_draining = True
        time.sleep(self._app.options.drain_delay_s)
        self._server.should_exit = True
        self._thread.join(self._app.options.drain_timeout_s + STOP_S)
        self._app.close()
