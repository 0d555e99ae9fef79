"""HTTP/2: requests side by side on one connection, flow control both ways, and clients that use it as a weapon."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import httpx
import numpy as np
import pytest
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, WindowUpdated
from hyperframe.frame import AltSvcFrame, PingFrame, PriorityFrame, WindowUpdateFrame
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from waiting import wait_until
from weft import serve
from weft.serve.http.http2 import Http2Connection

DEADLINE_S = 30
MOST_BODY = 2 * 1024 * 1024
LARGE = 700_000
"""Several times what may be under way without being read."""


@serve.deployment(max_ongoing_requests=1000)
class Meeting:
    """Answers all of a meeting when so many have come."""

    def __init__(self) -> None:
        self.came, self.all_came = 0, asyncio.Event()

    async def __call__(self, wanted: str, value: str) -> str:
        self.came += 1
        if self.came >= int(wanted):
            self.all_came.set()
        await self.all_came.wait()
        return value


@serve.deployment
class Lines:
    async def __call__(self, count: str) -> AsyncIterator[bytes]:
        for index in range(int(count)):
            yield b"%d\n" % index


@serve.deployment
class Forever:
    def __init__(self) -> None:
        self.under_way = 0

    async def __call__(self) -> None:
        self.under_way += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1

    async def count(self) -> int:
        return self.under_way


async def told(request: Request) -> Response:
    parts = [request.method, request.url.path, request.headers["host"], request.headers.get("cookie", "")]
    return Response(" ".join(parts), headers={"Connection": "close", "X-Mine": "yes"})


async def back(request: Request) -> Response:
    return StreamingResponse(request.stream())


async def ignored(request: Request) -> Response:
    return Response("not read")


async def large(request: Request) -> Response:
    return Response(bytes(LARGE))


app = Starlette(
    routes=[
        Route("/told", told, methods=["GET", "POST"]),
        Route("/back", back, methods=["POST"]),
        Route("/ignored", ignored, methods=["POST"]),
        Route("/large", large),
    ]
)


@serve.deployment
@serve.ingress(app)
class App:
    pass


@serve.deployment
def echo(value: Any) -> Any:
    return value


@pytest.fixture(scope="module")
def address(shared_weft_session: ModuleType) -> Iterator[str]:
    serve.run(echo.bind(), name="echo")
    serve.run(Lines.bind(), name="lines", route_prefix="/lines")
    serve.run(Forever.bind(), name="forever", route_prefix="/forever")
    serve.run(App.bind(), name="app", route_prefix="/app")
    options = serve.HTTPOptions(port=0, max_body_bytes=MOST_BODY, keep_alive_s=DEADLINE_S, body_timeout_s=3)
    yield serve.start(options)
    serve.shutdown()


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, http1=False, http2=True, timeout=DEADLINE_S) as made:
        yield made


class Raw:
    """A client that can do wrong."""

    def __init__(self, address: str, is_slow: bool = False) -> None:
        self.is_slow = is_slow
        url = httpx.URL(address)
        self.socket = socket.create_connection((url.host, url.port or 0), timeout=DEADLINE_S)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
        self.h2.initiate_connection()
        self.heard: deque[Any] = deque()
        self.resets: dict[int, int] = {}
        self.flush()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        for at in range(0, len(data), 1 if self.is_slow else max(1, len(data))):
            self.socket.sendall(data[at : at + 1] if self.is_slow else data)

    def ask(self, path: str, method: str = "GET", ends: bool = True, extra: Any = ()) -> int:
        number: int = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":authority", "x"), (":path", path), *extra]
        self.h2.send_headers(number, fields, end_stream=ends)
        self.flush()
        return number

    def hear(self, until: Callable[[Any], bool]) -> Any:
        """The next such event; None at the connection's end."""
        while True:
            while self.heard:
                if until(event := self.heard.popleft()):
                    return event
            self.flush()
            if not (data := self.socket.recv(65536)):
                return None
            self.heard.extend(self.h2.receive_data(data))
            self.resets.update({one.stream_id: one.error_code for one in self.heard if isinstance(one, StreamReset)})

    def hear_end(self) -> Any:
        return self.hear(lambda event: isinstance(event, ConnectionTerminated))

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def test_what_http_1_answers_http_2_answers_too(client: httpx.Client) -> None:
    answer = client.post("/", json={"value": [1, 2]})
    assert (answer.http_version, answer.status_code, answer.json()) == ("HTTP/2", 200, {"value": [1, 2]})
    assert answer.headers["x-request-id"]
    assert client.get("/lines?count=3").text == "0\n1\n2\n"
    assert client.head("/-/healthz").content == b""
    assert client.get("/-/healthz").text == "ok"
    assert client.get("/", params={"no": 1}).status_code == 422
    answer = client.post("/app/told", content=b"")
    assert answer.text.split()[:2] == ["POST", "/app/told"]
    assert answer.headers["x-mine"] == "yes"
    assert "connection" not in answer.headers, "a field of HTTP/1.1's connections"
    array = np.arange(200_000.0)
    answer = client.post("/", content=_npy(array), headers={"content-type": "application/x-npy", "accept": "*/*"})
    assert answer.status_code == 200


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    import io

    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_requests_of_one_connection_run_side_by_side(address: str) -> None:
    serve.run(Meeting.bind(), name="meeting", route_prefix="/meeting")

    async def ask_all() -> list[Any]:
        async with httpx.AsyncClient(http1=False, http2=True, timeout=DEADLINE_S) as client:
            asked = [client.get(f"{address}/meeting?wanted=60&value={index}") for index in range(60)]
            answers = await asyncio.gather(*asked)
            assert len({answer.extensions["network_stream"] for answer in answers}) == 1
            return [int(answer.text) for answer in answers]

    assert asyncio.run(ask_all()) == list(range(60))
    serve.delete("meeting")


