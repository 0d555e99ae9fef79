"""One connection between two processes of Weft: bytes over a socket, proved and encrypted, without blocking.

All that connections have in common, whatever is said over them: TLS unless the socket is local (`endpoint`), the
handshake of `auth` inside it and the time that it may take, what waits to be sent, and how it is noticed that nothing
comes any more (`pulse`). What the bytes mean, and what follows the end, is for who uses it: `link` between node
daemons, `control.link` of the control store. Runs in the loop's thread.

Invariants:
    CON-1  nothing that comes is handed on before the other side has proved the token.
    CON-2  the user is told of the end by the loop, never in a call of his own.
    CON-3  all that the other side sent before the end is handed on before the user is told of the end.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import socket
import struct
import sys

import msgspec

from weft.net import pulse
from weft.net.auth import Handshake, Refused
from weft.net.endpoint import binding_of
from weft.net.loop import Loop, Timer
from weft.net.tls import TlsSession

HANDSHAKE_S = 10.0
READ_BYTES = 256 << 10
_TCP_NOTSENT_LOWAT = 25
_UNSENT_BYTES = 512 << 10
"""The kernel takes no more than this beyond what is on its way, so that a message never waits behind much of an object.
The size of the socket's buffers is left to it: it fits them to the connection."""
_GATHERED = 64
"""Parts in one call at most."""
_ROUNDS = 8
"""Reads in a row before the loop's other descriptors have their turn."""


class ConnectionUser:
    """Who is told what comes over a connection."""

    def proved(self) -> None:
        """The other side has the token."""
        raise NotImplementedError

    def came(self, data: bytes) -> None:
        """ValueError when it makes no sense: the connection is at its end."""
        raise NotImplementedError

    def ended(self, error: Exception) -> None:
        """EOFError: the other side has closed it; OSError: it broke; Refused: one side does not trust the other; else
        what came makes no sense. To be closed now."""
        raise NotImplementedError

    def next_read(self) -> memoryview | int:
        """Where the next bytes of a local connection belong, or how many to read at most."""
        return READ_BYTES

    def filled(self, count: int) -> None:
        """So much of what `next_read` gave."""

    def has_more(self) -> bool:
        """All was sent: put what else there is, and say whether there was something."""
        return False

    def wrote(self) -> None:
        """The socket has taken what it takes."""


