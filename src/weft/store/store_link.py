"""What is said over one connection of the control store (`wire.connection`): frames of one message each.

A frame is a u32 of its bytes and the message. Whatever is wrong with what comes ends the link, with a reason. What is
sent goes out with `flush`. Runs in the loop's thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable

from weft.net.auth import Refused
from weft.net.connection import HANDSHAKE_S, Connection, ConnectionUser
from weft.net.loop import Loop
from weft.net.tls import TlsSession
from weft.store.state.chain_messages import AnyMessage, decode, encode

LARGEST_FRAME = 256 << 20
CONNECT_S = 3.0
"""For the handshake of who connects, and tries again: the kernel asks a machine again only after twice as long."""
_LENGTH = struct.Struct("<I")
_SOCKET_BYTES = 1 << 20


class StoreLink(ConnectionUser):
    """From the connected (or connecting) socket to its end."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        accepts: bool,
        on_ready: Callable[[StoreLink], None],
        on_messages: Callable[[StoreLink, list[AnyMessage]], None],
        on_closed: Callable[[StoreLink, str, int], None],
        error: int = 0,
        tls: TlsSession | None = None,
    ) -> None:
        """`error`: with which connecting has failed already. `on_closed` hears the reason, for a person,
        and the error number: ECONNREFUSED where the other machine says that nobody listens there."""
        self._on_ready = on_ready
        self._on_messages = on_messages
        self._on_closed = on_closed
        self._out = bytearray()
        """What `flush` hands on."""
        self._in = bytearray()
        self.is_closed = False
        self.peer = ""
        """The name that the other side has given."""
        self.dialled = ""
        """The name of the server that was meant, when this side has connected."""
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
        within_s = HANDSHAKE_S if accepts else CONNECT_S
        self.connection = Connection(loop, connection, token, accepts, self, tls, handshake_s=within_s)
        if error:
            self.connection.fail(OSError(error, os.strerror(error)))

    def beat(self, message: AnyMessage, most: int) -> None:
        """To be called now and then: says this, or gives up when nothing came so many times in a row."""
        if self.connection.beat() >= most:
            self.close(f"nothing was heard {most} times in a row", errno.ETIMEDOUT)
        else:
            self.send(message)
            self.flush()

    def send(self, message: AnyMessage) -> None:
        body = encode(message)
        self._out += _LENGTH.pack(len(body))
        self._out += body

    def flush(self) -> None:
        """What has been sent goes out as far as the socket takes it; the rest follows by itself."""
        if self._out and not self.is_closed:
            self.connection.put(self._out)
            self._out = bytearray()
            self.connection.flush()

    def close(self, reason: str = "", code: int = 0) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.connection.close()
            self._on_closed(self, reason, code)

    # ---- of the connection ----

    def proved(self) -> None:
        self._on_ready(self)

    def ended(self, error: Exception) -> None:
        if isinstance(error, EOFError):
            self.close("the other side closed the connection", errno.ECONNRESET)
        elif isinstance(error, OSError):
            self.close(error.strerror or str(error), error.errno or 0)
        elif isinstance(error, Refused):
            self.close(f"refused: {error}")
        else:
            self.close(f"what came makes no sense: {error}")

    def came(self, data: bytes) -> None:
        self._in += data
        messages: list[AnyMessage] = []
        at = 0
        while len(self._in) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._in, at)
            if size > LARGEST_FRAME:
                raise ValueError(f"a frame of {size:,} bytes is larger than any of Weft's")
            if len(self._in) - at < _LENGTH.size + size:
                break
            at += _LENGTH.size
            with memoryview(self._in) as view, view[at : at + size] as body:
                messages.append(decode(body))
            at += size
        if at:
            del self._in[:at]
        if messages:
            self._on_messages(self, messages)
