"""What two node daemons say to each other: frames and bulk bytes over one connection after another.

A frame is a header (u32 bytes, u8 type, 3 zero) and its body: a message of `link_messages`, a batch of records (see
`native/forwarding.hpp`), or a chunk of an object (u32 transfer, u64 offset, then raw bytes, received straight into
where they belong). Messages and records keep their order and go before chunks, and one chunk is read from its object
only when the socket has room, so a large object delays nothing for long. While more than `FULL_BYTES` wait to be sent
no more records are taken: they stay with the processes that wrote them.

Whatever is wrong with what comes ends the link, with a reason. A connection (`connection`) that breaks does not: the
side that made it makes another, and both go on where they were (`resumption`); only chunks are asked for again. Neither
does it wait for one that is dead: a machine that says that nobody listens there ends the link at once. A connection
over which nothing comes is given up for another after some seconds. Runs in the daemon's thread.
"""

from __future__ import annotations

import collections
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from weft.engine.wire import link_codec, roles
from weft.engine.wire.link_messages import Call, CallAnswer, Fault, LinkMessage
from weft.engine.wire.reconnect import NextConnection
from weft.net import pulse
from weft.net.auth import Refused
from weft.net.connection import READ_BYTES, Connection, ConnectionUser
from weft.net.loop import Loop
from weft.net.resumption import NAME_BYTES, Resumption
from weft.net.tls import TlsSession

HEADER = struct.Struct("<IB3x")
CHUNK_HEAD = struct.Struct("<IQ")
MESSAGE, CHUNK, RECORDS = 1, 2, 3
NAME, RESUME, RESUMED, CONFIRM, GOODBYE, PULSE = 4, 5, 6, 7, 8, 9
"""The link's name, first of all; on a later connection its name and what has come (u64), and the answer; what has come
so far; that no other connection is to be made; and nothing, so that something comes."""
COUNT = struct.Struct("<Q")
UNSENT_PULSES = 3
"""So many in a row without anything to send: then nothing is sent, so that the other side hears something."""
SILENT_PULSES = 5
"""So many in a row without anything that came: the connection is dead, or the other daemon stands still."""
CHUNK_BYTES = 1 << 20
FULL_BYTES = 8 << 20
LARGEST_MESSAGE = 1 << 30
_CHUNK_HEADER_BYTES = HEADER.size + CHUNK_HEAD.size
_LARGEST = {MESSAGE: LARGEST_MESSAGE, RECORDS: LARGEST_MESSAGE, CHUNK: CHUNK_HEAD.size + CHUNK_BYTES}
_LARGEST |= dict.fromkeys((NAME, RESUME, RESUMED, CONFIRM, GOODBYE, PULSE), NAME_BYTES + COUNT.size)
AnyLink = TypeVar("AnyLink", contravariant=True)


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


class LinkUser(Protocol[AnyLink]):
    """Who is told what comes over a link."""

    def ready(self, link: AnyLink) -> None:
        """It can be trusted from now on."""

    def received(self, link: AnyLink, message: LinkMessage) -> None: ...
    def records_came(self, link: AnyLink, batch: memoryview) -> None: ...
    def closed(self, link: AnyLink, reason: str) -> None: ...
    def chunk_target(self, link: AnyLink, transfer: int, offset: int, size: int) -> memoryview | None:
        """Where these bytes of an object belong; None to throw them away."""

    def chunk_came(self, link: AnyLink, transfer: int, offset: int, size: int) -> None: ...
    def resumed(self, link: AnyLink) -> None:
        """It goes on over another connection; chunks that were on their way are lost."""


class Records(Protocol):
    """Where the records come from that a link sends."""

    def take(self) -> bytes:
        """One batch of them; empty when there is none."""

    def hold(self, is_full: bool) -> None:
        """Make no more batches; or go on."""


Again: TypeAlias = "Callable[[LinkUser[Link], bool], Link]"


@dataclass(slots=True)
class _Chunk:
    """One that is coming in."""

    transfer: int
    offset: int
    size: int
    target: memoryview | None
    """None: it is thrown away."""
    received: int = 0

    def drop(self) -> None:
        if self.target is not None:
            self.target.release()
            self.target = None


