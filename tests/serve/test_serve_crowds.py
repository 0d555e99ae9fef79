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
import h2.events
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
from weft.serve.http import bounds
from weft.serve.http.bounds import Waiting, bound_unread, free_places
from weft.serve.http.messages import Kind

MOST = 40
DEADLINE_S = 30
REQUEST = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/few/size")]
HALF = b"POST /few/size HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
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
async def blob() -> bytes:
    return bytes(1 << 20)


@serve.deployment
async def echo(value: str = "") -> str:
    return value


@pytest.fixture(scope="module")
def port(shared_weft_session: ModuleType) -> Iterator[int]:
    address = serve.start(http_options=serve.HTTPOptions(port=0, max_connections=MOST, send_timeout_s=0.5))
    serve.run(Sockets.bind(), name="sockets", route_prefix="/sockets")
    serve.run(Few.bind(), name="few", route_prefix="/few")
    serve.run(echo.bind(), name="echo", route_prefix="/echo")
    serve.run(blob.bind(), name="blob", route_prefix="/blob")
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
        made.send_headers(number, REQUEST)
        made.send_data(number, b"a")
    return bytes(made.data_to_send())


def held(port: int) -> int:
    """Connections that the front has."""
    return sum(one.laddr.port == port and one.status == "ESTABLISHED" for one in psutil.net_connections("tcp"))


def waiting(port: int, app: str) -> int:
    """Requests that no replica has."""
    return gauge(port, app, "waiting")


def ongoing(port: int, app: str) -> int:
    return gauge(port, app, "ongoing")


def gauge(port: int, app: str, name: str) -> int:
    metrics = httpx.get(f"http://127.0.0.1:{port}/-/metrics", timeout=DEADLINE_S).text
    (found,) = re.findall(rf'^weft_serve_{name}{{deployment="{app}:.*"}} (\d+)$', metrics, re.MULTILINE)
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
    with ExitStack() as strangers:
        if what == "streams":
            strangers.enter_context(connected(port, streams(9)))
        made = []
        for _ in range(9 * (what != "streams")):
            made.append(websocket(port, "/listen", b"few") if what == "websockets" else connected(port, HALF))
            strangers.enter_context(made[-1])
        for _ in range(3):
            assert httpx.post(f"http://127.0.0.1:{port}/few/size", content=b"abc", timeout=DEADLINE_S).text == "3"
        if what == "bodies":
            sent_away, _, _ = select.select(made, [], [], 0)  # one of them may have kept a place that nobody wants
            assert sent_away and {one.recv(12) for one in sent_away} == {b"HTTP/1.1 503"}
    wait_until(lambda: held(port) == 0)


class Unread:
    """A connection whose client reads nothing of its answer."""

    is_sent_away = False

    def __init__(self, host: str = "10.0.0.1", unread_bytes: int = 0, since_s: float = 100.0) -> None:
        self.client = (host, 1)
        self.waited_since = (Waiting.BODY, since_s, "/few")
        self.unread = (unread_bytes, since_s)
        self.transport = self

    def send_away(self) -> None:
        self.is_sent_away = True

    abort = send_away


def test_what_all_clients_leave_unread_is_bounded_by_those_of_the_address_that_leaves_most() -> None:
    share = bounds.MOST_UNREAD_BYTES // 4
    old, new = Unread("10.0.0.1", share, 1.0), Unread("10.0.0.1", share, 2.0)
    other, reader = Unread("10.0.0.2", share + share // 2, 0.0), Unread("10.0.0.3")
    bound_unread([new, old, other, reader])
    assert not any(one.is_sent_away for one in (new, old, other, reader))
    bound_unread([new, old, other, reader, Unread("10.0.0.4", share)])
    assert old.is_sent_away and not any(one.is_sent_away for one in (new, other, reader))


def answered(port: int, route: str) -> int:
    metrics = httpx.get(f"http://127.0.0.1:{port}/-/metrics", timeout=DEADLINE_S).text
    found = re.findall(rf'^weft_serve_requests_total{{route="{route}",status="200"}} (\d+)$', metrics, re.MULTILINE)
    return sum(map(int, found))


def test_who_has_not_read_an_answer_gets_no_other(port: int) -> None:
    """All of them would lie in the front's memory."""
    with connected(port, b"GET /blob HTTP/1.1\r\nhost: x\r\n\r\n" * 200):
        wait_until(lambda: answered(port, "/blob") > 0)
        wait_until(lambda: held(port) == 0)  # cut off, as he does not read
    assert answered(port, "/blob") < 100
    with connected(port, b"GET /blob HTTP/1.1\r\nhost: x\r\n\r\n" * 50) as made:
        told = 0
        while told < 50 << 20:
            told += len(made.recv(1 << 20)) or pytest.fail(f"it has ended after {told} bytes")


def test_bodies_of_which_more_has_to_come_do_not_stand_in_line(port: int) -> None:
    with ExitStack() as strangers:
        for _ in range(5):
            strangers.enter_context(connected(port, streams(7)))
            strangers.enter_context(connected(port, HALF))
        wait_until(lambda: ongoing(port, "few") == 2)
        assert waiting(port, "few") == 0
        whole = [strangers.enter_context(connected(port, HALF + b"0\r\n\r\n")) for _ in range(3)]
        assert [one.recv(12) for one in whole] == [b"HTTP/1.1 200"] * 3
    wait_until(lambda: held(port) == 0)


def test_a_body_that_waits_for_room_may_come_to_its_end_meanwhile(port: int) -> None:
    with ExitStack() as strangers:
        for _ in range(2):
            strangers.enter_context(connected(port, HALF))
        wait_until(lambda: ongoing(port, "few") == 2)
        small, large = (strangers.enter_context(connected(port, HALF)) for _ in range(2))
        small.sendall(b"0\r\n\r\n")
        large.sendall(b"20000\r\n" + bytes(0x20000) + b"\r\n" + b"0\r\n\r\n")
        assert small.recv(4096).endswith(b"1") and large.recv(4096).endswith(b"131073")
    wait_until(lambda: held(port) == 0)


def test_a_connection_has_few_half_requests_where_there_are_very_many(port: int) -> None:
    """Of HTTP/2, which would let each of all connections have a hundred."""
    with ExitStack() as strangers:
        counts = []
        for _ in range(4):
            made = strangers.enter_context(connected(port, streams(60)))
            client = h2.connection.H2Connection()
            client.initiate_connection()
            for number in range(1, 2 * 60, 2):
                client.send_headers(number, REQUEST)
            refused = 0
            while not refused and len(counts):
                told = client.receive_data(made.recv(1 << 16))
                refused += sum(isinstance(event, h2.events.StreamReset) for event in told)
            counts.append(refused)
        assert counts[0] == 0 and all(count >= 1 for count in counts[1:])
        assert status(port) == 200
    wait_until(lambda: held(port) == 0)


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
            for _ in range(30):  # some of which the first give way to meanwhile
                others.enter_context(websocket(port, "/listen", b"few"))
            wait_until(lambda: waiting(port, "few") >= 5)
        wait_until(lambda: waiting(port, "few") == 0)
        wait_until(lambda: held(port) <= 2)
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
