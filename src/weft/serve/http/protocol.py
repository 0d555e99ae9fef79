"""One connection of a client: HTTP/1.1 in, `Exchange`s out. Plugged into uvicorn's server in place of its own protocol,
because a front needs no task, no scope and no messages for each request, and must bound what a client can make it hold.

1. CON-1: at most one exchange of a connection is under way; requests sent ahead wait, and the client is not read on.
   Neither is one who has not read the last answer.
2. CON-2: a head has at most `max_head_bytes` and `MOST_HEADERS` headers, a body at most `max_body_bytes`.
3. CON-3: in no phase can a client stay longer than that phase's timeout: `sweep` is called for that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import httptools

from weft.serve.http import written
from weft.serve.http.bodies import refusal
from weft.serve.http.bounds import Waiting, bounded, send_away
from weft.serve.http.exchange import ClientLeft, Exchange
from weft.serve.http.heads import Head, unquoted
from weft.serve.http.messages import header_of
from weft.serve.http.upload import Upload

if TYPE_CHECKING:
    from weft.serve.http.app import HttpApp

MOST_HEADERS = 256
LINGER_S = 2.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMING_BYTES = 8
"""At most, of each byte of a body: a chunk of one byte has five."""


class Phase(IntEnum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3
    LINGER = 4
    """Refused; what the client still sends is thrown away, so that it can read why."""


_WAITING = {Phase.HEAD: Waiting.HEAD, Phase.IDLE: Waiting.IDLE, Phase.BODY: Waiting.BODY}


class HttpProtocol(asyncio.Protocol):
    """Made by uvicorn's server, with its arguments."""

    def __init__(self, app: HttpApp, config: Any, server_state: Any, app_state: Any = None, _loop: Any = None) -> None:
        self.app = app
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._options = app.options
        self._parser: Any = httptools.HttpRequestParser(self)
        self.transport: Any = None
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self._phase = Phase.IDLE
        self._since_s = app.now_s
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        """That have come and belong to no body: also between the chunks of one and behind it."""
        self._first_piece = b""
        """What is parsed now, if a request begins with it."""
        self._unsure = b""
        """The first bytes of a connection, while they may be those of HTTP/2."""
        self._has_begun = False
        self._is_at_boundary = True
        """Whether the parser is between two requests."""
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._arriving: Exchange | None = None
        self._current: Exchange | None = None
        self._ahead: deque[Exchange] = deque()
        self._refused: tuple[int, str] | None = None
        self._is_websocket = False
        self._is_closing = False
        self._writable: asyncio.Event | None = None
        """None while the client reads fast enough."""
        self._stuck_since_s = 0.0

    # ---- the transport's calls -----------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        connections = self._server_state.connections
        connections.add(self)
        if len(connections) > self.app.most_connections and not send_away(connections - {self}):
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server_state.connections.discard(self)
        self._is_closing = True
        if self._writable is not None:
            self._writable.set()
        if self._current is not None:
            self._current.leave()
        self._ahead.clear()
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._phase is Phase.IDLE:
            known = self.app.heads.find(data) if self._is_at_boundary else None
            if known is not None:
                self._has_begun = True
                exchange = Exchange(self, known[0])
                exchange.body = known[1]
                self._begin(exchange)
                return
            self._enter(Phase.HEAD)
            self._first_piece = data
        if not self._has_begun:
            data = self._first_piece = self._unsure + data
            if data.startswith(PREFACE):
                from weft.serve.http.http2 import take_over

                take_over(self, self._server_state, data)
                return
            self._unsure, self._has_begun = data, not PREFACE.startswith(data)
            if not self._has_begun:
                return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            self._first_piece = b""
        except httptools.HttpParserUpgrade:
            if self._is_websocket:
                self._upgrade()
            return  # else it is answered like any other request, and the connection ends with that
        except httptools.HttpParserError:
            status, reason = self._refused or (400, "this is not HTTP")
            self._refuse(status, reason)
            return
        if self._head_bytes > self._options.max_head_bytes:
            self._refuse(431, f"the head of a request must have at most {self._options.max_head_bytes} bytes")

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self._stuck_since_s = self.app.now_s

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        if self._current is None and not self._is_closing:
            if self._ahead:
                self._begin_next()
            else:
                self.transport.resume_reading()

    # ---- the parser's calls ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_at_boundary = False
        self._url = b""
        self._headers = []
        self._pieces = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._headers) >= MOST_HEADERS:
            self._stop(431, f"a request must have at most {MOST_HEADERS} headers")
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._phase = Phase.BODY
        self._head_bytes = 0
        most_bytes = self._options.max_head_bytes
        method = parser.get_method()
        path, query = self._target(method)
        is_upgrade = parser.should_upgrade()
        head = Head(
            method.decode("ascii"),
            path,
            query,
            tuple(self._headers),
            parser.get_http_version(),
            parser.should_keep_alive() and not is_upgrade,
            self._options.scheme,
        )
        exchange = self._arriving = Exchange(self, head)
        noted = head.noted
        if is_upgrade:
            wanted = noted.get(b"upgrade", b"").lower()
            self._is_websocket = wanted == b"websocket" and self._config.ws_protocol_class is not None
        if len(self._url) + sum(len(name) + len(value) + 4 for name, value in head.headers) > most_bytes:
            self._stop(431, f"the head of a request must have at most {most_bytes} bytes")
        self._check_for_two_meanings(head)
        if head.body_bytes > self._options.max_body_bytes:
            self._stop(413, f"the body must have at most {self._options.max_body_bytes} bytes")
        if noted.get(b"expect", b"").lower() == b"100-continue" and self._current is None:
            self.write(written.CONTINUE)
        is_next = self._current is None and not self._ahead and self._writable is None
        if is_next and not self._is_websocket and self.app.reads_pieces(exchange):
            exchange.upload = Upload(self.transport)
            self._current = exchange
            self.app.begin(exchange)

    def _check_for_two_meanings(self, head: Head) -> None:
        """What a proxy in front of this one might read in another way."""
        if head.http_version not in ("1.0", "1.1"):
            self._stop(505, "the versions that are understood are HTTP/1.0 and HTTP/1.1")
        codings = [value.lower() for name, value in head.headers if name == b"transfer-encoding"]
        if codings and (codings != [b"chunked"] or head.http_version != "1.1"):
            self._stop(501, "the only transfer-encoding that is understood is chunked, in HTTP/1.1")
        hosts = sum(name == b"host" for name, _ in head.headers)
        if hosts > 1 or (hosts == 0 and head.http_version == "1.1"):
            self._stop(400, "a request must have one host")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._head_bytes = max(0, self._head_bytes - (1 + FRAMING_BYTES) * len(body))
        if self._body_bytes > self._options.max_body_bytes:
            self._stop(413, f"the body must have at most {self._options.max_body_bytes} bytes")
        if self._arriving is not None and self._arriving.upload is not None:
            self._arriving.upload.feed(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._is_at_boundary = True
        exchange = self._arriving
        if exchange is None or self._is_websocket:
            return
        self._arriving = None
        if exchange.upload is not None:
            exchange.upload.finish()
            self._enter(Phase.IDLE if self._current is None else Phase.ANSWER)
            return
        pieces, self._pieces = self._pieces, []
        exchange.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._current is None and not self._ahead and self._writable is None:
            if self._first_piece:
                self.app.heads.remember(self._first_piece, exchange.head, exchange.body)
            self._begin(exchange)
        else:
            self._phase = Phase.ANSWER
            self._ahead.append(exchange)
            self.transport.pause_reading()

    # ---- exchanges -------------------------------------------------------------------------------------------

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        self._phase = Phase.ANSWER
        self.app.begin(exchange)

    def answered(self, exchange: Exchange) -> None:
        """The exchange that was under way has its answer."""
        self._current = None
        self._server_state.total_requests += 1
        if exchange is self._arriving and not self._is_closing:
            self._linger()  # it was answered before its body had come, which nobody reads now
        elif not exchange.keeps_alive or self._is_closing:
            self.close()
        elif self._ahead:
            asyncio.get_running_loop().call_soon(self._begin_next)  # not here: answers at once would nest
        else:
            if self._writable is not None:
                self.transport.pause_reading()
            if self._arriving is None:
                self._enter(Phase.IDLE)

    def _begin_next(self) -> None:
        if self._is_closing or self._current is not None or not self._ahead or self._writable is not None:
            return
        exchange = self._ahead.popleft()
        if not self._ahead:
            self.transport.resume_reading()
        self._begin(exchange)

    def write(self, data: bytes) -> None:
        if not self._is_closing:
            self.transport.write(data)

    async def drained(self) -> None:
        """Returns when the client has read enough of what was written; ClientLeft."""
        if self._writable is not None:
            await self._writable.wait()
        if self._is_closing:
            raise ClientLeft

    def close(self) -> None:
        self._is_closing, self._stuck_since_s = True, self.app.now_s
        self.transport.close()

    def abort(self) -> None:
        self._is_closing = True
        self.transport.abort()

    def shutdown(self) -> None:
        """By the server, which wants to end."""
        if self._current is None:
            self.close()
        else:
            self._current.keeps_alive = False

    def sweep(self, now_s: float) -> None:
        """End what has taken too long (CON-3)."""
        is_unread = self._writable is not None or self._is_closing
        if is_unread and now_s - self._stuck_since_s > self._options.send_timeout_s:
            self.abort()
        elif self._phase is Phase.LINGER and now_s - self._since_s > LINGER_S:
            self.transport.close()
        elif self._is_closing:
            return
        elif self._phase is Phase.IDLE and now_s - self._since_s > self._options.keep_alive_s:
            self.close()
        elif self._phase is Phase.HEAD and now_s - self._since_s > self._options.head_timeout_s:
            self._refuse(408, "the head of the request did not come in time")
        elif self._phase is Phase.BODY and now_s - self._since_s > self._options.body_timeout_s:
            self._refuse(408, "the body of the request did not come in time")

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since_s = self.app.now_s

    def _target(self, method: bytes) -> tuple[str, bytes]:
        """(path, query) of the request's target."""
        url = self._url
        if not url.startswith(b"/") and method not in (b"OPTIONS", b"CONNECT"):
            try:
                parsed = httptools.parse_url(url)
            except httptools.HttpParserInvalidURLError:
                self._stop(400, "the request's target is malformed")
            return unquoted(parsed.path or b"/"), parsed.query or b""
        path, _, query = url.partition(b"?")
        return unquoted(path), query

    def _stop(self, status: int, reason: str) -> None:
        """Out of the parser; `data_received` answers."""
        self._refused = (status, reason)
        raise ValueError(reason)

    def _refuse(self, status: int, reason: str) -> None:
        """The client cannot be understood any more: answer, and close when what is under way has its answer."""
        if self._current is not None and self._current is self._arriving:
            self._break_off(self._current, status, reason)
            return
        if self._current is not None:
            self._current.keeps_alive = False
            self._ahead.clear()
            self._arriving = None
            self.transport.pause_reading()
            return
        answer = refusal(status, reason)
        self.app.count_refusal(status)
        length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body)
        self.write(written.head(answer.status, answer.headers) + self.app.date_line + length + answer.body)
        self._linger()

    def _break_off(self, exchange: Exchange, status: int, reason: str) -> None:
        """What answers the exchange reads its body, of which no more is taken."""
        if exchange.has_started:
            self.abort()
            return
        work, exchange.keeps_alive = exchange.work, False
        exchange.respond(refusal(status, reason))
        if work is not None:
            work()

    def _linger(self) -> None:
        """Close once the client has read the answer: at once would cut it off while it sends."""
        self._is_closing, self._stuck_since_s = True, self.app.now_s
        self._enter(Phase.LINGER)
        self.transport.resume_reading()
        if self.transport.can_write_eof():  # TLS cannot: its client knows by the answer's length
            self.transport.write_eof()

    def _upgrade(self) -> None:
        """The rest of the connection is a WebSocket: uvicorn's protocol for that takes over."""
        if self._current is not None:
            self._refuse(400, "a WebSocket cannot begin before the last request has its answer")
            return
        if self._arriving is None or not self.app.has_websockets(self._arriving.path):
            self._refuse(404, "no application has a WebSocket at this path")
            return
        if not _has_own_origin(self._arriving.head, self._options.websocket_origins):
            self._refuse(403, "a page of another site may not open this WebSocket: name it in websocket_origins")
            return
        self._server_state.connections.discard(self)
        lines = [b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)]
        lines += [b"%b: %b" % one for one in self._headers]
        protocol = bounded(self._config.ws_protocol_class)(
            config=self._config, server_state=self._server_state, app_state=self._app_state
        )
        protocol.guard(self.app, self._arriving.path)
        protocol.connection_made(self.transport)
        protocol.data_received(b"\r\n".join(lines) + b"\r\n\r\n")
        self.transport.set_protocol(protocol)

    def send_away(self) -> None:
        """Others want its place, or that of its request in a replica."""
        is_under_way = self._current is not None
        if self._writable is not None:
            self.abort()
            return
        self._refuse(503, "others want the place of who keeps them waiting")
        if not is_under_way:
            self.transport.close()

    @property
    def unread(self) -> tuple[int, float]:
        """Bytes of what was answered, and since when."""
        is_unread = self._writable is not None or self._is_closing
        return self.transport.get_write_buffer_size() if is_unread else 0, self._stuck_since_s

    @property
    def waited_since(self) -> tuple[Waiting, float, str] | None:
        """Of a client that has not asked, or not to the end, or does not read; with the path of its request where that
        may be in a replica. None where it is not the client who is waited for."""
        kind, exchange = _WAITING.get(self._phase), self._current
        if self._is_closing:
            return None
        if exchange is not None and self._writable is not None:
            return Waiting.BODY, self._stuck_since_s, exchange.path
        if kind is None or exchange not in (None, self._arriving):
            return None
        is_awaited = exchange is not None and exchange.upload is not None and exchange.upload.is_awaited
        return kind, self._since_s, exchange.path if exchange is not None and is_awaited else ""


def _address(found: Any) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None


def _has_own_origin(head: Head, allowed: tuple[str, ...]) -> bool:
    """A browser says which site's page opens a WebSocket, and sends its cookies whichever it is."""
    origin = header_of(head.headers, b"origin").lower()
    if not origin or "*" in allowed or origin in allowed:
        return True
    return origin.partition("://")[2] == header_of(head.headers, b"host").lower()