class Link(ConnectionUser):
    """A link, from the connected (or connecting) socket to its end."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        accepts: bool,
        user: LinkUser[Link],
        tls: TlsSession | None = None,
        named: dict[bytes, Link] | None = None,
        again: Again | None = None,
    ) -> None:
        """`named`: the links of this node that can be resumed; `again`: makes another connection to the same node, by
        small packets where it is told to."""
        self._loop = loop
        self._accepts = accepts
        self._user = user
        self._named = named
        self._again = again
        self.peer = 0
        """The number of the node at the other end, once it is known."""
        self.address = ""
        """Where the other node listens, once it is known."""
        self.records: Records | None = None
        self.is_closed = self._is_closing = False
        self.is_refused = False
        """The other side, or its machine, does not want this connection, nor another for the same link."""
        self.fault = Fault.OTHER
        self._resumption: Resumption | None = None
        """Once the link has a name."""
        self.resumes: Link | None = None
        """The link that this connection is for."""
        self._next = NextConnection(loop, self, again)
        self._has_sent = False
        """Since the last pulse."""
        self._unsent_pulses = 0
        self._is_full = False
        self._bulk: collections.deque[Sending] = collections.deque()
        self._buffer = bytearray()
        self._is_bulk = False
        """Whether a chunk came last: its successor is then received straight to its place, not by way of the buffer."""
        self._chunk: _Chunk | None = None
        self.connection = Connection(loop, connection, token, accepts, self, tls, admits_readers=accepts)

    @property
    def is_severed(self) -> bool:
        """Whether it waits for another connection."""
        return self.connection.is_closed and not self.is_closed

    # ---- out ----

    def send(self, message: LinkMessage) -> None:
        """In order, as soon as the socket takes it. Nothing happens once the link is closed."""
        if self.is_closed:
            return
        self._take_records()
        body = link_codec.encode(message)
        self._put_counted(HEADER.pack(len(body), MESSAGE) + body)
        self.connection.flush()

    def send_records(self) -> None:
        """Send what `records` has now."""
        if not self.is_closed:
            self._take_records()
            if self.connection.out_bytes:
                self.connection.flush()

    def _take_records(self) -> None:
        while self.records is not None and (batch := self.records.take()):
            self._put_counted(HEADER.pack(len(batch), RECORDS), batch)

    def _put_counted(self, *frame: bytes | memoryview) -> None:
        if self._resumption is not None:
            self._resumption.sent(frame)
        self._put(*frame)

    def _put(self, *parts: bytes | memoryview, is_fleeting: bool = False) -> None:
        self._has_sent = True
        self.connection.put(*parts, is_fleeting=is_fleeting)
        if self.connection.out_bytes > FULL_BYTES and not self._is_full and self.records is not None:
            self._is_full = True
            self.records.hold(True)

    def _put_own(self, kind: int, body: bytes = b"") -> None:
        """A frame of the link itself."""
        self._put(HEADER.pack(len(body), kind) + body)
        self.connection.flush()

    def pulse(self) -> None:
        """To be called each second or so. Says something where nothing was to be said, and gives up a connection over
        which nothing comes."""
        if self.is_closed or self.is_severed or self._resumption is None:
            return
        if self.connection.beat() >= SILENT_PULSES:
            self._broken("nothing came over the connection for some seconds", is_silent=True)
            return
        self._unsent_pulses = 0 if self._has_sent else self._unsent_pulses + 1
        if self._unsent_pulses >= UNSENT_PULSES:
            self._put_own(PULSE)
        self._has_sent = False

    def send_bulk(self, sending: Sending) -> None:
        if self.is_closed or self.is_severed:
            sending.finish()
            return
        self._bulk.append(sending)
        self.send_parts()

    def send_parts(self) -> None:
        """A chunk may have come that was waited for."""
        self.connection.flush()

    def has_more(self) -> bool:
        """One more chunk in line, in turn from each object that is on its way."""
        for _ in range(len(self._bulk)):
            sending = self._bulk.popleft()
            part = sending.take()
            if part is not None:
                offset, data = part
                head = HEADER.pack(CHUNK_HEAD.size + len(data), CHUNK) + CHUNK_HEAD.pack(sending.transfer, offset)
                self._put(head, data, is_fleeting=sending.is_fleeting)
            if sending.is_over:
                sending.finish()
            else:
                self._bulk.append(sending)
            if part is not None:
                return True
        return False

    def wrote(self) -> None:
        if self._is_full and self.connection.out_bytes < FULL_BYTES // 2:
            self._is_full = False
            if self.records is not None:
                self.records.hold(False)

    def close(self, reason: str = "", fault: Fault = Fault.OTHER) -> None:
        """`on_closed` is called, once."""
        if self.is_closed or self._is_closing:
            return
        self.fault = fault
        self._is_closing = True
        if self._resumption is not None:
            if not self.connection.is_blocked:
                self._put_own(GOODBYE)
            if self._named is not None:
                self._named.pop(self._resumption.name, None)
        self.is_closed = True
        self._leave_connection()
        self._user.closed(self, reason)

    def _leave_connection(self) -> None:
        self.connection.close()
        if self._chunk is not None:
            self._chunk.drop()
        self._chunk = None
        self._is_bulk = False
        bulk, self._bulk = self._bulk, collections.deque()
        for sending in bulk:
            sending.finish()
        self._buffer = bytearray()

    # ---- in ----

    def proved(self) -> None:
        if self._again is not None:
            self._resumption = Resumption(os.urandom(NAME_BYTES))
            self._put_own(NAME, self._resumption.name)
        self._user.ready(self)

    def ended(self, error: Exception) -> None:
        self.is_refused = isinstance(error, Refused | ConnectionRefusedError)
        if isinstance(error, OSError):
            fault = Fault.REFUSED if isinstance(error, ConnectionRefusedError) else Fault.OTHER
            self._broken(str(error) or repr(error), error.errno not in pulse.ENDED, fault)
        elif isinstance(error, Refused):
            self.close(f"refused: {error}")
        elif not isinstance(error, EOFError):
            self.close(str(error) or repr(error))
        elif self.connection.is_trusted:
            self._broken("the other node closed the connection", fault=Fault.CLOSED)
        elif self._accepts and not self.connection.has_begun:
            self.close()  # it only wanted to know whether somebody listens
        else:
            self.close("it left before it had proved who it is")

    def next_read(self) -> memoryview | int:
        if self._chunk is not None and self._chunk.target is not None:
            return self._chunk.target[self._chunk.received : self._chunk.size]
        return _CHUNK_HEADER_BYTES if self._is_bulk and self._chunk is None else READ_BYTES

    def came(self, data: bytes) -> None:
        at, buffer = 0, self._buffer
        buffer += data
        while not self.is_closed and self._buffer is buffer:
            if self._chunk is not None:
                at = self._fill_chunk(self._chunk, at)
                if self._chunk is not None:
                    break
            elif (after := self._take_frame(at)) == at:
                break
            else:
                at = after
        if at and self._buffer is buffer:
            del buffer[:at]

    def _take_frame(self, at: int) -> int:
        """Where the next one begins; `at` while this one is not whole."""
        buffer, begin = self._buffer, at + HEADER.size
        if len(buffer) < begin:
            return at
        size, kind = HEADER.unpack_from(buffer, at)
        if self.connection.is_read_only and (kind != MESSAGE or size > roles.LARGEST_QUESTION):
            raise ValueError("refused: its token may only read")
        if size > _LARGEST.get(kind, -1) or (kind == CHUNK and size < CHUNK_HEAD.size):
            raise ValueError(f"a frame of type {kind} with {size} bytes is not one of Weft's")
        self._is_bulk = kind == CHUNK
        end = begin + (CHUNK_HEAD.size if kind == CHUNK else size)
        if len(buffer) < end:
            return at
        if kind == CHUNK:
            transfer, offset = CHUNK_HEAD.unpack_from(buffer, begin)
            count = size - CHUNK_HEAD.size
            self._chunk = _Chunk(transfer, offset, count, self._user.chunk_target(self, transfer, offset, count))
        elif kind in (MESSAGE, RECORDS):
            self._deliver(kind, begin, end)
        else:
            self._control_came(kind, bytes(buffer[begin:end]), end)
        return end

    def _deliver(self, kind: int, begin: int, end: int) -> None:
        if self._resumption is not None and self._resumption.came(end - begin):
            self._put_own(CONFIRM, COUNT.pack(self._resumption.confirm()))
        with memoryview(self._buffer) as view, view[begin:end] as frame:
            if kind == RECORDS:
                self._user.records_came(self, frame)
                return
            message = link_codec.decode(frame)
        if not self.connection.is_read_only or roles.may_read(message):
            self._user.received(self, message)
        elif isinstance(message, Call):
            self.send(CallAnswer(message.number, None, roles.refusal(message), "RuntimeError"))
        else:
            self.close(f"refused: {roles.refusal(message)}")

    def drop_chunk(self, transfer: int) -> None:
        """The memory that this transfer goes to is given back: throw the rest of a chunk that is coming in away."""
        if self._chunk is not None and self._chunk.transfer == transfer:
            self._chunk.drop()

    def _fill_chunk(self, chunk: _Chunk, at: int) -> int:
        """Move what is in the buffer to its place; the rest of it goes there directly. Where the buffer goes on."""
        count = min(chunk.size - chunk.received, len(self._buffer) - at)
        if chunk.target is not None:
            with memoryview(self._buffer) as view:
                chunk.target[chunk.received : chunk.received + count] = view[at : at + count]
        self.filled(count)
        return at + count

    def filled(self, count: int) -> None:
        chunk = self._chunk
        assert chunk is not None
        chunk.received += count
        if chunk.received == chunk.size:
            self._chunk = None
            if chunk.target is not None:
                chunk.drop()
                self._user.chunk_came(self, chunk.transfer, chunk.offset, chunk.size)

    # ---- another connection ----

    def _control_came(self, kind: int, body: bytes, at: int) -> None:
        """A frame of the link itself; `at`: where the next one begins."""
        if kind == NAME and self._named is not None and self._resumption is None and len(body) == NAME_BYTES:
            self._resumption = Resumption(body)
            self._named[body] = self
        elif kind == RESUME and self._named is not None and self._resumption is None:
            self._resume_asked(self._named.get(body[:NAME_BYTES]), COUNT.unpack_from(body, NAME_BYTES)[0])
        elif kind == RESUMED and self.resumes is not None and not self.resumes.is_severed:
            self.close()  # it was given up meanwhile
        elif kind == RESUMED and self.resumes is not None:
            self.resumes._go_on(self, COUNT.unpack(body)[0], bytes(self._buffer[at:]))
        elif kind == CONFIRM and self._resumption is not None:
            self._resumption.confirmed(COUNT.unpack(body)[0])
        elif kind == GOODBYE:
            self.is_refused = self.resumes is not None
            if self.is_refused:
                self.close("it knows the link no more")
            else:
                self.close("the other node closed the connection", Fault.CLOSED)
        elif kind != PULSE or body:
            raise ValueError(f"a frame of type {kind} with {len(body)} bytes came out of turn")

    def _broken(self, reason: str, is_silent: bool = False, fault: Fault = Fault.OTHER) -> None:
        """The connection is no more; `is_silent`: as far as can be known here, for nobody has ended it."""
        if self._resumption is None:
            self.close(reason, fault)
        elif not self._is_closing:
            self._leave_connection()
            self._next.find(reason, is_silent, fault)

    def ask_to_resume(self, link: Link) -> None:
        """This connection is for that link."""
        assert link._resumption is not None
        self._put_own(RESUME, link._resumption.name + COUNT.pack(link._resumption.confirm()))

    def _resume_asked(self, link: Link | None, received: int) -> None:
        """This connection is to be another link's from now on."""
        if link is None:
            self._put_own(GOODBYE)
            self.close()
            return
        if not link.is_severed:
            link._broken("the other node has made another connection")
        link._go_on(self, received, b"")

    def _go_on(self, attempt: Link, received: int, rest: bytes) -> None:
        """Over its connection. `received`: so many frames have come to the other side; `rest`: what came here."""
        assert self._resumption is not None
        self._resumption.confirmed(received)
        self.connection, attempt.is_closed = attempt.connection, True
        self.connection.user = self
        attempt._user.closed(attempt, "")
        if attempt.resumes is None:
            self._put(HEADER.pack(COUNT.size, RESUMED) + COUNT.pack(self._resumption.confirm()))
        for frame in self._resumption.unconfirmed():
            self._put(*frame)
        self.connection.flush()
        self._user.resumed(self)
        self.came(rest)
