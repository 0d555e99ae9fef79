"""One connection of a client that speaks HTTP/2: each stream is an `Exchange`. It takes a connection over from
`HttpProtocol` when that begins with HTTP/2's preface, as clients do after TLS has agreed on "h2", and without TLS where
they know it of an address. Frames, header compression and flow control are h2's. There are no WebSockets in it: clients
open a connection of HTTP/1.1 for them.

1. H2-1: at most `MOST_STREAMS` requests of a connection are under way. The bodies that arrive for it have together at
   most `max_body_bytes`: what is more is told REFUSED_STREAM, which says that it has not begun and may be sent again.
   So are requests that have not come whole where all connections have very many of these.
2. H2-2: who does not read is not read; and frames that ask for nothing (resets, pings, settings, windows for what was
   not sent) are counted, and bytes of which h2 tells nothing: too many end the connection.
3. H2-3: in no state can a client stay longer than that state's timeout: `sweep` is called for that.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    UnknownFrameReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from weft.serve.http.bodies import refusal
from weft.serve.http.bounds import MOST_IDLE_FRAMES, SLICE_BYTES, Waiting
from weft.serve.http.halves import HalfStreams
from weft.serve.http.heads import Head
from weft.serve.http.messages import Headers
from weft.serve.http.streams import BadRequest, Stream, StreamExchange, head_of

if TYPE_CHECKING:
    from weft.serve.http.app import HttpApp
    from weft.serve.http.protocol import HttpProtocol

MOST_STREAMS = 100
LINGER_S = 2.0
"""So long a client may still send of a request that has its answer."""
STREAM_WINDOW_BYTES = 256 * 1024
CONNECTION_WINDOW_BYTES = 1024 * 1024
_WORTH_WINDOWS_BYTES = 1024
"""Of an answer, in one frame: for less its client opens no windows."""
_IDLE = (PingAckReceived, PingReceived, PriorityUpdated, UnknownFrameReceived)
_MOST_SILENT_SLICES = 60


class Http2Connection(asyncio.Protocol):
    """On the front's loop. `server_state` is uvicorn's."""

    def __init__(self, app: HttpApp, server_state: Any, client: Any, server: Any) -> None:
        self.app = app
        self.client = client
        self.server = server
        self.transport: Any = None
        self._server_state = server_state
        self._options = app.options
        self._streams: dict[int, Stream] = {}
        self._arriving_bytes = 0
        self._last_stream = 0
        self._halves = HalfStreams(app)
        self._idle_frames = 0
        self._silent_slices = 0
        """Of which h2 tells nothing and that are no part of a body or a head, since the last sweep."""
        self._most_silent_slices = _MOST_SILENT_SLICES + app.options.max_head_bytes // SLICE_BYTES
        self._owed_windows = 0
        """So often the client may still open a window for what was sent to it."""
        self._idle_since_s = app.now_s
        self._stuck_since_s: float | None = None
        """While the client does not read."""
        self._is_ending = False
        """No stream is begun any more."""
        self.is_closing = False
        self._has_to_flush = False
        config = H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = H2Connection(config)
        most_bytes = self._options.max_head_bytes
        told = {
            SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: most_bytes,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
        }
        self.h2.local_settings = Settings(client=False, initial_values=told)
        self.h2.decoder.max_header_list_size = most_bytes

    # ---- the transport's calls -----------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server_state.connections.add(self)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - 65_535)
        self.flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server_state.connections.discard(self)
        self.is_closing = True
        for stream in list(self._streams.values()):
            stream.lost()
        self._streams.clear()
        self._halves.count(-self._halves.open)

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        rest = memoryview(data)
        while rest and not self.is_closing:
            try:
                events = self.h2.receive_data(bytes(rest[:SLICE_BYTES]))
                self._silent_slices += not events
                for event in events:
                    self._take(event)
            except H2Error:  # h2 has written why
                self._end_now()
                return
            if self._idle_frames > MOST_IDLE_FRAMES or self._silent_slices > self._most_silent_slices:
                self.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
                self._end_now()
                return
            rest = rest[SLICE_BYTES:]
        self.flush()

    def pause_writing(self) -> None:
        self._stuck_since_s = self.app.now_s
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._stuck_since_s = None
        self.transport.resume_reading()
        self._send_all()

    # ---- what h2 tells ---------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, DataReceived):
            self._take_data(event)
        elif isinstance(event, StreamEnded):
            if (stream := self._streams.get(event.stream_id or 0)) is not None:
                self._has_come(stream)
        elif isinstance(event, StreamReset):
            self._idle_frames += 1
            if (stream := self._streams.get(event.stream_id or 0)) is not None:
                self.left(stream)
        elif isinstance(event, WindowUpdated):
            if self._owed_windows:
                self._owed_windows -= 1
            else:
                self._idle_frames += 1
            if (stream := self._streams.get(event.stream_id or 0)) is not None:
                stream.send_more()
            elif not event.stream_id:
                self._send_all()
        elif isinstance(event, RemoteSettingsChanged):
            self._idle_frames += 1
            self._send_all()
        elif isinstance(event, _IDLE):
            self._idle_frames += 1
        elif isinstance(event, ConnectionTerminated):
            self._is_ending = True
            self._close_if_done()

    def _begin(self, event: RequestReceived) -> None:
        number = event.stream_id or 0
        self._last_stream, self._silent_slices = number, 0
        is_whole = event.stream_ended is not None
        if self._is_ending or not (is_whole or self._halves.may_begin(self._server_state.connections - {self})):
            self._idle_frames += 1
            self.h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        stream = self._streams[number] = Stream(self, number)
        if not is_whole:
            self._halves.count(1)
        headers: Headers = tuple(event.headers or ())
        try:
            head = head_of(headers, self._options)
        except BadRequest as error:
            exchange = stream.exchange = StreamExchange(stream, Head("", "", b"", (), "2", True, self._options.scheme))
            exchange.request_id = self.app.new_id()
            exchange.respond(refusal(error.status, error.reason))
            return
        exchange = stream.exchange = StreamExchange(stream, head)
        if event.stream_ended is not None:
            return  # which is told next
        if head.noted.get(b"expect", b"").lower() == b"100-continue":
            self.h2.send_headers(number, [(b":status", b"100")])
        if self.app.reads_pieces(exchange, b"content-length" not in head.noted):
            stream.read_in_pieces()
            self.app.begin(exchange)

    def _take_data(self, event: DataReceived) -> None:
        stream = self._streams.get(event.stream_id or 0)
        data, counted = event.data or b"", event.flow_controlled_length or 0
        self._silent_slices = max(0, self._silent_slices - len(data) // SLICE_BYTES - 1)
        if not data:
            self._idle_frames += 1
        if stream is None or stream.is_answered:
            self.acknowledge(event.stream_id or 0, counted)
            return
        stream.body_bytes += len(data)
        if stream.body_bytes > self._options.max_body_bytes:
            self.acknowledge(stream.number, counted)
            stream.break_off(413, f"the body must have at most {self._options.max_body_bytes} bytes")
            return
        if stream.upload is not None:
            stream.owes(counted)
            stream.upload.feed(data)
            return
        self.acknowledge(stream.number, counted)
        self._arriving_bytes += len(data)
        stream.pieces.append(data)
        if self._arriving_bytes > self._options.max_body_bytes:  # of several streams: H2-1
            self.reset(stream, ErrorCodes.REFUSED_STREAM)

    def _has_come(self, stream: Stream) -> None:
        """All that the client sends of a request."""
        stream.has_come = True
        self._halves.count(-1)
        exchange = stream.exchange
        if stream.upload is not None:
            stream.upload.finish()
        elif exchange is not None and not stream.is_answered:
            exchange.body = b"".join(stream.pieces)
            self._drop_pieces(stream)
            self.app.begin(exchange)
        elif stream.has_sent:
            self._forget(stream)

    # ---- streams ---------------------------------------------------------------------------------------------

    def answered(self, stream: Stream) -> None:
        """It has its answer, of which some may still have to be sent."""
        self._drop_pieces(stream)
        self._server_state.total_requests += 1

    def sent(self, stream: Stream) -> None:
        """Its answer has left, to the end."""
        if stream.has_come:
            self._forget(stream)
        else:  # it could not read the answer while it sends, if it were told to stop at once
            stream.since_s = self.app.now_s

    def acknowledge(self, stream: int, count: int) -> None:
        """So many bytes more may come."""
        if count and not self.is_closing:
            with contextlib.suppress(H2Error):  # a stream that has ended meanwhile
                self.h2.acknowledge_received_data(count, stream)
            self.flush_soon()

    def reset(self, stream: Stream, code: ErrorCodes) -> None:
        """End it for both sides."""
        if not self.is_closing and stream.number in self._streams:
            with contextlib.suppress(H2Error):  # its client has just ended it, too
                self.h2.reset_stream(stream.number, code)
            self.flush_soon()
        self.left(stream)

    def left(self, stream: Stream) -> None:
        """There is nobody any more who reads its answer."""
        self._forget(stream)
        stream.lost()

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.number, None) is not None and not stream.has_come:
            self._halves.count(-1)
        self._drop_pieces(stream)
        if not self._streams:
            self._idle_since_s = self.app.now_s
            self._close_if_done()

    def _drop_pieces(self, stream: Stream) -> None:
        if stream.pieces:
            self._arriving_bytes -= sum(map(len, stream.pieces))
            stream.pieces = []

    def _send_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.send_more()

    # ---- the connection --------------------------------------------------------------------------------------

    def count_sent(self, count: int) -> None:
        """A frame with so many bytes: its client may open a window for it, and the connection's."""
        if count >= _WORTH_WINDOWS_BYTES:
            self._owed_windows += 2

    @property
    def is_writable(self) -> bool:
        return self._stuck_since_s is None and not self.is_closing

    def flush_soon(self) -> None:
        """With the loop's next round: what one has written then goes in one piece."""
        if not self._has_to_flush:
            self._has_to_flush = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._has_to_flush = False
        if not self.is_closing and (data := self.h2.data_to_send()):
            self.transport.write(data)

    def shutdown(self) -> None:
        """By the server, which wants to end: what is under way is answered, and the client told what that is."""
        if not self._is_ending and not self.is_closing:
            self._is_ending = True
            self.flush()
            # h2 itself would answer nothing more after its own
            self.transport.write(GoAwayFrame(0, last_stream_id=self._last_stream, error_code=0).serialize())
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._is_ending and not self._streams:
            self._end_now()

    def _end_now(self) -> None:
        if not self.is_closing:
            self.flush()
            self.is_closing = True
            self._stuck_since_s = self.app.now_s
            self.transport.close()

    def sweep(self, now_s: float) -> None:
        """End what has taken too long (H2-3)."""
        self._idle_frames = self._silent_slices = 0
        if self._stuck_since_s is not None and now_s - self._stuck_since_s > self._options.send_timeout_s:
            self.is_closing = True
            self.transport.abort()
            return
        if self.is_closing:
            return
        for stream in list(self._streams.values()):
            if stream.has_sent and now_s - stream.since_s > LINGER_S:
                self.reset(stream, ErrorCodes.NO_ERROR)
            elif stream.is_awaited and now_s - stream.since_s > self._options.body_timeout_s:
                stream.break_off(408, "the body of the request did not come in time")
            elif stream.is_stuck(now_s - self._options.send_timeout_s):
                self.reset(stream, ErrorCodes.CANCEL)
        if not self._streams and now_s - self._idle_since_s > self._options.keep_alive_s:
            self.shutdown()
        self.flush()

    def send_away(self) -> None:
        """Others want its place."""
        for stream in list(self._streams.values()):
            self.reset(stream, ErrorCodes.REFUSED_STREAM)
        self.shutdown()

    @property
    def unread(self) -> tuple[int, float]:
        """Bytes of what was answered, and since when."""
        stuck = self.transport.get_write_buffer_size() if self._stuck_since_s is not None else 0
        unsent = sum(stream.unsent_bytes for stream in self._streams.values())
        return stuck + unsent, self._idle_since_s if self._stuck_since_s is None else self._stuck_since_s

    @property
    def streams(self) -> list[Stream]:
        """Each may have a place in a replica."""
        return list(self._streams.values())

    @property
    def waited_since(self) -> tuple[Waiting, float, str] | None:
        """Of a client that has not asked, or not to the end; None where one is being answered."""
        if self.is_closing or any(stream.is_begun for stream in self._streams.values()):
            return None
        if not self._streams:
            return Waiting.IDLE, self._idle_since_s, ""
        return Waiting.BODY, min(stream.since_s for stream in self._streams.values()), ""


def take_over(first: HttpProtocol, server_state: Any, data: bytes) -> None:
    """The connection is one of HTTP/2, from its first byte."""
    server_state.connections.discard(first)
    protocol = Http2Connection(first.app, server_state, first.client, first.server)
    first.transport.set_protocol(protocol)
    protocol.connection_made(first.transport)
    protocol.data_received(data)