class Connection:
    """From the connected (or connecting) socket to its end."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        accepts: bool,
        user: ConnectionUser,
        tls: TlsSession | None = None,
        admits_readers: bool = False,
        handshake_s: float = 0.0,
    ) -> None:
        """`tls`: none over a local socket (`endpoint`). `admits_readers`: the read-only token is enough."""
        self._loop = loop
        self.socket = connection
        self._token = token
        self._accepts = accepts
        self.user = user
        """Another one once a link goes on over this connection."""
        self._tls = tls
        self._admits_readers = admits_readers
        self._handshake: Handshake | None = None
        self.is_trusted = False
        self.is_read_only = False
        """Whether the other side may only ask for what changes nothing (`roles`)."""
        self.has_begun = False
        """Whether anything came."""
        self.is_closed = False
        self._failure: Exception | None = None
        """Why it is about to end."""
        self._out: collections.deque[memoryview] = collections.deque()
        self.out_bytes = 0
        self._raw = memoryview(b"")
        """Encrypted bytes that the socket has not taken."""
        self._is_fleeting = False
        self.is_blocked = False
        """Whether the socket takes nothing now."""
        self._has_heard = True
        """Since the last beat."""
        self._silent_beats = 0
        self._deadline: Timer | None = loop.call_later(handshake_s or HANDSHAKE_S, self._too_slow)
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        pulse.watch(connection)
        loop.watch(connection.fileno(), self._read)
        if not accepts:
            self._begin()

    @property
    def is_strange(self) -> bool:
        """Whether it came over TCP and has proved nothing yet."""
        return self._accepts and self._tls is not None and not self.is_trusted

    @property
    def is_encrypted(self) -> bool:
        """Whether it is TLS whose handshake is over."""
        return self._tls is not None and self._tls.is_open

    def beat(self) -> int:
        """To be called now and then: so many times in a row nothing has come. Beats are counted, not seconds: while
        this process stood still nobody was silent."""
        self._silent_beats = 0 if self._has_heard else self._silent_beats + 1
        self._has_heard = False
        return self._silent_beats

    # ---- out ----

    def put(self, *parts: bytes | bytearray | memoryview, is_fleeting: bool = False) -> None:
        """In line, to go out with `flush`. `is_fleeting`: the last part is copied where it is not sent at once."""
        for part in parts:
            self._out.append(memoryview(part))
            self.out_bytes += len(part)
        self._is_fleeting = is_fleeting

    def flush(self) -> None:
        """As far as the socket takes it; the rest follows by itself."""
        if not self.is_blocked and not self.is_closed:
            self._write()

    def close(self) -> None:
        """Nobody is told."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.unwatch(self.socket.fileno())
        self.socket.close()
        self._out.clear()
        self.out_bytes = 0
        self._raw = memoryview(b"")
        if self._tls is not None:
            self._tls.drop()
        if self._deadline is not None:
            self._deadline.cancel()

    def fail(self, error: Exception) -> None:
        """It ends for that, once the loop goes on: not in the middle of what led here."""
        self._failure = error
        self._loop.call_later(0, functools.partial(self._end, error))

    def _write(self) -> None:
        try:
            while self._raw or self._encrypt() or self._out or self.user.has_more():
                if self._raw:
                    self._raw = self._raw[self.socket.send(self._raw) :]
                elif self._tls is None:
                    self._sent(self.socket.sendmsg(itertools.islice(self._out, _GATHERED)))
            is_blocked = False
        except BlockingIOError:
            is_blocked = True
            if self._is_fleeting and self._out:
                self._out[-1] = memoryview(bytes(self._out[-1]))
                self._is_fleeting = False
        except OSError as error:
            self._failure = self._failure or error
            self._loop.call_later(0, self._read_rest)
            return
        if is_blocked != self.is_blocked:
            self.is_blocked = is_blocked
            self._loop.want_write(self.socket.fileno(), self._write if is_blocked else None)
        self.user.wrote()

    def _sent(self, count: int) -> None:
        self.out_bytes -= count
        while self._out and count >= len(self._out[0]):
            count -= len(self._out.popleft())
        if count:
            self._out[0] = self._out[0][count:]

    def _encrypt(self) -> bool:
        """Whether there is something encrypted to send."""
        if self._tls is None:
            return False
        taken = 0
        while self._out and taken < READ_BYTES:
            part = self._out[0][: READ_BYTES - taken]
            self._tls.encrypt(part)
            taken += len(part)
            self._sent(len(part))
        self._raw = memoryview(self._tls.take_output())
        return bool(self._raw)

    # ---- in ----

    def _read(self) -> None:
        self._read_rounds(_ROUNDS)

    def _read_rest(self) -> None:
        """The socket takes nothing any more: the other side may have said why it leaves, and then left (CON-3)."""
        self._read_rounds(sys.maxsize)
        self._end(self._failure or EOFError())

    def _read_rounds(self, most: int) -> None:
        try:
            for _ in range(most):
                if self.is_closed or not self._read_some():
                    return
        except BlockingIOError:
            return
        except Refused as error:
            self.flush()
            self._end(error)
        except (EOFError, OSError) as error:
            self._end(self._failure or error)
        except (ValueError, struct.error, msgspec.MsgspecError, RecursionError) as error:
            self._end(error)

    def _read_some(self) -> bool:
        """Whether there may be more."""
        into = READ_BYTES if self._tls is not None else self.user.next_read()
        if not isinstance(into, int):
            with into:
                count = self.socket.recv_into(into)
            self._heard(count)
            self.user.filled(count)
            return True
        data = self.socket.recv(into)
        self._heard(len(data))
        plain = data if self.is_trusted and self._tls is None else self._admit(data)
        if plain:
            self.user.came(plain)
        return len(data) == into

    def _heard(self, count: int) -> None:
        if not count:
            raise EOFError
        self._has_heard = self.has_begun = True

    def _end(self, error: Exception) -> None:
        if not self.is_closed:
            self.user.ended(error)

    # ---- who is there ----

    def _too_slow(self) -> None:
        self._end(Refused("the handshake was not finished in time"))

    def _begin(self) -> None:
        if self._tls is None or self._tls.is_open:
            self._handshake = Handshake(self._token, self._accepts, binding_of(self._tls), reads=self._admits_readers)
            if not self._accepts:
                self.put(self._handshake.take_output())
        else:
            try:
                self._tls.start()
            except Refused as error:
                return self.fail(error)
        return self.flush()

    def _admit(self, data: bytes) -> bytes:
        """What came, decrypted, without what belongs to the handshakes."""
        if self._tls is not None:
            try:
                data = self._tls.feed(data)
            finally:
                self.flush()
            if not self._tls.is_open:
                return b""
        if self.is_trusted:
            return data
        if self._handshake is None:
            self._begin()
        return self._shake(data)

    def _shake(self, data: bytes) -> bytes:
        assert self._handshake is not None
        handshake = self._handshake
        try:
            rest = handshake.feed(data)
        finally:
            if out := handshake.take_output():
                self.put(out)
                self.flush()
        if handshake.is_done:
            self._handshake = None
            self.is_trusted, self.is_read_only = True, handshake.is_read_only
            if self._deadline is not None:
                self._deadline.cancel()
            self.user.proved()
        return rest
