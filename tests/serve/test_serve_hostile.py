"""Clients that send what they should not, or send it slowly, against a real front on a real port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx
import psutil
import pytest

import weft
from weft import serve
from weft.serve.controller import NAME, NAMESPACE

MOST = 400
HELLO = b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n"


@serve.deployment
async def echo(value: Any = None, name: str = "") -> Any:
    return value if value is not None else name


@serve.deployment
async def gate() -> None:
    await asyncio.Event().wait()


@pytest.fixture(scope="module")
def port(shared_weft_session: ModuleType) -> Iterator[int]:
    options = serve.HTTPOptions(
        port=0,
        max_body_bytes=100_000,
        head_timeout_s=0.5,
        body_timeout_s=1,
        keep_alive_s=2,
        request_timeout_s=3,
        max_connections=MOST,
    )
    address = serve.start(http_options=options)
    for target in (echo, gate):
        serve.run(target.bind(), name=target.name, route_prefix=f"/{target.name}")
    yield httpx.URL(address).port or 0
    serve.shutdown()


@pytest.fixture
def wire(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as made:
        yield made
    with socket.create_connection(("127.0.0.1", port), timeout=30) as after:
        after.sendall(HELLO)
        assert answer(after)[0] == 200, "a client was harmed by another"


def answer(wire: socket.socket) -> tuple[int, dict[bytes, bytes], bytes]:
    """(status, headers, body) of the next one."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = wire.recv(1)
        assert piece, f"the connection ended after {data!r}"
        data += piece
    lines = data.split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines[1:] if line)
    body = b""
    while len(body) < int(headers.get(b"content-length", b"0")):
        body += wire.recv(1)
    return int(lines[0].split()[1]), headers, body


def has_ended(wire: socket.socket) -> bool:
    try:
        return wire.recv(1) == b""
    except ConnectionResetError:
        return True


def test_requests_sent_ahead_are_answered_in_order(wire: socket.socket) -> None:
    wire.sendall(b"".join(b"GET /echo?name=%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(50)))
    assert [answer(wire)[2] for _ in range(50)] == [b"%d" % number for number in range(50)]


def test_a_request_may_come_byte_by_byte(wire: socket.socket) -> None:
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b'{"a":1}'
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    for byte in head + body:
        wire.sendall(bytes([byte]))
    assert answer(wire)[2] == body


def test_a_chunked_body_is_put_together(wire: socket.socket) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
    wire.sendall(head + b"3\r\nabc\r\n2;extension=1\r\nde\r\n0\r\n\r\n")
    assert answer(wire)[2] == b"abcde"


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(wire: socket.socket) -> None:
    wire.sendall(b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert answer(wire)[0] == 100
    wire.sendall(b"ok")
    assert answer(wire)[2] == b"ok"


def test_head_has_the_headers_and_no_body(wire: socket.socket) -> None:
    wire.sendall(b"HEAD /echo?name=abc HTTP/1.1\r\nhost: x\r\n\r\n" + HELLO)
    data = b""
    while data.count(b"HTTP/1.1 200") < 2:
        data += wire.recv(1000)
    assert b"content-length: 3\r\n" in data and b"abc" not in data


def test_http_1_0_ends_its_connection(wire: socket.socket) -> None:
    wire.sendall(b"GET /echo?name=old HTTP/1.0\r\n\r\n")
    status, headers, body = answer(wire)
    assert (status, headers[b"connection"], body) == (200, b"close", b"old") and has_ended(wire)


def test_an_upgrade_that_is_not_known_is_answered_as_http(wire: socket.socket) -> None:
    wire.sendall(b"GET /echo?name=h2 HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    assert answer(wire)[2] == b"h2"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\0\1\2 not http\r\n\r\n", 400),
        (b"GET /echo HTTP/9.9\r\n\r\n", 400),
        (b"GET /echo HTTP/2.0\r\nhost: x\r\n\r\n", 505),
        (b"GET /echo\r\n\r\n", 505),
        (b"GET http:// HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", 431),
        (b"GET /echo HTTP/1.1\r\na: " + b"b" * 70_000, 431),
        (b"GET /" + b"a" * 70_000, 431),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\na: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 40 + b"\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"fffff\r\n" + b"a" * 0xFFFFF, 413),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET /echo HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n", 408),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc", 408),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ended(wire: socket.socket, sent: bytes, status: int) -> None:
    try:
        wire.sendall(sent)
    except (BrokenPipeError, ConnectionResetError):
        pytest.skip("refused before all of it was sent")
    found, headers, body = answer(wire)
    assert found == status and headers[b"connection"] == b"close" and len(body) < 200
    assert has_ended(wire)


@pytest.mark.parametrize(
    "path", ["/%2e%2e/%2e%2e/etc/passwd", "//echo", "/\\..\\", "/%00", "/%ff%fe", "/a/../echo", "*", "/" + "a/" * 9000]
)
def test_odd_paths_find_nothing(wire: socket.socket, path: str) -> None:
    wire.sendall(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
    assert answer(wire)[0] in (400, 404)


def test_an_idle_connection_is_closed(wire: socket.socket) -> None:
    wire.sendall(HELLO)
    assert answer(wire)[0] == 200 and has_ended(wire)


def test_an_answer_that_does_not_come_is_a_504_and_the_request_is_cancelled(wire: socket.socket) -> None:
    wire.sendall(b"GET /gate HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer(wire)[0] == 504
    wait_until_nothing_is_under_way()


def test_a_client_that_leaves_ends_its_request(wire: socket.socket) -> None:
    wire.sendall(b"GET /gate HTTP/1.1\r\nhost: x\r\n\r\n")
    wire.close()
    wait_until_nothing_is_under_way()


def test_many_clients_that_leave_as_they_come_leave_nothing_counted(port: int) -> None:
    """Each that stayed counted would take a place of the replica for ever."""
    clients = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(60)]
    for one in clients:
        one.sendall(b"GET /gate HTTP/1.1\r\nhost: x\r\n\r\n")
        one.close()
    tick = threading.Event()
    while (
        b'weft_serve_ongoing{deployment="gate:gate"} 0\n' not in httpx.get(f"http://127.0.0.1:{port}/-/metrics").content
    ):
        tick.wait(0.05)


def test_half_heads_give_way_to_whole_ones(port: int) -> None:
    strangers = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(MOST)]
    try:
        for stranger in strangers:
            stranger.sendall(b"GET /echo HTTP/1.1\r\nhost: ")
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as honest:
                honest.sendall(HELLO)
                assert answer(honest)[0] == 200
        assert answer(strangers[0])[0] in (408, 503)
    finally:
        for stranger in strangers:
            stranger.close()


def wait_until_nothing_is_under_way() -> None:
    controller = weft.get_actor(NAME, namespace=NAMESPACE)
    table = weft.get(controller.listen.remote("gate:gate", -1))
    (replica,) = table.replicas.values()
    while weft.get(replica.load.remote()):
        pass


def test_many_slow_clients_and_large_bodies_do_not_grow_the_front(port: int) -> None:
    def resident() -> int:
        total = 0
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
                total += one.memory_info().rss
        return total

    before = resident()
    clients = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(300)]
    for one in clients:
        one.sendall(
            b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n" if one.fileno() % 2 else b"GET /"
        )
    statuses = {answer(one)[0] for one in clients}
    for one in clients:
        one.close()
    assert statuses == {408, 413}
    assert resident() - before < 100e6
