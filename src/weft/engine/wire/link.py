"""One connection between two node daemons: frames and bulk bytes over TCP, without blocking, in the daemon's loop.

A frame is a header (u32 bytes, u8 type, 3 zero) and its body: a message of `link_messages`, a batch of records (see
`native/forwarding.hpp`), or a chunk of an object (u32 transfer, u64 offset, then raw bytes, received straight into
where they belong). Messages and records keep their order and go before chunks, and one chunk is read from its object
only when the socket has room, so a large object delays nothing for long. While more than `FULL_BYTES` wait to be sent
no more records are taken: they stay with the processes that wrote them.

Nothing is decoded before the handshake of `auth` is over, which runs inside TLS where the link leaves the machine.
Whatever is wrong with what comes ends the link, with a reason. Runs in the daemon's thread.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import socket
import struct
from typing import Protocol

import msgspec

from weft.engine.node.loop import Loop, Timer
from weft.engine.wire import link_messages
from weft.engine.wire.auth import Handshake, Refused
from weft.engine.wire.link_messages import AnyMessage
from weft.engine.wire.tls import FIRST_BYTE, TlsSession

HEADER = struct.Struct("<IB3x")
CHUNK_HEAD = struct.Struct("<IQ")
MESSAGE, CHUNK, RECORDS = 1, 2, 3
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
    ) -> None:
        """`tls`: to connect by it; to accept, by it where the other side wants to, or where it `must_encrypt`."""
        self._loop = loop
        self._token = token
        self._accepts = accepts
        self._tls = tls
        self._must_encrypt = must_encrypt
        self._raw = memoryview(b"")
        """Encrypted bytes that the socket has not taken."""
        self._socket = connection
        self._user = user
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
        self._put(HEADER.pack(len(body), MESSAGE) + body)
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
            self._put(HEADER.pack(len(batch), RECORDS))
            self._put(batch)

    def _put(self, data: bytes | memoryview) -> None:
        self._out.append(memoryview(data))
        self._out_bytes += len(data)
        if self._out_bytes > FULL_BYTES and not self._is_full and self.records is not None:
            self._is_full = True
            self.records.hold(True)

    def send_bulk(self, sending: Sending) -> None:
        if self.is_closed:
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
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        if self._deadline is not None:
            self._deadline.cancel()
        for sending in self._bulk:
            sending.finish()
        self._bulk.clear()
        self._out.clear()
        self._user.closed(self, reason)

    def _flush(self) -> None:
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
            reason = str(error)
            self._loop.call_later(0, lambda: self.close(reason))  # not in the middle of what led here
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
                if self.is_closed:
                    return
                if self._tls is None and self._chunk is not None and self._chunk[3] is not None:
                    _, _, size, target, received = self._chunk
                    assert target is not None
                    count = self._socket.recv_into(target[received:size])
                    if count == 0:
                        return self.close("the other node closed the connection")
                    self._received_chunk(count)
                    continue
                is_direct = self._is_bulk and self._chunk is None and self._tls is None
                wanted = _CHUNK_HEADER_BYTES if is_direct else _READ_BYTES
                data = self._socket.recv(wanted)
                if not data:
                    return self.close(
                        "the other node closed the connection"
                        if self._is_trusted
                        else "it left before it had proved who it is"
                    )
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
        except (OSError, ValueError, struct.error, msgspec.MsgspecError) as error:
            self.close(str(error) or repr(error))

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
            self._user.ready(self)
        return rest

    def _take_frames(self) -> None:
        at = 0
        buffer = self._buffer
        while not self.is_closed:
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
            if kind not in (MESSAGE, RECORDS) or size > LARGEST_MESSAGE:
                raise ValueError(f"a frame of type {kind} with {size} bytes is not one of Weft's")
            if len(buffer) - at < HEADER.size + size:
                break
            with memoryview(buffer) as view, view[at + HEADER.size : at + HEADER.size + size] as body:
                at += HEADER.size + size
                if kind == RECORDS:
                    self._user.records_came(self, body)
                    continue
                message = link_messages.decode(body)
            self._user.received(self, message)
        if at:
            del self._buffer[:at]

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
