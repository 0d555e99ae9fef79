"""Connections between processes that share a secret: how libraries move bytes around the object store.

A connection is a socket on which both ends have proved that they have the secret. Between processes of one user on one
machine it is a local one, plain and with a descriptor that native code may use; else it is encrypted (`ssl.SSLSocket`),
and the proof covers the certificate, so nobody sits in between. On a fabric that is trusted, the encryption can be left
out: then whoever can change what passes on the network can change what is exchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import select
import socket
import ssl
import threading
import time

from weft.net import endpoint
from weft.net.auth import Handshake, Refused
from weft.net.tls import connecting_context

__all__ = ["Admission", "PeerEndpoint", "connect", "hang_up"]

_PLAIN_BINDING = b"plain"
_READ_BYTES = 4096
_PROOF_S = 10.0
"""So long one who has connected may take to prove the secret."""
_MOST_UNPROVED = 512
_LOOK_S = 0.01
"""So soon one who has proved it on another thread is noticed."""


class PeerEndpoint:
    """Where a process is connected to."""

    def __init__(self, host: str, encrypt: bool = True, port: int = 0) -> None:
        """On any free port, or on one that other processes of this user listen on, too."""
        self._endpoint = endpoint.Endpoint(host, port, is_shared=port > 0)
        self._encrypt = encrypt
        self._lock = threading.Lock()
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
        context, digest = None, b""
        if connection.family != socket.AF_UNIX and self._encrypt:
            with self._lock:  # two threads would make two certificates
                context, digest = self._endpoint.certificate.current()
        return _prove(connection, secret, time.monotonic() + timeout_s, True, context, digest)


class Admission:
    """Who connects to an endpoint and proves the secret, each on a thread of its own: a stranger may be silent."""

    def __init__(self, endpoint: PeerEndpoint, secret: bytes) -> None:
        self._endpoint = endpoint
        self._secret = secret
        self._answers: queue.SimpleQueue[tuple[socket.socket, socket.socket | None]] = queue.SimpleQueue()
        """The second descriptor of a connection, and the connection if it has proved the secret."""
        self._unproved: dict[socket.socket, None] = {}
        """Second descriptors, the oldest first: to hang up on whoever reads from the first."""
        self._is_over = False

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: object) -> None:
        """Who was not taken is hung up on, also if he has proved it."""
        self._is_over = True
        for handle in self._unproved:
            hang_up(handle)
        self._close_proved()

    def wait(self, timeout_s: float) -> socket.socket | None:
        """One who has proved it; None when nobody has for a moment, or for `timeout_s` if that is less. OSError."""
        connection = self._endpoint.accept(min(_LOOK_S, timeout_s))
        if connection is not None:
            if len(self._unproved) >= _MOST_UNPROVED:
                hang_up(oldest := next(iter(self._unproved)))
                del self._unproved[oldest]
            handle = connection.dup()
            self._unproved[handle] = None
            threading.Thread(target=self._prove, args=(connection, handle), daemon=True).start()
        while not self._answers.empty():
            handle, proved = self._answers.get()
            if handle in self._unproved:
                del self._unproved[handle]
                handle.close()
            if proved is not None:
                return proved
        return None

    def _prove(self, connection: socket.socket, handle: socket.socket) -> None:
        proved = None
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: no certificate can be made
            proved = self._endpoint.prove(connection, self._secret, _PROOF_S)
        self._answers.put((handle, proved))
        if self._is_over:
            self._close_proved()

    def _close_proved(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                proved = self._answers.get_nowait()[1]
                if proved is not None:
                    proved.close()


def hang_up(connection: socket.socket) -> None:
    """Also on who waits in it on another thread."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def connect(host: str, port: int, secret: bytes, timeout_s: float, encrypt: bool = True) -> socket.socket:
    """To a `PeerEndpoint`. OSError where there is none; PermissionError where one side has not the secret."""
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
        _shake_hands(connection, Handshake(secret, accepts, binding), deadline)
        return connection
    except BaseException:
        connection.close()
        raise


def _shake_hands(connection: socket.socket, handshake: Handshake, deadline: float) -> None:
    while True:
        connection.settimeout(_left(deadline))
        if out := handshake.take_output():
            connection.sendall(out)
        if handshake.is_done:
            return
        # No more than the handshake, whose sizes are known: what follows is for who uses the connection.
        if not (data := connection.recv(min(_READ_BYTES, handshake.wanted))):
            raise ConnectionError("the other end closed the connection")
        try:
            handshake.feed(data)
        except Refused as error:
            with contextlib.suppress(OSError):
                connection.sendall(handshake.take_output())  # why
            raise PermissionError(str(error)) from None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the other end did not prove in time that it has the secret")
    return left
