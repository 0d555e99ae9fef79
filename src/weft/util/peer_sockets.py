"""Connections between processes that share a secret: how libraries move bytes around the object store.

A connection is a socket on which both ends have proved that they have the secret. Between processes of one user on one
machine it is a local one, plain and with a descriptor that native code may use; else it is encrypted (`ssl.SSLSocket`),
and the proof covers the certificate, so nobody sits in between. On a fabric that is trusted, the encryption can be left
out: then whoever can change what passes on the network can change what is exchanged.
"""

from __future__ import annotations

import hashlib
import select
import socket
import ssl
import time

from weft.engine.wire import endpoint
from weft.engine.wire.auth import Handshake, Refused
from weft.engine.wire.tls import connecting_context

__all__ = ["PeerEndpoint", "connect"]

_PLAIN_BINDING = b"plain"
_READ_BYTES = 4096


class PeerEndpoint:
    """Where a process is connected to."""

    def __init__(self, host: str, encrypt: bool = True) -> None:
        self._endpoint = endpoint.Endpoint(host, 0)
        self._encrypt = encrypt
        self.port = int(self._endpoint.address.rpartition(":")[2])

    def __enter__(self) -> PeerEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._endpoint.close()

    def accept(self, timeout_s: float) -> socket.socket | None:
        """Somebody, who has proved nothing yet; None when nobody comes."""
        ready, _, _ = select.select(self._endpoint.listeners(), [], [], max(0.0, timeout_s))
        return self._endpoint.accept(ready[0]) if ready else None

    def prove(self, connection: socket.socket, secret: bytes, timeout_s: float) -> socket.socket:
        """The connection to use from now on. OSError, and it is closed, where the other end has not the secret."""
        is_plain = connection.family == socket.AF_UNIX or not self._encrypt
        context = None if is_plain else self._endpoint.certificate.context
        digest = b"" if is_plain else self._endpoint.certificate.digest
        return _prove(connection, secret, time.monotonic() + timeout_s, True, context, digest)


def connect(host: str, port: int, secret: bytes, timeout_s: float, encrypt: bool = True) -> socket.socket:
    """To a `PeerEndpoint`. OSError where there is none, or it has not the secret."""
    deadline = time.monotonic() + timeout_s
    local = endpoint.connect_locally(f"{host}:{port}")
    connection = socket.create_connection((host, port), timeout_s) if local is None else local
    context = None
    if local is None and encrypt:
        context = connecting_context()
    return _prove(connection, secret, deadline, False, context, b"")


def _prove(
    connection: socket.socket,
    secret: bytes,
    deadline: float,
    accepts: bool,
    context: ssl.SSLContext | None,
    digest: bytes,
) -> socket.socket:
    try:
        binding = endpoint.LOCAL_BINDING if connection.family == socket.AF_UNIX else _PLAIN_BINDING
        if context is not None:
            # The kernel bounds each read and write by what is left in all.
            connection.settimeout(_left(deadline))
            connection = context.wrap_socket(connection, server_side=accepts)
            binding = digest
            if not accepts:
                binding = hashlib.sha256(connection.getpeercert(binary_form=True) or b"").digest()
        handshake = Handshake(secret, accepts, binding)
        while True:
            connection.settimeout(_left(deadline))
            if out := handshake.take_output():
                connection.sendall(out)
            if handshake.is_done:
                return connection
            # No more than the handshake, whose sizes are known: what follows is for who uses the connection.
            if not (data := connection.recv(min(_READ_BYTES, handshake.wanted))):
                raise ConnectionError("the other end closed the connection")
            handshake.feed(data)
    except Refused as error:
        connection.close()
        raise ConnectionError(str(error)) from None
    except BaseException:
        connection.close()
        raise


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the other end did not prove in time that it has the secret")
    return left
