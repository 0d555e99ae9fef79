"""Bodies in pieces both ways, and WebSockets, through a real front to an app in a replica."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Iterator
from types import ModuleType

import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import PlainTextResponse, StreamingResponse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from weft import serve

fast = FastAPI()


@serve.deployment(num_replicas=2)
@serve.ingress(fast)
class Talker:
    def __init__(self) -> None:
        self.left = 0

    @fast.post("/digest")
    async def digest(self, request: Request) -> dict[str, object]:
        digest, pieces = hashlib.sha256(), 0
        async for piece in request.stream():
            digest.update(piece)
            pieces += 1
        return {"sha256": digest.hexdigest(), "in_pieces": pieces > 2}

    @fast.post("/echo")
    async def echo(self, request: Request) -> StreamingResponse:
        return StreamingResponse(request.stream())

    @fast.post("/deaf")
    async def deaf(self) -> str:
        return "did not listen"

    @fast.get("/endless")
    async def endless(self) -> StreamingResponse:
        async def numbers() -> AsyncIterator[str]:
            try:
                yield "0"
                await asyncio.Event().wait()
            finally:
                self.left += 1

        return StreamingResponse(numbers())

    @fast.get("/left")
    async def how_many_left(self) -> int:
        return self.left

    @fast.websocket("/shout")
    async def shout(self, socket: WebSocket) -> None:
        await socket.accept(subprotocol="loud" if "loud" in socket.scope["subprotocols"] else None)
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect
                if message.get("text") == "bye":
                    await socket.close(4000, "bye")
                    return
                if message.get("text") is not None:
                    await socket.send_text(message["text"].upper())
                else:
                    await socket.send_bytes(message["bytes"][::-1])
        except WebSocketDisconnect:
            self.left += 1

    @fast.websocket("/broken")
    async def broken(self, socket: WebSocket) -> None:
        await socket.accept()
        raise ValueError("a secret")


@serve.deployment
def plain() -> str:
    return "plain"


single = FastAPI()


@serve.deployment(health_check_period_s=0.05)
@serve.ingress(single)
class Single:
    """One replica, so that each request finds what others did."""

    def __init__(self) -> None:
        self.go, self.cancelled = asyncio.Event(), 0

    @single.get("/late")
    async def late(self) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            await self.go.wait()
            yield "a"
            yield "b"

        return StreamingResponse(pieces())

    @single.get("/tidy")
    async def tidy(self, background: BackgroundTasks) -> str:
        background.add_task(self.go.wait)
        return "soon"

    @single.get("/wait")
    async def wait(self) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    @single.post("/go")
    async def let_go(self) -> None:
        self.go.set()

    @single.get("/cancelled")
    async def how_many_cancelled(self) -> int:
        return self.cancelled

    @single.api_route("/sized", methods=["GET", "HEAD"])
    async def sized(self) -> PlainTextResponse:
        return PlainTextResponse("hello", headers={"x-mine": "yes"})


@pytest.fixture(scope="module")
def address(shared_weft_session: ModuleType) -> Iterator[str]:
    found = serve.start(http_options=serve.HTTPOptions(port=0, max_body_bytes=50_000_000))
    serve.run(Talker.bind(), name="talker", route_prefix="/talk")
    serve.run(plain.bind(), name="plain", route_prefix="/plain")
    yield found
    serve.shutdown()


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as made:
        yield made


def pieces_of(data: bytes) -> Iterator[bytes]:
    yield from (data[at : at + 100_000] for at in range(0, len(data), 100_000))


@pytest.mark.parametrize("is_chunked", [True, False])
def test_an_app_reads_a_large_body_in_pieces(client: httpx.Client, is_chunked: bool) -> None:
    data = bytes(range(256)) * 40_000
    answer = client.post("/talk/digest", content=pieces_of(data) if is_chunked else data)
    assert answer.json() == {"sha256": hashlib.sha256(data).hexdigest(), "in_pieces": True}
    assert client.post("/talk/digest", content=b"small").json()["in_pieces"] is False


def test_a_body_that_grows_too_large_while_an_app_reads_it_is_refused(address: str, client: httpx.Client) -> None:
    url = httpx.URL(address)
    with socket.create_connection((url.host, url.port or 0), timeout=60) as wire:
        wire.sendall(b"POST /talk/digest HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(51):
                wire.sendall(b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 413 ")
    assert client.post("/talk/digest", content=b"small").status_code == 200


def test_bodies_flow_both_ways_at_once(client: httpx.Client) -> None:
    data = bytes(range(256)) * 20_000
    assert client.post("/talk/echo", content=pieces_of(data)).content == data


def test_an_app_may_answer_before_it_has_read(client: httpx.Client) -> None:
    assert client.post("/talk/deaf", content=pieces_of(bytes(20_000_000))).json() == "did not listen"
    assert client.get("/plain").text == "plain"


def test_an_app_learns_that_its_client_left(client: httpx.Client) -> None:
    before = total_left(client)
    with client.stream("GET", "/talk/endless") as answer:
        assert next(answer.iter_text()) == "0"
    while total_left(client) == before:
        pass


def total_left(client: httpx.Client) -> int:
    """Of both replicas, as far as some calls show."""
    return sum({client.get("/talk/left").json() for _ in range(12)})


def test_a_head_comes_before_a_body_that_is_late(client: httpx.Client) -> None:
    serve.run(Single.bind(), name="single", route_prefix="/single")
    with client.stream("GET", "/single/late") as answer:
        assert answer.status_code == 200
        assert client.post("/single/go").status_code == 200
        assert answer.read() == b"ab"
    serve.delete("single")


def test_what_an_app_does_after_its_answer_counts_as_under_way(client: httpx.Client) -> None:
    serve.run(Single.bind(), name="single", route_prefix="/single")
    assert client.get("/single/tidy").json() == "soon"
    while serve.status()["single"].deployments["Single"].ongoing != 1:
        pass
    client.post("/single/go")
    while serve.status()["single"].deployments["Single"].ongoing != 0:
        pass
    serve.delete("single")


def test_an_app_whose_client_left_before_its_answer_is_cancelled(client: httpx.Client) -> None:
    serve.run(Single.bind(), name="single", route_prefix="/single")
    with pytest.raises(httpx.ReadTimeout):
        client.get("/single/wait", timeout=0.3)
    while client.get("/single/cancelled").json() == 0:
        pass
    serve.delete("single")


def test_an_apps_answer_to_head_has_the_length_and_no_body(client: httpx.Client) -> None:
    serve.run(Single.bind(), name="single", route_prefix="/single")
    whole, bare = client.get("/single/sized"), client.head("/single/sized")
    assert whole.text == "hello" and bare.text == "" and whole.headers["x-mine"] == "yes"
    assert whole.headers["content-length"] == bare.headers["content-length"] == "5"
    serve.delete("single")


def test_a_websocket_talks_with_one_replica(address: str) -> None:
    with connect(address.replace("http", "ws") + "/talk/shout", subprotocols=["quiet", "loud"]) as socket:
        assert socket.subprotocol == "loud"
        for word in ("one", "two"):
            socket.send(word)
            assert socket.recv(30) == word.upper()
        socket.send(b"abc" * 100_000)
        assert socket.recv(30) == b"cba" * 100_000
        socket.send("bye")
        with pytest.raises(ConnectionClosed) as ended:
            socket.recv(30)
        assert ended.value.rcvd is not None and (ended.value.rcvd.code, ended.value.rcvd.reason) == (4000, "bye")


def test_many_messages_keep_their_order(address: str) -> None:
    with connect(address.replace("http", "ws") + "/talk/shout") as socket:
        for number in range(200):
            socket.send(f"n{number}")
        assert [socket.recv(30) for _ in range(200)] == [f"N{number}" for number in range(200)]


def test_an_app_learns_that_a_websocket_was_closed(address: str, client: httpx.Client) -> None:
    before = total_left(client)
    with connect(address.replace("http", "ws") + "/talk/shout") as socket:
        socket.send("one")
        assert socket.recv(30) == "ONE"
    while total_left(client) == before:
        pass


def test_a_websocket_whose_app_fails_is_closed_and_told_nothing(address: str) -> None:
    with (
        connect(address.replace("http", "ws") + "/talk/broken") as socket,
        pytest.raises(ConnectionClosed) as ended,
    ):
        socket.recv(30)
    assert ended.value.rcvd is not None and ended.value.rcvd.code == 1011 and "secret" not in ended.value.rcvd.reason


def test_a_page_of_another_site_opens_no_websocket(address: str) -> None:
    """A browser would send the user's cookies with it."""
    url = address.replace("http", "ws") + "/talk/shout"
    with pytest.raises(InvalidStatus) as refused, connect(url, origin="https://attacker.example"):  # type: ignore[arg-type]
        pass
    assert refused.value.response.status_code == 403
    with connect(url, origin=address) as socket:  # type: ignore[arg-type]
        socket.send("own")
        assert socket.recv(30) == "OWN"


@pytest.mark.parametrize("path", ["/nowhere", "/plain"])
def test_a_websocket_that_nobody_serves_is_a_404(address: str, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(address.replace("http", "ws") + path):
        pass
    assert refused.value.response.status_code == 404
