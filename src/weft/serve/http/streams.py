"""One stream of HTTP/2: the request that it carries, and the way of the answer through the windows of flow control."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes
from h2.exceptions import H2Error

from weft.serve.http import written
from weft.serve.http.bodies import refusal
from weft.serve.http.bounds import Waiting
from weft.serve.http.exchange import ClientLeft, Exchange
from weft.serve.http.heads import Head, unquoted
from weft.serve.http.messages import Headers, HttpHead, HTTPOptions
from weft.serve.http.upload import Upload

if TYPE_CHECKING:
    from weft.serve.http.http2 import Http2Connection

MOST_HEADERS = 256
MOST_UNSENT_BYTES = 256 * 1024
_OF_CONNECTION = written.OURS | {b"proxy-connection", b"trailer", b"upgrade"}
"""Fields that mean a connection of HTTP/1.1, or that the exchange writes itself."""


class BadRequest(ValueError):
    """It is answered with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def head_of(headers: Headers, options: HTTPOptions) -> Head:
    """As of the same request in HTTP/1.1; BadRequest. h2 has checked the names and the order of the fields."""
    if len(headers) > MOST_HEADERS:
        raise BadRequest(431, f"a request must have at most {MOST_HEADERS} headers")
    own = {name: value for name, value in headers if name.startswith(b":")}
    method, target = own.get(b":method", b""), own.get(b":path", b"")
    if method == b"CONNECT" or not target:
        raise BadRequest(501, "CONNECT is not understood")
    if not target.startswith(b"/") and target != b"*":
        raise BadRequest(400, "the request's target is malformed")
    others = [(bytes(name), bytes(value)) for name, value in headers if not name.startswith(b":")]
    hosts = {value for name, value in others if name == b"host"}
    if b":authority" in own:
        hosts.add(bytes(own[b":authority"]))
    if len(hosts) != 1:
        raise BadRequest(400, "a request must have one host")
    cookies = [value for name, value in others if name == b"cookie"]
    fields = [(b"host", hosts.pop()), *(one for one in others if one[0] not in (b"host", b"cookie"))]
    if cookies:  # a client may send them in several fields
        fields.append((b"cookie", b"; ".join(cookies)))
    path, _, query = target.partition(b"?")
    return Head(method.decode("latin-1"), unquoted(path), query, tuple(fields), "2", True, options.scheme)


