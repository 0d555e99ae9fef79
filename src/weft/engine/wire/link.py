"""One connection between two node daemons: frames and bulk bytes over TCP, without blocking, in the daemon's loop.

A frame is a header (u32 bytes, u8 type, 3 zero) and its body: a message of `link_messages`, a batch of records (see
`native/forwarding.hpp`), or a chunk of an object (u32 transfer, u64 offset, then raw bytes, received straight into
where they belong). Messages and records keep their order and go before chunks, and one chunk is read from its object
only when the socket has room, so a large object delays nothing for long. While more than `FULL_BYTES` wait to be sent
no more records are taken: they stay with the processes that wrote them.

Nothing is decoded before the handshake of `auth` is over, which runs inside TLS where the link leaves the machine.
Whatever is wrong with what comes ends the link, with a reason. A connection that breaks does not: the side that made it
makes another, and both go on where they were (`resumption`); only chunks are asked for again. Neither does it wait for
one that is dead: a machine that says that nobody listens there ends the link at once. Runs in the daemon's thread.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import itertools
import os
import socket
import struct
from collections.abc import Callable
from typing import Protocol

import msgspec

from weft.engine.node.loop import Loop, Timer
from weft.engine.wire import link_messages
from weft.engine.wire.auth import Handshake, Refused
from weft.engine.wire.link_messages import AnyMessage
from weft.engine.wire.reconnect import Knock, Resuming
from weft.engine.wire.resumption import NAME_BYTES, Resumption
from weft.engine.wire.tls import FIRST_BYTE, TlsSession

HEADER = struct.Struct("<IB3x")
CHUNK_HEAD = struct.Struct("<IQ")
MESSAGE, CHUNK, RECORDS = 1, 2, 3
NAME, RESUME, RESUMED, CONFIRM, GOODBYE = 4, 5, 6, 7, 8
"""The link's name, first of all; on a later connection its name and what has come (u64), and the answer; what has come
so far; and that no other connection is to be made."""
COUNT = struct.Struct("<Q")
RESUME_S = 3.0
"""So long after its connection broke a link is given up."""
AGAIN_S = 0.1
"""After so long another connection is tried."""
CHUNK_BYTES = 1 << 20
FULL_BYTES = 8 << 20
LARGEST_MESSAGE = 1 << 30
HANDSHAKE_S = 10.0
_READ_BYTES = 256 << 10
_CHUNK_HEADER_BYTES = HEADER.size + CHUNK_HEAD.size
_TCP_NOTSENT_LOWAT = 25
_UNSENT_BYTES = 512 << 10
"""The kernel takes no more than this beyond what is on its way, so that a message never waits behind much of an object.
The size of the socket's buffers is left to it: it fits them to the connection."""
_GATHERED = 64
"""Messages in one call at most."""
_ROUNDS = 8
"""Reads in a row before the loop's other descriptors have their turn."""


class Sending(Protocol):
    """An object, or a part of one, on its way out."""

    transfer: int

    @property
    def is_over(self) -> bool:
        """Whether all of it was taken."""

    @property
    def is_fleeting(self) -> bool:
        """Whether what was taken may be gone once the daemon's loop goes on: the link copies what is unsent by then."""

    def take(self) -> tuple[int, memoryview | bytes] | None:
        """The next chunk and where it belongs; None when there is none now."""

    def finish(self) -> None:
        """It is over, or the link is gone."""


class LinkUser(Protocol):
    """Who is told what comes over a link."""

    def ready(self, link: Link) -> None:
        """It can be trusted from now on."""

    def received(self, link: Link, message: AnyMessage) -> None: ...
    def records_came(self, link: Link, batch: memoryview) -> None: ...
    def closed(self, link: Link, reason: str) -> None: ...
    def chunk_target(self, link: Link, transfer: int, offset: int, size: int) -> memoryview | None:
        """Where these bytes of an object belong; None to throw them away."""

    def chunk_came(self, link: Link, transfer: int, offset: int, size: int) -> None: ...
    def resumed(self, link: Link) -> None:
        """It goes on over another connection; chunks that were on their way are lost."""


class Records(Protocol):
    """Where the records come from that a link sends."""

    def take(self) -> bytes:
        """One batch of them; empty when there is none."""

    def hold(self, is_full: bool) -> None:
        """Make no more batches; or go on."""


