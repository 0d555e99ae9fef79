"""Clients that take all places of a front, or have it hold what they do not read, for as long as they are let."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace

import h2.connection
import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from waiting import wait_until
from weft import serve
from weft.serve.http.bounds import Waiting, free_places
from weft.serve.http.messages import Kind

MOST = 40
DEADLINE_S = 30
HEAD = b"POST /echo HTTP/1.1\r\nhost: x\r\n"


async def push(socket: WebSocket) -> None:
    await socket.accept()
    while True:
        await socket.send_bytes(bytes(1 << 16))


async def listen(socket: WebSocket) -> None:
    await socket.accept()
    async for _ in socket.iter_bytes():
        pass


async def measure(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(str(len(await socket.receive_bytes())))


async def size(request: Request) -> Response:
    return Response(str(len(await request.body())))


app = Starlette(
    routes=[
        WebSocketRoute("/push", push),
        WebSocketRoute("/listen", listen),
        WebSocketRoute("/size", measure),
        Route("/size", size, methods=["POST"]),
    ]
)


@serve.deployment(max_ongoing_requests=1000)
@serve.ingress(app)
class Sockets:
    pass


@serve.deployment(max_ongoing_requests=2)
@serve.ingress(app)
class Few:
    pass


@serve.deployment
async def echo(value: str = "") -> str:
    return value


@pytest.fixture(scope="module")
def port(shared_weft_session: ModuleType) -> Iterator[int]:
    address = serve.start(http_options=serve.HTTPOptions(port=0, max_connections=MOST, send_timeout_s=0.5))
    serve.run(Sockets.bind(), name="sockets", route_prefix="/sockets")
    serve.run(Few.bind(), name="few", route_prefix="/few")
    serve.run(echo.bind(), name="echo", route_prefix="/echo")
    yield httpx.URL(address).port or 0
    serve.shutdown()


def connected(port: int, sent: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    made.sendall(sent)
    return made


def websocket(port: int, path: str, app: bytes = b"sockets") -> socket.socket:
    key = base64.b64encode(os.urandom(16))
    upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: " + key
    return connected(port, b"GET /%b%b HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % (app, path.encode(), upgrade))


def streams(count: int) -> bytes:
    """HTTP/2: requests of one connection, with a byte of each body."""
    made = h2.connection.H2Connection()
    made.initiate_connection()
    for number in range(1, 2 * count, 2):
        made.send_headers(
            number, [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/few/size")]
        )
        made.send_data(number, b"a")
    return bytes(made.data_to_send())


def held(port: int) -> int:
    """Connections that the front has."""
    return sum(one.laddr.port == port and one.status == "ESTABLISHED" for one in psutil.net_connections("tcp"))


def waiting(port: int, app: str) -> int:
    """Requests that no replica has."""
    metrics = httpx.get(f"http://127.0.0.1:{port}/-/metrics", timeout=DEADLINE_S).text
    (found,) = re.findall(rf'^weft_serve_waiting{{deployment="{app}:.*"}} (\d+)$', metrics, re.MULTILINE)
    return int(found)


def status(port: int) -> int:
    with connected(port, b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n") as made:
        return int(made.recv(4096).split()[1])


@pytest.mark.parametrize("what", ["half bodies", "websockets"])
def test_who_holds_all_places_gives_way_to_others(port: int, what: str) -> None:
    with ExitStack() as strangers:
        for _ in range(MOST + 1):
            made = (
                websocket(port, "/listen")
                if what == "websockets"
                else connected(port, HEAD + b"content-length: 9\r\n\r\na")
            )
            strangers.enter_context(made)
        wait_until(lambda: held(port) >= MOST - MOST // 4)
        assert [status(port) for _ in range(5)] == [200] * 5
    wait_until(lambda: held(port) == 0)


@pytest.mark.parametrize("what", ["bodies", "streams", "websockets"])
def test_who_keeps_a_replica_waiting_gives_way_to_those_that_wait_for_it(port: int, what: str) -> None:
    begun = b"POST /few/size HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
    with ExitStack() as strangers:
        if what == "streams":
            strangers.enter_context(connected(port, streams(9)))
        made = []
        for _ in range(9 * (what != "streams")):
            made.append(websocket(port, "/listen", b"few") if what == "websockets" else connected(port, begun))
            strangers.enter_context(made[-1])
        for _ in range(3):
            assert httpx.post(f"http://127.0.0.1:{port}/few/size", content=b"abc", timeout=DEADLINE_S).text == "3"
        if what == "bodies":
            sent_away, _, _ = select.select(made, [], [], 0)  # one of them may have kept a place that nobody wants
            assert sent_away and {one.recv(12) for one in sent_away} == {b"HTTP/1.1 503"}
    wait_until(lambda: held(port) == 0)


class Unread:
    """A connection whose client reads nothing of its answer."""

    client = ("10.0.0.1", 1)
    is_sent_away = False

    def __init__(self) -> None:
        self.waited_since = (Waiting.BODY, 100.0, "/few")

    def send_away(self) -> None:
        self.is_sent_away = True


@pytest.mark.parametrize(("waiting", "borne_s"), [(5, 5.0), (20, 2.0), (5000, 1.0)])
def test_the_more_wait_the_sooner_who_does_not_read_gives_way(waiting: int, borne_s: float) -> None:
    routes = {"/few": SimpleNamespace(kind=Kind.APP, router=SimpleNamespace(waiting=waiting), crowded_since_s=0.0)}
    clients = [Unread() for _ in range(20)]
    free_places(routes, clients, 99.9 + borne_s)
    assert not any(one.is_sent_away for one in clients)
    free_places(routes, clients, 100.0 + borne_s)
    assert sum(one.is_sent_away for one in clients) == min(20, waiting)


def test_who_leaves_while_he_waits_for_a_replica_does_not_get_one(port: int) -> None:
    with ExitStack() as strangers:
        first = [strangers.enter_context(websocket(port, "/listen", b"few")) for _ in range(2)]
        for one in first:
            assert one.recv(12) == b"HTTP/1.1 101"
        with ExitStack() as others:
            for _ in range(9):
                others.enter_context(websocket(port, "/listen", b"few"))
            wait_until(lambda: waiting(port, "few") >= 5)
        wait_until(lambda: waiting(port, "few") == 0)
        assert held(port) == 2
    wait_until(lambda: held(port) == 0)


def test_a_websocket_whose_client_does_not_read_is_cut_off(port: int) -> None:
    with websocket(port, "/push") as made:
        assert made.recv(12) == b"HTTP/1.1 101"
        wait_until(lambda: held(port) == 0)


def test_pings_whose_answers_are_not_read_are_not_taken_without_end(port: int) -> None:
    pings = (b"\x89\xfd" + bytes(4 + 125)) * 500
    with websocket(port, "/listen") as made:
        assert made.recv(12) == b"HTTP/1.1 101"
        made.setblocking(False)
        taken = 0
        while taken < 100_000_000 and select.select([], [made], [], 0.4)[1]:
            try:
                taken += made.send(pings)
            except ConnectionError:
                break
    assert taken < 100_000_000, "all of it was answered, into the front's memory"


@pytest.mark.parametrize("frame", [b"\x8a\x80", b"\x00\x80", b"\x89\x80"], ids=["pong", "continuation", "ping"])
def test_frames_without_content_end_a_websocket(port: int, frame: bytes) -> None:
    with websocket(port, "/listen") as made:
        assert made.recv(12) == b"HTTP/1.1 101"
        told = b""
        with contextlib.suppress(ConnectionError):
            made.sendall(b"\x02\x80" + bytes(4) + (frame + bytes(4)) * 20_000)
            while piece := made.recv(1 << 16):
                told += piece
                assert b"\x89" not in told, "the server still asks, after 20 s, whether its client is there"
        wait_until(lambda: held(port) == 0)


def test_a_message_in_a_great_many_parts_comes_whole(port: int) -> None:
    parts = b"".join(b"\x00\x82" + bytes(4) + b"%02d" % (number % 100) for number in range(20_000))
    with websocket(port, "/size") as made:
        assert made.recv(12) == b"HTTP/1.1 101"
        made.sendall(b"\x02\x81" + bytes(4) + b"x" + parts + b"\x80\x80" + bytes(4))
        told = b""
        while b"40001" not in told:
            told += made.recv(1 << 16) or pytest.fail(f"it has ended with {told!r}")


@pytest.mark.parametrize("sent", [b"1\r\na\r\n0\r\nx: ", b"1;"])
def test_what_comes_between_and_behind_the_chunks_of_a_body_is_bounded_like_a_head(port: int, sent: bytes) -> None:
    with connected(port, HEAD + b"transfer-encoding: chunked\r\n\r\n" + sent + b"a" * 200_000) as made:
        assert made.recv(4096).startswith(b"HTTP/1.1 431")


def test_a_body_may_have_chunks_of_one_byte(port: int) -> None:
    with connected(port, HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n") as made:
        assert made.recv(4096).startswith(b"HTTP/1.1 200")
