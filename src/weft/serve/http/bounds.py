"""What bounds a front's connections that are not `HttpProtocol`'s: WebSockets, and those that are about to speak TLS.

They are swept like the others, and give way when others want their place: that of a connection, or that of a request in
a replica. Runs on the front's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.serve.crowds import CROWDED_S, crowds_first, patience_s
from weft.serve.http.messages import Kind, find_route

if TYPE_CHECKING:
    from weft.serve.http.app import HttpApp, Route

REST_S = 0.05
MOST_UNREAD_BYTES = 256 * 1024 * 1024
"""Of answers, by all clients together."""


class Waiting(IntEnum):
    """What a connection is about that gives its place to others; the first go first."""

    HEAD = 0
    IDLE = 1
    BODY = 2
    WEBSOCKET = 3


MOST_IDLE_FRAMES = 200
"""Between two sweeps, of a WebSocket or of HTTP/2, that carry or ask for nothing: pings, empty parts, resets."""
SLICE_BYTES = 4 * 1024
"""Of frames, parsed at once: some hundreds of them, before they are counted."""


class WebSocketBounds(asyncio.Protocol):
    """Stands before uvicorn's protocol, which waits without end for a client that does not read."""

    transport: Any
    client: tuple[str, int] | None
    front: HttpApp
    path = ""
    made_s = 0.0
    _is_stuck = False
    """The client does not read what is written."""
    _fine_s = 0.0
    """When it last was not."""
    _idle_frames = 0
    """That carried nothing, since the last sweep."""
    frames: list[Any]
    """Of the message that is coming."""

    def guard(self, front: HttpApp, path: str) -> None:
        """To be called first."""
        self.front, self.path = front, path
        self.made_s = self._fine_s = front.now_s

    def data_received(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            super().data_received(bytes(rest[:SLICE_BYTES]))
            rest = rest[SLICE_BYTES:]
            if self._idle_frames > MOST_IDLE_FRAMES:
                self.send_away()
        if self._is_stuck and hasattr(self, "read_paused"):
            self.transport.pause_reading()  # it could send pings without end, and read none of the answers

    def handle_ping(self, *event: Any) -> None:
        self._idle_frames += 1
        super().handle_ping(*event)  # type: ignore[misc]

    def handle_pong(self, event: Any) -> None:
        self._idle_frames += 1
        super().handle_pong(event)  # type: ignore[misc]

    def handle_cont(self, event: Any) -> None:
        """In one piece with what came before: uvicorn would keep an object of each, however small."""
        if not event.data:
            self._idle_frames += 1
        if not isinstance(self.frames[0], bytearray):
            self.frames = [bytearray(self.frames[0])]
        self.frames[0] += event.data
        if event.fin:
            self.frames = [bytes(self.frames[0])]
            self.send_receive_event_to_app()  # type: ignore[attr-defined]

    def pause_writing(self) -> None:
        self._is_stuck = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_stuck = False
        super().resume_writing()
        if getattr(self, "read_paused", None) is False:
            self.transport.resume_reading()

    def sweep(self, now_s: float) -> None:
        """Cut off a client that leaves unread what is written, or that the connection ends."""
        self._idle_frames = 0
        if not self._is_stuck and not self.transport.is_closing():
            self._fine_s = now_s
        elif now_s - self._fine_s > self.front.options.send_timeout_s:
            self.transport.abort()

    def send_away(self) -> None:
        """Others want its place."""
        self.shutdown()  # type: ignore[attr-defined]
        if self._is_stuck:
            self.transport.abort()

    @property
    def waited_since(self) -> tuple[Waiting, float, str] | None:
        return None if self.transport.is_closing() else (Waiting.WEBSOCKET, self.made_s, self.path)

    @property
    def unread(self) -> tuple[int, float]:
        """Bytes of what was sent, and since when."""
        return self.transport.get_write_buffer_size() if self._is_stuck else 0, self._fine_s


@functools.cache
def bounded(websocket: type[asyncio.Protocol]) -> type[Any]:
    """uvicorn's class for WebSockets, with bounds."""
    return type("BoundedWebSocket", (WebSocketBounds, websocket), {})


class Handshake:
    """A connection before it speaks TLS. The loop's own server would wait a minute, and tell of it only then."""

    def __init__(self, app: HttpApp, taken: socket.socket, client: Any, context: ssl.SSLContext, made: Any) -> None:
        self.client = client
        self._app = app
        self._made_s = app.now_s
        self._is_over = False
        self._taken = taken
        self._work = app.spawn(self._shake_hands(context, made))

    async def _shake_hands(self, context: ssl.SSLContext, made: Any) -> None:
        with contextlib.suppress(OSError):  # it sent something else, or left
            await asyncio.get_running_loop().connect_accepted_socket(made, self._taken, ssl=context)

    def when_over(self, call: Callable[[], None]) -> None:
        self._work.add_done_callback(lambda _: call())

    def sweep(self, now_s: float) -> None:
        if now_s - self._made_s > self._app.options.head_timeout_s:
            self.send_away()

    def send_away(self) -> None:
        """Others want its place."""
        self._is_over = True
        self._work.cancel()
        self._taken.close()

    shutdown = send_away
    unread = (0, 0.0)

    @property
    def waited_since(self) -> tuple[Waiting, float, str] | None:
        return None if self._is_over else (Waiting.HEAD, self._made_s, "")


async def accept_encrypted(
    app: HttpApp, listener: socket.socket, config: Any, made: Callable[[], Any], connections: set[Any]
) -> None:
    """Take connections and have each shake hands by the context that `config` has then, until this is cancelled."""
    listener.setblocking(False)
    while True:
        try:
            taken, client = await asyncio.get_running_loop().sock_accept(listener)
        except OSError:  # that one left, or no descriptor is left
            await asyncio.sleep(REST_S)
            continue
        if len(connections) >= app.most_connections and not send_away(connections):
            taken.close()
            continue
        arrived = Handshake(app, taken, client, config.ssl, made)
        connections.add(arrived)
        arrived.when_over(partial(connections.discard, arrived))


def send_away(connections: Iterable[Any]) -> int:
    """A part of those that keep others from their place: half heads before idle ones before half bodies before
    WebSockets, from the address that has most of them, the oldest first; how many there were."""
    waiting = [(*since, one) for one in connections if (since := one.waited_since) is not None]
    if not waiting:
        return 0
    kind = min(waiting, key=lambda one: one[0])[0]
    alike = [(since_s, _host(one), one) for its, since_s, _, one in waiting if its == kind]
    for one in crowds_first(alike)[: 1 + len(alike) // 16]:
        one.send_away()
    return len(alike)


def free_places(routes: Mapping[str, Route], connections: Iterable[Any], now_s: float) -> None:
    """Where requests wait for a replica, as many others give way to them: first those whose client does not send on or
    does not read, then WebSockets. To be called again and again."""
    for prefix, route in routes.items():
        if not (wanted := 0 if route.kind is Kind.WHOLE else route.router.waiting):
            route.crowded_since_s = None
        elif route.crowded_since_s is None:
            route.crowded_since_s = now_s
        elif now_s - route.crowded_since_s >= CROWDED_S:
            holders = (holder for one in connections for holder in getattr(one, "streams", (one,)))
            kept = [(*since, one) for one in holders if (since := one.waited_since) is not None and since[2]]
            kept = [one for one in kept if _route_of(routes, one[2]) == prefix]
            before_s = now_s - patience_s(len(kept), wanted)
            kept = [one for one in kept if one[1] <= before_s]
            for kind in sorted({one[0] for one in kept}):
                alike = [(since_s, _host(one), one) for its, since_s, _, one in kept if its == kind]
                those = crowds_first(alike)[:wanted]
                for one in those:
                    one.send_away()
                wanted -= len(those)


def bound_unread(connections: Iterable[Any]) -> None:
    """Cut off clients that leave too much unread of what was answered: of the address that leaves most, the oldest
    first. To be called again and again."""
    unread = [(*found, one) for one in connections if (found := one.unread)[0]]
    total = sum(count for count, _, _ in unread)
    if total <= MOST_UNREAD_BYTES:
        return
    by_host: Counter[str] = Counter()
    for count, _, one in unread:
        by_host[_host(one)] += count
    for count, _, one in sorted(unread, key=lambda each: (-by_host[_host(each[2])], each[1])):
        one.transport.abort()
        total -= count
        if total <= MOST_UNREAD_BYTES:
            return


def _route_of(routes: Mapping[str, Route], path: str) -> str:
    found = find_route(routes, path)
    return found[0] if found is not None else ""


def _host(connection: Any) -> str:
    return connection.client[0] if connection.client else ""
