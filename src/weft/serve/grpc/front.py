"""The gRPC front's process: an actor that runs a server of grpcio on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import grpc

import weft
from weft.serve import descriptors
from weft.serve.certificates import Certificates
from weft.serve.grpc.calls import Calls
from weft.serve.grpc.options import AddServicer, GRPCOptions
from weft.serve.grpc.services import Services

STOP_S = 5.0
START_S = 30.0
HANDSHAKE_MS = 5_000
"""That a client may take before it speaks gRPC."""
IDLE_MS = 5_000
"""That a connection may have no call; clients connect again by themselves at their next one."""


class GrpcFront:
    """The actor's class. Its methods run on the actor's thread, the server on its own."""

    def __init__(self, controller: Any, options: GRPCOptions) -> None:
        self._controller = controller
        self._options = options
        services = Services(_function(one) for one in options.servicers)
        self._calls = Calls(controller, options, services)
        self.learn()
        self._port = weft.get(controller.port.remote("grpc")) or options.port
        self._failure: BaseException | None = None
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="weft-grpc", daemon=True)
        self._thread.start()
        if not self._is_up.wait(START_S) or self._failure is not None:
            raise OSError(f"gRPC cannot be served at {options.host}:{self._port}: {self._failure}")
        weft.get(controller.port.remote("grpc", self._port))

    def address(self) -> str:
        host = self._options.host
        return f"{f'[{host}]' if ':' in host else host}:{self._port}"

    def pid(self) -> int:
        return os.getpid()

    def learn(self) -> None:
        """Returns when all applications that run now are known."""
        self._calls.take(*weft.get(self._controller.listen_applications.remote(-1)))

    def stop(self) -> None:
        """Finish what is under way, then close the port."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(2 * STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._failure = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        options = self._options
        descriptors.allowed()
        server = grpc.aio.server(
            handlers=(self._calls,),
            options=(
                ("grpc.max_receive_message_length", options.max_message_bytes),
                ("grpc.max_send_message_length", options.max_message_bytes),
                ("grpc.so_reuseport", 0),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
                ("grpc.max_connection_idle_ms", IDLE_MS),
            ),
        )
        where = f"{options.host}:{self._port}"
        if options.ssl_certfile:
            self._port = server.add_secure_port(where, _credentials(options))
        else:
            self._port = server.add_insecure_port(where)
        await server.start()
        loop = self._loop
        running = [loop.create_task(self._calls.listen()), loop.create_task(self._calls.callers.sweep())]
        self._is_up.set()
        try:
            await self._stopping.wait()
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await server.stop(STOP_S)


def _function(named: AddServicer | str) -> AddServicer:
    if not isinstance(named, str):
        return named
    from weft.serve.cli import load

    found: AddServicer = load(named)
    return found


def _credentials(options: GRPCOptions) -> Any:
    """gRPC asks for them again at every connection, on a thread of its own; None: they are the same."""
    files = Certificates(options.ssl_certfile, options.ssl_keyfile, options.ssl_ca_certs)

    def current() -> Any:
        return None if files.renewed() is None else _configuration(options)

    return grpc.dynamic_ssl_server_credentials(_configuration(options), current, bool(options.ssl_ca_certs))


def _configuration(options: GRPCOptions) -> Any:
    key, certificate = Path(options.ssl_keyfile).read_bytes(), Path(options.ssl_certfile).read_bytes()
    authorities = Path(options.ssl_ca_certs).read_bytes() if options.ssl_ca_certs else None
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)