def test_large_bodies_pass_the_windows_of_flow_control_both_ways(client: httpx.Client) -> None:
    body = np.random.default_rng(0).bytes(LARGE)
    assert client.post("/", content=body).content == body
    assert client.post("/app/back", content=body).content == body

    def pieces() -> Iterator[bytes]:
        for start in range(0, LARGE, 10_000):
            yield body[start : start + 10_000]

    assert client.post("/app/back", content=pieces()).content == body
    assert client.post("/app/ignored", content=pieces()).text == "not read"
    assert client.post("/", content=bytes(MOST_BODY + 1)).status_code == 413


def test_a_stream_that_is_reset_ends_what_works_for_it_and_no_other(address: str) -> None:
    forever = serve.get_app_handle("forever").count
    with Raw(address) as raw:
        given_up, kept = raw.ask("/forever"), raw.ask("/forever")
        wait_until(lambda: forever.remote().result(DEADLINE_S) == 2)
        raw.h2.reset_stream(given_up)
        raw.flush()
        wait_until(lambda: forever.remote().result(DEADLINE_S) == 1)
        assert kept
    wait_until(lambda: forever.remote().result(DEADLINE_S) == 0)


def test_who_does_not_read_holds_nobody_up(address: str) -> None:
    with Raw(address) as raw:
        stuck, got = raw.ask("/app/large"), []

        def notes(event: Any) -> bool:
            if isinstance(event, DataReceived) and event.stream_id == stuck:
                got.append(event.flow_controlled_length)
            return isinstance(event, StreamEnded)

        while sum(got) < 65_535:  # as much as may come unasked
            raw.hear(lambda event: notes(event) or isinstance(event, DataReceived))
        raw.h2.increment_flow_control_window(1000)  # of the connection
        answer = raw.ask("/-/healthz")
        assert raw.hear(notes).stream_id == answer
        raw.h2.increment_flow_control_window(LARGE)
        raw.h2.increment_flow_control_window(LARGE, stuck)
        raw.flush()
        assert raw.hear(notes).stream_id == stuck
        assert sum(got) == LARGE


def test_half_a_body_is_not_waited_for(address: str) -> None:
    with Raw(address) as raw:
        raw.ask("/", "POST", ends=False)
        answer = raw.hear(lambda event: isinstance(event, ResponseReceived))
        assert dict(answer.headers)[b":status"] == b"408"