class Link:
    """A link, from the connected (or connecting) socket to its end."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        accepts: bool,
        user: LinkUser,
        tls: TlsSession | None = None,
        must_encrypt: bool = False,
        named: dict[bytes, Link] | None = None,
        again: Callable[[LinkUser], Link] | None = None,
    ) -> None:
        """`tls`: to connect by it; to accept, by it where the other side wants to, or where it `must_encrypt`.
        `named`: the links of this node that can be resumed; `again`: makes another connection to the same node."""
        self._loop = loop
        self._token = token
        self._accepts = accepts
        self._tls = tls
        self._must_encrypt = must_encrypt
        self._raw = memoryview(b"")
        """Encrypted bytes that the socket has not taken."""
        self._socket = connection
        self._user = user
        self._named = named
        self._again = again
        self.address = ""
        """Where the other node listens, once it is known."""
        self._resumption: Resumption | None = None
        """Once the link has a name."""
        self._resumes: Link | None = None
        """The link that this connection is for."""
        self._failure = ""
        """What the socket refused to send with."""
        self._is_severed = False
        self._is_closing = False
        self._severed_at = 0.0
        self._why_severed = ""
        self.records: Records | None = None
        self._handshake: Handshake | None = None
        self._is_trusted = False
        self._has_begun = False
        """Whether anything came."""
        self._out: collections.deque[memoryview] = collections.deque()
        self._out_bytes = 0
        self._is_full = False
        self._bulk: collections.deque[Sending] = collections.deque()
        self._is_fleeting = False
        """Whether the last of what is to be sent must be copied before the loop goes on."""
        self._buffer = bytearray()
        self._is_bulk = False
        """Whether a chunk came last: its successor is then received straight to its place, not by way of the buffer."""
        self._chunk: tuple[int, int, int, memoryview | None, int] | None = None
        """(transfer, offset, bytes, target, received) of the chunk that is coming in."""
        self._wants_write = False
        self.is_closed = False
        self.peer = 0
        """The number of the node at the other end, once it is known."""
        self._deadline: Timer | None = loop.call_later(HANDSHAKE_S, self._too_slow)
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        loop.watch(connection.fileno(), self._read)
        if tls is not None and not accepts:
            tls.start()
            self._flush()
        elif not accepts:
            self._begin_handshake()

    # ---- out ----

    def send(self, message: AnyMessage) -> None:
        """In order, as soon as the socket takes it. Nothing happens once the link is closed."""
        if self.is_closed:
            return
        self._take_records()
        body = link_messages.encode(message)
        self._put_counted(HEADER.pack(len(body), MESSAGE) + body)
        if not self._wants_write:
            self._flush()

    def send_records(self) -> None:
        """Send what `records` has now."""
        if not self.is_closed:
            self._take_records()
            if self._out and not self._wants_write:
                self._flush()

    def _take_records(self) -> None:
        if self.records is not None and (batch := self.records.take()):
            self._put_counted(HEADER.pack(len(batch), RECORDS), batch)

    def _put_counted(self, *frame: bytes | memoryview) -> None:
        if self._resumption is not None:
            self._resumption.sent(frame)
        for part in frame:
            self._put(part)

    def _put(self, data: bytes | memoryview) -> None:
        self._out.append(memoryview(data))
        self._out_bytes += len(data)
        if self._out_bytes > FULL_BYTES and not self._is_full and self.records is not None:
            self._is_full = True
            self.records.hold(True)

    def send_bulk(self, sending: Sending) -> None:
        if self.is_closed or self._is_severed:
            sending.finish()
            return
        self._bulk.append(sending)
        self.send_parts()

    def send_parts(self) -> None:
        """A chunk may have come that was waited for."""
        if not self._wants_write and not self.is_closed:
            self._flush()

    def drop_chunk(self, transfer: int) -> None:
        """The memory that this transfer goes to is given back: throw the rest of a chunk that is coming in away."""
        if self._chunk is not None and self._chunk[0] == transfer and (target := self._chunk[3]) is not None:
            target.release()
            self._chunk = (*self._chunk[:3], None, self._chunk[4])

    def close(self, reason: str = "") -> None:
        """`on_closed` is called, once."""
        if self.is_closed or self._is_closing:
            return
        self._is_closing = True
        if self._resumption is not None:
            if not self._is_severed and not self._wants_write:
                self._put(HEADER.pack(0, GOODBYE))
                self._flush()
            if self._named is not None:
                self._named.pop(self._resumption.name, None)
        self.is_closed = True
        self._leave_connection()
        self._is_severed = False
        if self._deadline is not None:
            self._deadline.cancel()
        self._user.closed(self, reason)

    def _leave_connection(self) -> None:
        if not self._is_severed:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
        if self._chunk is not None and (target := self._chunk[3]) is not None:
            target.release()
        self._chunk = None
        self._is_bulk = self._is_fleeting = False
        bulk, self._bulk = self._bulk, collections.deque()
        for sending in bulk:
            sending.finish()
        self._out.clear()
        self._out_bytes = 0
        self._raw = memoryview(b"")
        self._buffer = bytearray()

    def _flush(self) -> None:
        if self._is_severed:
            return
        try:
            while self._raw or self._encrypt() or self._out or self._next_chunk():
                if self._raw:
                    self._raw = self._raw[self._socket.send(self._raw) :]
                elif self._tls is None:
                    self._sent(self._socket.sendmsg(itertools.islice(self._out, _GATHERED)))
            is_full = False
        except BlockingIOError:
            is_full = True
            if self._is_fleeting and self._out:
                self._out[-1] = memoryview(bytes(self._out[-1]))
                self._is_fleeting = False
        except OSError as error:
            self._failure = str(error)
            self._loop.call_later(0, functools.partial(self._broken, self._socket, str(error)))  # not in what led here
            return
        if is_full != self._wants_write:
            self._wants_write = is_full
            self._loop.want_write(self._socket.fileno(), self._flush if is_full else None)
        if self._is_full and self._out_bytes < FULL_BYTES // 2:
            self._is_full = False
            if self.records is not None:
                self.records.hold(False)

    def _sent(self, count: int) -> None:
        self._out_bytes -= count
        while self._out and count >= len(self._out[0]):
            count -= len(self._out.popleft())
        if count:
            self._out[0] = self._out[0][count:]

    def _encrypt(self) -> bool:
        """Whether there is something encrypted to send."""
        if self._tls is None:
            return False
        taken = 0
        while self._out and taken < _READ_BYTES:
            part = self._out[0][: _READ_BYTES - taken]
            self._tls.encrypt(part)
            taken += len(part)
            self._sent(len(part))
        self._raw = memoryview(self._tls.take_output())
        return bool(self._raw)

    def _next_chunk(self) -> bool:
        """Put one more chunk in line, in turn from each object that is on its way; False when there is none now."""
        for _ in range(len(self._bulk)):
            sending = self._bulk.popleft()
            part = sending.take()
            if part is not None:
                offset, data = part
                self._put(HEADER.pack(CHUNK_HEAD.size + len(data), CHUNK) + CHUNK_HEAD.pack(sending.transfer, offset))
                self._put(data)
                self._is_fleeting = sending.is_fleeting
            if sending.is_over:
                sending.finish()
            else:
                self._bulk.append(sending)
            if part is not None:
                return True
        return False

    # ---- in ----

    def _read(self) -> None:
        try:
            for _ in range(_ROUNDS):
                if self.is_closed or self._is_severed:
                    return
                if self._tls is None and self._chunk is not None and self._chunk[3] is not None:
                    _, _, size, target, received = self._chunk
                    assert target is not None
                    count = self._socket.recv_into(target[received:size])
                    if count == 0:
                        return self._broken(self._socket, "the other node closed the connection")
                    self._received_chunk(count)
                    continue
                is_direct = self._is_bulk and self._chunk is None and self._tls is None
                wanted = _CHUNK_HEADER_BYTES if is_direct else _READ_BYTES
                data = self._socket.recv(wanted)
                if not data:
                    return self._left()
                count = len(data)
                if self._tls is not None or not self._is_trusted:
                    data = self._admit(data)
                self._buffer += data
                self._take_frames()
                if count < wanted:
                    return
        except BlockingIOError:
            return
        except Refused as error:
            self._flush()
            self.close(f"refused: {error}")
        except OSError as error:
            self._broken(self._socket, str(error) or repr(error))
        except (ValueError, struct.error, msgspec.MsgspecError) as error:
            self.close(str(error) or repr(error))

    def _left(self) -> None:
        """The other side has closed the connection, or there was none."""
        if self._is_trusted or self._failure:
            self._broken(self._socket, self._failure or "the other node closed the connection")
        elif self._accepts and not self._has_begun:
            self.close()  # it only wanted to know whether somebody listens
        else:
            self.close("it left before it had proved who it is")

    def _admit(self, data: bytes) -> bytes:
        """What came, decrypted, without what belongs to the handshakes."""
        if self._accepts and not self._has_begun:
            self._has_begun = True
            if data[0] != FIRST_BYTE:
                if self._must_encrypt:
                    raise Refused("it does not encrypt, and comes from another machine")
                self._tls = None
        if self._tls is not None:
            try:
                data = self._tls.feed(data)
            finally:
                self._flush()
            if not self._tls.is_open:
                return b""
        if self._is_trusted:
            return data
        if self._handshake is None:
            self._begin_handshake()
        return self._shake(data)

    def _begin_handshake(self) -> None:
        binding = b"" if self._tls is None else self._tls.binding()
        self._handshake = Handshake(self._token, self._accepts, binding)
        if not self._accepts:
            self._put(self._handshake.take_output())
            if not self._wants_write:
                self._flush()

    def _shake(self, data: bytes) -> bytes:
        assert self._handshake is not None
        handshake = self._handshake
        try:
            rest = handshake.feed(data)
        finally:
            if out := handshake.take_output():
                self._put(out)
                self._flush()
        if handshake.is_done:
            self._handshake = None
            self._is_trusted = True
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            if self._again is not None:
                self._resumption = Resumption(os.urandom(NAME_BYTES))
                self._put(HEADER.pack(NAME_BYTES, NAME) + self._resumption.name)
            self._user.ready(self)
        return rest

    def _take_frames(self) -> None:
        at = 0
        buffer = self._buffer
        while not self.is_closed and self._buffer is buffer:
            if self._chunk is not None:
                at, is_whole = self._fill_chunk(at)
                if not is_whole:
                    break
                continue
            if len(buffer) - at < HEADER.size:
                break
            size, kind = HEADER.unpack_from(buffer, at)
            self._is_bulk = kind == CHUNK
            if kind == CHUNK and CHUNK_HEAD.size <= size <= CHUNK_HEAD.size + CHUNK_BYTES:
                if len(buffer) - at < HEADER.size + CHUNK_HEAD.size:
                    break
                transfer, offset = CHUNK_HEAD.unpack_from(buffer, at + HEADER.size)
                at += HEADER.size + CHUNK_HEAD.size
                count = size - CHUNK_HEAD.size
                self._chunk = (transfer, offset, count, self._user.chunk_target(self, transfer, offset, count), 0)
                continue
            if NAME <= kind <= GOODBYE and size <= NAME_BYTES + COUNT.size:
                if len(buffer) - at < HEADER.size + size:
                    break
                body = bytes(buffer[at + HEADER.size : at + HEADER.size + size])
                at += HEADER.size + size
                self._control_came(kind, body, at)
                continue
            if kind not in (MESSAGE, RECORDS) or size > LARGEST_MESSAGE:
                raise ValueError(f"a frame of type {kind} with {size} bytes is not one of Weft's")
            if len(buffer) - at < HEADER.size + size:
                break
            if self._resumption is not None and self._resumption.came(size):
                self._confirm()
            with memoryview(buffer) as view, view[at + HEADER.size : at + HEADER.size + size] as frame:
                at += HEADER.size + size
                if kind == RECORDS:
                    self._user.records_came(self, frame)
                    continue
                message = link_messages.decode(frame)
            self._user.received(self, message)
        if at and self._buffer is buffer:
            del buffer[:at]

    def _fill_chunk(self, at: int) -> tuple[int, bool]:
        """Move what is in the buffer to where the chunk belongs; the rest of it goes there directly.

        Where the buffer goes on, and whether the chunk is whole."""
        assert self._chunk is not None
        _, _, size, target, received = self._chunk
        count = min(size - received, len(self._buffer) - at)
        if target is not None:
            with memoryview(self._buffer) as view:
                target[received : received + count] = view[at : at + count]
        return at + count, self._received_chunk(count)

    def _received_chunk(self, count: int) -> bool:
        """Whether it is whole now."""
        assert self._chunk is not None
        transfer, offset, size, target, received = self._chunk
        received += count
        if received < size:
            self._chunk = (transfer, offset, size, target, received)
            return False
        self._chunk = None
        if target is not None:
            target.release()
            self._user.chunk_came(self, transfer, offset, size)
        return True

    def _too_slow(self) -> None:
        self._deadline = None
        self.close("refused: the handshake was not finished in time")

    # ---- another connection ----

    def _control_came(self, kind: int, body: bytes, at: int) -> None:
        """A frame of the link itself; `at`: where the next one begins."""
        if kind == NAME and self._named is not None and self._resumption is None and len(body) == NAME_BYTES:
            self._resumption = Resumption(body)
            self._named[body] = self
        elif kind == RESUME and self._named is not None and self._resumption is None:
            self._resume_asked(self._named.get(body[:NAME_BYTES]), COUNT.unpack_from(body, NAME_BYTES)[0])
        elif kind == RESUMED and self._resumes is not None and not self._resumes._is_severed:
            self.close()  # it was given up meanwhile
        elif kind == RESUMED and self._resumes is not None:
            self._resumes._go_on(self, COUNT.unpack(body)[0], bytes(self._buffer[at:]))
        elif kind == CONFIRM and self._resumption is not None:
            self._resumption.confirmed(COUNT.unpack(body)[0])
        elif kind == GOODBYE:
            is_new = self._resumes is not None
            self.close("refused: it knows the link no more" if is_new else "the other node closed the connection")
        else:
            raise ValueError(f"a frame of type {kind} with {len(body)} bytes came out of turn")

    def _confirm(self) -> None:
        assert self._resumption is not None
        self._put(HEADER.pack(COUNT.size, CONFIRM) + COUNT.pack(self._resumption.confirm()))
        if not self._wants_write:
            self._flush()

    def _broken(self, connection: socket.socket, reason: str) -> None:
        """The connection is no more."""
        if self.is_closed or self._is_closing or self._is_severed or connection is not self._socket:
            return
        if self._resumption is None:
            self.close(reason)
            return
        self._sever(reason)
        self._loop.call_later(0, self._connect_again)

    def _sever(self, reason: str) -> None:
        self._leave_connection()
        self._is_severed, self._wants_write = True, False
        self._severed_at, self._why_severed = self._loop.now(), reason

    def _connect_again(self) -> None:
        if self.is_closed or not self._is_severed:
            return
        if self._loop.now() - self._severed_at > RESUME_S:
            self.close(self._why_severed)
        elif self._again is None:
            Knock(self._loop, self.address, self._knocked)
        else:
            try:
                self._again(Resuming(self))._resumes = self
            except OSError as error:
                self.not_resumed(str(error))

    def _knocked(self, is_refused: bool) -> None:
        """The other side makes the connection, if it lives."""
        if is_refused and self._is_severed:
            self.close(self._why_severed)
        else:
            self._loop.call_later(AGAIN_S, self._connect_again)

    def not_resumed(self, reason: str) -> None:
        """The connection that was to be next is none."""
        if not self._is_severed or self.is_closed:
            return
        if reason.startswith("refused") or os.strerror(errno.ECONNREFUSED) in reason:
            self.close(self._why_severed)
        else:
            self._loop.call_later(AGAIN_S, self._connect_again)

    def ask_to_resume(self, link: Link) -> None:
        """This connection is for that link."""
        assert link._resumption is not None
        count = COUNT.pack(link._resumption.confirm())
        self._put(HEADER.pack(NAME_BYTES + COUNT.size, RESUME) + link._resumption.name + count)
        self._flush()

    def _resume_asked(self, link: Link | None, received: int) -> None:
        """This connection is to be another link's from now on."""
        if link is None:
            self._put(HEADER.pack(0, GOODBYE))
            self._flush()
            self.close()
            return
        if not link._is_severed:
            link._sever("the other node has made another connection")
        link._go_on(self, received, b"")

    def _go_on(self, connection: Link, received: int, rest: bytes) -> None:
        """Over that connection. `received`: so many frames have come to the other side; `rest`: what came here."""
        assert self._resumption is not None
        self._resumption.confirmed(received)
        accepts = connection._resumes is None
        self._socket, self._tls = connection._give_away(), connection._tls
        self._raw, self._out, self._out_bytes = connection._raw, connection._out, connection._out_bytes
        self._is_severed, self._failure = False, ""
        self._loop.watch(self._socket.fileno(), self._read)
        if accepts:
            self._put(HEADER.pack(COUNT.size, RESUMED) + COUNT.pack(self._resumption.confirm()))
        for frame in self._resumption.unconfirmed():
            for part in frame:
                self._put(part)
        self._buffer += rest
        self._flush()
        self._user.resumed(self)
        self._take_frames()

    def _give_away(self) -> socket.socket:
        """The connection; this link is over."""
        given = self._socket
        self._loop.unwatch(given.fileno())
        self.is_closed = True
        self._buffer = bytearray()
        self._user.closed(self, "")
        return given