class Stream:
    """What an exchange has for its connection. `pause_reading` and `resume_reading` are its upload's."""

    __slots__ = (
        "_ends",
        "_is_paused",
        "_owed_bytes",
        "_room",
        "_stuck_since_s",
        "_unsent",
        "app",
        "body_bytes",
        "client",
        "connection",
        "exchange",
        "has_come",
        "has_sent",
        "is_answered",
        "number",
        "pieces",
        "server",
        "since_s",
        "upload",
    )

    def __init__(self, connection: Http2Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.app, self.client, self.server = connection.app, connection.client, connection.server
        self.exchange: StreamExchange | None = None
        self.since_s = self.app.now_s
        self.pieces: list[bytes] = []
        self.body_bytes = 0
        self.upload: Upload | None = None
        self.has_come = False
        """All of the request."""
        self.is_answered = False
        self.has_sent = False
        """All of the answer has left."""
        self._unsent = bytearray()
        self._ends = False
        self._stuck_since_s: float | None = None
        self._room: asyncio.Event | None = None
        """While somebody waits until some of the answer has left."""
        self._is_paused = False
        self._owed_bytes = 0
        """That have come, and may not come again yet."""

    @property
    def is_begun(self) -> bool:
        is_taken = self.upload is not None and not self.upload.lacks
        return self.has_come or is_taken or self.is_answered

    @property
    def unsent_bytes(self) -> int:
        """Of its answer: the client does not let them come."""
        return len(self._unsent)

    @property
    def is_awaited(self) -> bool:
        """Whether its client has still to send what is needed to answer it."""
        return not self.has_come and not self.is_answered

    @property
    def waited_since(self) -> tuple[Waiting, float, str] | None:
        """Of a request that may be in a replica and waits for its client to send on, or to read; with its path."""
        exchange = self.exchange
        if exchange is None or exchange.is_over:
            return None
        if self._stuck_since_s is not None:
            return Waiting.BODY, self._stuck_since_s, exchange.path
        is_awaited = self.upload is not None and self.upload.is_awaited
        return (Waiting.BODY, self.since_s, exchange.path) if is_awaited else None

    def send_away(self) -> None:
        """Others want its place."""
        self.break_off(503, "others want the place of who keeps them waiting")

    # ---- the request -----------------------------------------------------------------------------------------

    def read_in_pieces(self) -> None:
        assert self.exchange is not None
        self.upload = self.exchange.upload = Upload(self)

    def owes(self, count: int) -> None:
        self._owed_bytes += count
        if not self._is_paused:
            self._pay()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._pay()

    def _pay(self) -> None:
        if self._owed_bytes:
            self.connection.acknowledge(self.number, self._owed_bytes)
            self._owed_bytes = 0

    def break_off(self, status: int, reason: str) -> None:
        """No more is taken of its body."""
        exchange = self.exchange
        if exchange is None or exchange.has_started:
            self.connection.reset(self, ErrorCodes.CANCEL)
            return
        work = exchange.work
        exchange.respond(refusal(status, reason))
        if work is not None:
            work()

    # ---- the answer ------------------------------------------------------------------------------------------

    def send_head(self, headers: list[tuple[bytes, bytes]], ends: bool) -> None:
        if self.connection.is_closing:
            return
        try:
            self.connection.h2.send_headers(self.number, headers, end_stream=ends)
        except H2Error:
            self.connection.left(self)
            return
        self.connection.flush_soon()
        if ends:
            self._has_sent_all()

    def send(self, data: bytes, ends: bool) -> None:
        self._unsent += data
        self._ends = self._ends or ends
        self.send_more()

    def send_more(self) -> None:
        """As much as the client lets come."""
        if not (self._unsent or self._ends) or self.has_sent:
            return
        try:
            is_last = self._send_frames()
        except H2Error:
            self.connection.left(self)
            return
        if is_last:
            self._has_sent_all()
            return
        if self._unsent and self._stuck_since_s is None:
            self._stuck_since_s = self.app.now_s
        if self._room is not None and len(self._unsent) < MOST_UNSENT_BYTES:
            self._room.set()

    def _send_frames(self) -> bool:
        """Whether the last one has gone."""
        h2 = self.connection.h2
        while self.connection.is_writable:
            count = min(len(self._unsent), h2.local_flow_control_window(self.number), h2.max_outbound_frame_size)
            is_last = self._ends and count == len(self._unsent)
            if count <= 0 and not is_last:
                break
            h2.send_data(self.number, bytes(self._unsent[:count]), end_stream=is_last)
            self.connection.count_sent(count)
            del self._unsent[:count]
            self._stuck_since_s = None
            self.connection.flush_soon()
            if is_last:
                return True
        return False

    def _has_sent_all(self) -> None:
        self.has_sent = True
        self.connection.sent(self)

    def is_stuck(self, since_s: float) -> bool:
        """Whether the client has let nothing come since then."""
        return self._stuck_since_s is not None and self._stuck_since_s < since_s

    async def drained(self) -> None:
        """Returns when the client has read enough of what was written; ClientLeft."""
        exchange = self.exchange
        assert exchange is not None
        while not exchange.is_over and len(self._unsent) >= MOST_UNSENT_BYTES:
            self._room = asyncio.Event()
            await self._room.wait()
        if exchange.is_over:
            raise ClientLeft

    def answered(self, exchange: Any) -> None:
        self.is_answered = True
        self.connection.answered(self)

    def abort(self) -> None:
        self.connection.reset(self, ErrorCodes.INTERNAL_ERROR)

    def lost(self) -> None:
        """There is nobody to answer."""
        if self.exchange is not None:
            self.exchange.leave()
        if self._room is not None:
            self._room.set()


class StreamExchange(Exchange):
    """Its answer is written as frames."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream, head: Head) -> None:
        super().__init__(stream, head)  # type: ignore[arg-type]
        self._stream = stream

    def respond(self, answer: tuple[int, Headers, bytes]) -> None:
        if self.is_over:
            return
        _, status, headers, body = self._checked(answer)
        self.status = status
        fields = self._fields(status, headers)
        if written.has_body("", status):
            announced = written.announced_length(headers) if self.head.method == "HEAD" and not body else None
            fields.append((b"content-length", b"%d" % (len(body) if announced is None else announced)))
        if not written.has_body(self.head.method, status):
            body = b""
        self.wrote_bytes = len(body)
        self._end()
        self._stream.send_head(fields, ends=not body)
        if body:
            self._stream.send(body, ends=True)

    def start(self, head: HttpHead) -> None:
        if self.is_over:
            return
        written.head(head.status, head.headers)
        self.status = head.status
        self.has_started = True
        fields = self._fields(head.status, head.headers)
        self._left = 0
        if written.has_body(self.head.method, head.status):
            self._left = written.announced_length(head.headers)
            if self._left is not None:
                fields.append((b"content-length", b"%d" % self._left))
        self._stream.send_head(fields, ends=False)

    def write(self, piece: bytes) -> None:
        if self.is_over or not piece:
            return
        if self._left is not None:
            piece = piece[: self._left]
            self._left -= len(piece)
        self.wrote_bytes += len(piece)
        self._stream.send(piece, ends=False)

    def finish(self) -> None:
        if self.is_over:
            return
        if self._left:
            self.abort()  # fewer bytes than were announced: only so does the client know
            return
        self._end()
        self._stream.send(b"", ends=True)

    def _fields(self, status: int, headers: Headers) -> list[tuple[bytes, bytes]]:
        lowered = [(name.lower(), value) for name, value in headers]
        return [
            (b":status", b"%d" % status),
            *(one for one in lowered if one[0] not in _OF_CONNECTION),
            (b"x-request-id", self.request_id.encode("latin-1")),
            *self.connection.app.default_headers,
        ]
