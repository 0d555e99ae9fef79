"""One connection of the control store: authenticated, then frames of one message each, without blocking.

A frame is a u32 of its bytes and the message. Nothing is decoded before the handshake of `wire.auth` is over, and
whatever is wrong with what comes ends the link, with a reason. What leaves the machine is encrypted (`wire.tls`),
and the handshake, which runs inside, covers the certificate. What is sent goes out with `flush`. Runs in the loop's
thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable

import msgspec

from weft.engine.node.loop import Loop, Timer
from weft.engine.state.chain_messages import AnyMessage, decode, encode
from weft.engine.wire.auth import Handshake, Refused
from weft.engine.wire.tls import TlsSession, is_loopback

LARGEST_FRAME = 256 << 20
HANDSHAKE_S = 10.0
_LENGTH = struct.Struct("<I")
_READ_BYTES = 256 << 10
_SOCKET_BYTES = 1 << 20


class StoreLink:
    """From the connected (or connecting) socket to its end."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        accepts: bool,
        on_ready: Callable[[StoreLink], None],
        on_messages: Callable[[StoreLink, list[AnyMessage]], None],
        on_closed: Callable[[StoreLink, str, bool], None],
        error: int = 0,
        tls: TlsSession | None = None,
    ) -> None:
        """`on_closed` hears the reason, and whether the other machine says that nobody listens there."""
        self._loop = loop
        self._socket = connection
        self._on_ready = on_ready
        self._on_messages = on_messages
        self._on_closed = on_closed
        self._token = token
        self._accepts = accepts
        self._tls = tls
        self._handshake: Handshake | None = None
        self._is_trusted = False
        self._out = bytearray()
        self._sealed = bytearray()
        """What is to be sent, encrypted."""
        self._in = bytearray()
        self._wants_write = False
        self._is_broken = False
        self.is_closed = False
        self.peer = ""
        """The name that the other side has given."""
        self.dialled = ""
        """The name of the server that was meant, when this side has connected."""
        self.last_heard = loop.now()
        self._deadline: Timer | None = loop.call_later(HANDSHAKE_S, self._too_slow)
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
        loop.watch(connection.fileno(), self._read)
        if error:
            self._broke(OSError(error, os.strerror(error)))
        elif tls is None:
            self._begin_handshake()
        elif not accepts:
            tls.start()
            self._want_write(True)

    def _begin_handshake(self) -> None:
        """By the connection, or inside the encryption once that is open."""
        self._handshake = Handshake(self._token, self._accepts, b"" if self._tls is None else self._tls.binding())
        if not self._accepts:
            self._out += self._handshake.take_output()
            self._want_write(True)

    @property
    def is_ready(self) -> bool:
        return self._is_trusted and not self.is_closed

    def send(self, message: AnyMessage) -> None:
        body = encode(message)
        self._out += _LENGTH.pack(len(body))
        self._out += body

    def flush(self) -> None:
        """What has been sent goes out as far as the socket takes it; the rest follows by itself."""
        if (self._out or self._tls is not None) and not self._wants_write and not self.is_closed:
            self._write()

    def close(self, reason: str = "", is_refused: bool = False) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        if self._deadline is not None:
            self._deadline.cancel()
        self._on_closed(self, reason, is_refused)

    def _too_slow(self) -> None:
        self.close(f"no handshake within {HANDSHAKE_S:g} s")

    def _write(self) -> None:
        out = self._out
        if self._tls is not None:
            self._seal(self._tls)
            out = self._sealed
        try:
            while out:
                del out[: self._socket.send(out)]
        except BlockingIOError:
            self._want_write(True)
            return
        except OSError as error:
            return self._broke(error)
        self._want_write(False)

    def _seal(self, tls: TlsSession) -> None:
        if tls.is_open:
            with memoryview(self._out) as whole:
                for at in range(0, len(whole), _READ_BYTES):
                    tls.encrypt(whole[at : at + _READ_BYTES])
            self._out.clear()
        self._sealed += tls.take_output()

    def _want_write(self, wanted: bool) -> None:
        if wanted != self._wants_write:
            self._wants_write = wanted
            self._loop.want_write(self._socket.fileno(), self._write if wanted else None)

    def _broke(self, error: OSError) -> None:
        self._is_broken = True
        is_refused = error.errno == errno.ECONNREFUSED
        reason = error.strerror or str(error)
        self._loop.call_later(0, lambda: self.close(reason, is_refused))  # not in the middle of what led here

    def _read(self) -> None:
        if self._is_broken:
            return None  # the reason is known, and better than what could be read
        try:
            while not self.is_closed:
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    return self.close("the other side closed the connection")
                self.last_heard = self._loop.now()
                self._in += self._admit(data)
                self._take_messages()
                if len(data) < _READ_BYTES:
                    return None
        except BlockingIOError:
            return None
        except Refused as error:
            self._write()
            self.close(f"refused: {error}")
        except OSError as error:
            self.close(error.strerror or str(error), error.errno == errno.ECONNREFUSED)
        except (ValueError, msgspec.MsgspecError) as error:
            self.close(f"what came makes no sense: {error}")
        return None

    def _admit(self, data: bytes) -> bytes:
        """What came, decrypted, without what belongs to the handshakes."""
        if self._tls is not None:
            try:
                data = self._tls.feed(data)
            finally:
                self._write()
            if self._tls.is_open and self._handshake is None and not self._is_trusted:
                self._begin_handshake()
                self.flush()
        return self._shake(data) if data and not self._is_trusted else data

    def _shake(self, data: bytes) -> bytes:
        assert self._handshake is not None
        handshake = self._handshake
        try:
            rest = handshake.feed(data)
        finally:
            self._out += handshake.take_output()
        if handshake.is_done:
            self._handshake = None
            self._is_trusted = True
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self._on_ready(self)
        self.flush()
        return rest

    def _take_messages(self) -> None:
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


def tls_to(address: str) -> TlsSession | None:
    """To connect there: encrypted unless it is this machine's loopback."""
    return None if is_loopback(address.rpartition(":")[0]) else TlsSession(None)


def dial(address: str) -> tuple[socket.socket, int]:
    """A socket that is connecting to host:port, and the error number where it has failed already."""
    host, _, port = address.rpartition(":")
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    error = connection.connect_ex((host, int(port)))
    return connection, 0 if error == errno.EINPROGRESS else error