@pytest.mark.parametrize("what", ["resets", "pings", "settings", "empty"])
def test_frames_that_ask_for_nothing_end_the_connection(address: str, what: str) -> None:
    with Raw(address) as raw:
        upload = raw.ask("/app/back", "POST", ends=False)
        for _ in range(20_000):
            if what == "resets":
                number = raw.h2.get_next_available_stream_id()
                raw.h2.send_headers(
                    number, [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/")]
                )
                raw.h2.reset_stream(number)
            elif what == "pings":
                raw.h2.ping(bytes(8))
            elif what == "settings":
                raw.h2.update_settings({0x6: 1 << 16})
            else:
                raw.h2.send_data(upload, b"")
        try:
            raw.flush()
            event = raw.hear_end()
        except ConnectionError:  # it was closed while this was still sending
            return
        assert event is None or event.error_code == ErrorCodes.ENHANCE_YOUR_CALM


SILENT = {
    "answers to pings": PingFrame(0, bytes(8), flags=["ACK"]).serialize(),
    "priorities": PriorityFrame(3, depends_on=0).serialize(),
    "windows": WindowUpdateFrame(0, window_increment=1).serialize(),
    "unknown": b"\0\0\x01\xbb\0\0\0\0\0x",
    "what only servers say": AltSvcFrame(0, b"a", b"b").serialize(),
}


def served() -> tuple[Http2Connection, list[str]]:
    """A connection without a front, and when it was closed."""
    ends: list[str] = []
    app = SimpleNamespace(options=serve.HTTPOptions(), now_s=0.0, half_streams=0)
    state = SimpleNamespace(connections=set(), total_requests=0)
    made = Http2Connection(app, state, None, None)  # type: ignore[arg-type]
    made.connection_made(SimpleNamespace(write=lambda data: None, close=lambda: ends.append("closed")))
    client = h2.connection.H2Connection()
    client.initiate_connection()
    made.data_received(client.data_to_send())
    return made, ends


@pytest.mark.parametrize("what", SILENT)
def test_frames_that_nobody_answers_end_the_connection(what: str) -> None:
    connection, ends = served()
    few = SILENT[what] * 100
    connection.data_received(few)
    connection.sweep(0.0)
    connection.data_received(few)
    assert not ends
    connection.data_received(few * 300)
    assert ends


def test_windows_for_what_was_sent_are_no_flood() -> None:
    connection, ends = served()
    windows = WindowUpdateFrame(0, window_increment=16_384).serialize() * 2
    for _ in range(1000):
        connection.count_sent(16_384)
        connection.data_received(windows)
    assert not ends


def test_a_flood_of_resets_is_noticed_before_it_is_parsed() -> None:
    """What comes in one read may be ten thousand of them, half a second of the front's loop."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    for number in range(1, 10_001, 2):
        client.send_headers(number, [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/")])
        client.reset_stream(number)
    written: list[bytes] = []
    options = serve.HTTPOptions()
    app = SimpleNamespace(
        options=options, now_s=0.0, half_streams=0, reads_pieces=lambda *_: False, exchange_ended=lambda _: None
    )
    state = SimpleNamespace(connections=set(), total_requests=0)
    served = Http2Connection(app, state, None, None)  # type: ignore[arg-type]
    served.connection_made(SimpleNamespace(write=written.append, close=lambda: None))
    served.data_received(client.data_to_send())
    client.receive_data(b"".join(written[:1]))
    ends = [one for one in client.receive_data(b"".join(written[1:])) if isinstance(one, ConnectionTerminated)]
    assert [one.error_code for one in ends] == [ErrorCodes.ENHANCE_YOUR_CALM]
    assert (ends[0].last_stream_id or 0) < 1000, "it has parsed more than it had to, to know"


def test_bodies_of_many_streams_have_a_bound_together(address: str) -> None:
    with Raw(address) as raw:
        while not raw.resets:
            number = raw.ask("/", "POST", ends=False)
            for _ in range(15):
                while number not in raw.resets and raw.h2.local_flow_control_window(number) < 16384:
                    raw.hear(lambda event: isinstance(event, WindowUpdated | StreamReset))
                if number not in raw.resets:
                    raw.h2.send_data(number, bytes(16384))
                    raw.flush()
            assert number < 1000
        assert set(raw.resets.values()) == {ErrorCodes.REFUSED_STREAM}
        assert min(raw.resets) > 2 * (MOST_BODY // (15 * 16384)), "not before so much has come"
        raw.ask("/-/healthz")
        assert raw.hear(lambda event: isinstance(event, DataReceived)).data == b"ok"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(":method", "CONNECT"), (":authority", "x")], b"501"),
        ([(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x"), ("host", "y")], b"400"),
        ([(":method", "GET"), (":scheme", "http"), (":path", "x"), (":authority", "x")], b"400"),
        ([(":method", "GET"), (":scheme", "http"), (":path", "/"), *([("a", "b")] * 300)], b"431"),
    ],
)
def test_heads_with_two_meanings_are_refused(address: str, fields: list[tuple[str, str]], status: bytes) -> None:
    with Raw(address) as raw:
        raw.h2.send_headers(raw.h2.get_next_available_stream_id(), fields, end_stream=True)
        raw.flush()
        heard = raw.hear(lambda event: isinstance(event, ResponseReceived | ConnectionTerminated))
        if isinstance(heard, ResponseReceived):
            assert dict(heard.headers)[b":status"] == status
        else:
            assert heard.error_code == ErrorCodes.PROTOCOL_ERROR, "h2 itself refuses it"


def test_cookies_are_one_field_again(address: str) -> None:
    with Raw(address) as raw:
        raw.ask("/app/told", extra=[("cookie", "a=1"), ("cookie", "b=2")])
        heard = raw.hear(lambda event: isinstance(event, DataReceived))
        assert heard.data == b"GET /app/told x a=1; b=2"


def test_the_preface_may_come_byte_by_byte_and_a_post_is_no_preface(address: str) -> None:
    url = httpx.URL(address)
    with Raw(address, is_slow=True) as raw:
        raw.ask("/-/healthz")
        assert raw.hear(lambda event: isinstance(event, DataReceived)).data == b"ok"
    with socket.create_connection((url.host, url.port or 0), timeout=DEADLINE_S) as made:
        for piece in (b"P", b"OST /-/healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"):
            made.sendall(piece)
        assert made.recv(4096).startswith(b"HTTP/1.1 200")
