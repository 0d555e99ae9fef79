"""The HTTP front, with a real client on a real port."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

import weft
from waiting import wait_until
from weft import serve
from weft.serve.controller import NAME, NAMESPACE
from weft.serve.http.bodies import ARROW, BadRequest, decoded, encoded

fast = FastAPI()


@fast.get("/plain")
async def plain() -> dict[str, str]:
    return {"from": "a function"}


@serve.deployment
@serve.ingress(fast)
class Shop:
    def __init__(self) -> None:
        self.sold = 0

    @fast.post("/sell/{item}")
    async def sell(self, item: str, count: int = 1) -> dict[str, Any]:
        self.sold += count
        return {"item": item, "sold": self.sold}

    @fast.get("/steps")
    async def steps(self) -> StreamingResponse:
        return StreamingResponse((f"{i}," for i in range(3)), media_type="text/plain")

    @fast.get("/broken")
    async def broken(self) -> None:
        raise ValueError("a secret")


@serve.deployment
def echo(value: Any = None, fail: str = "") -> Any:
    if fail:
        raise ValueError("a secret")
    return value


@serve.deployment
async def lines(n: str) -> Any:
    for number in range(int(n)):
        yield {"number": number}


@serve.deployment(max_ongoing_requests=1, max_queued_requests=0)
class Slow:
    async def __call__(self) -> None:
        await asyncio.Event().wait()


@serve.deployment
async def who() -> str:
    return f"{serve.get_request_id()} {serve.get_multiplexed_model_id()}"


@serve.deployment
class Asked:
    """As one for Ray Serve is written."""

    async def __call__(self, request: Request) -> PlainTextResponse:
        given = await request.json()
        return PlainTextResponse(f"{request.query_params['q']} {given} {request.headers['x-mine']}", 201)


@serve.deployment
async def asked_lines(request: Request) -> Any:
    for word in (await request.body()).decode().split():
        yield word + ","


@pytest.fixture(scope="module")
def client(shared_weft_session: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    log = str(tmp_path_factory.mktemp("logs") / "access.jsonl")
    options = serve.HTTPOptions(port=0, max_body_bytes=1_000_000, request_timeout_s=20, access_log=log)
    address = serve.start(http_options=options)
    for target in (echo, lines, who, Shop, Asked, asked_lines):
        serve.run(target.bind(), name=target.name, route_prefix=f"/{target.name.lower()}")
    with httpx.Client(base_url=address, timeout=30) as made:
        made.headers["x-access-log"] = log
        yield made
    serve.shutdown()


def test_json_comes_back_as_json(client: httpx.Client) -> None:
    answer = client.post("/echo", json={"a": [1, 2.5, None]})
    assert answer.status_code == 200 and answer.json() == {"a": [1, 2.5, None]}
    assert len(answer.headers["x-request-id"]) == 32


def test_arrays_and_bytes_travel_as_they_are(client: httpx.Client) -> None:
    array, buffer = np.arange(6.0).reshape(2, 3), io.BytesIO()
    np.save(buffer, array)
    headers = {"content-type": "application/x-npy", "accept": "application/x-npy"}
    answer = client.post("/echo", content=buffer.getvalue(), headers=headers)
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), array)
    raw = client.post("/echo", content=b"\0\1", headers={"content-type": "application/octet-stream"})
    assert raw.content == b"\0\1"


def compressed(table: pa.Table, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_small_body_that_holds_a_large_table_is_refused_before_it_is_decompressed(codec: str) -> None:
    table = pa.table({"a": list(range(1000)), "s": pa.array(["text"] * 1000).dictionary_encode(), "n": [None] * 1000})
    assert decoded(compressed(table, codec), ARROW).equals(table)
    for column in (np.zeros(20_000_000), pa.DictionaryArray.from_arrays([0], np.zeros(20_000_000))):
        with pytest.raises(BadRequest, match=r"would have 1600000\d\d bytes; 67108864 are the most") as refused:
            decoded(compressed(pa.table({"a": column}), codec), ARROW)
        assert refused.value.status == 413


def test_arrow_tables_travel_as_streams() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    answer = encoded(table, "")
    assert answer.headers == ((b"content-type", ARROW.encode()),) and decoded(answer.body, ARROW).equals(table)
    assert decoded(encoded(table.to_batches()[0], "").body, ARROW).equals(table)
    assert encoded(table.column("a"), "").body == b"[1,2,3]" and encoded(pa.scalar(1.5), "").body == b"1.5"
    for wrong in (b"", b"nope", answer.body[:50]):
        with pytest.raises(BadRequest, match="the body is not application"):
            decoded(wrong, ARROW)


def test_a_table_whose_offsets_lead_elsewhere_is_refused() -> None:
    body = encoded(pa.table({"a": ["x" * 12_345]}), "").body
    before, _, behind = body.rpartition(struct.pack("<ii", 0, 12_345))
    with pytest.raises(BadRequest, match="the body is not application"):
        decoded(before + struct.pack("<ii", 0, 1 << 30) + behind, ARROW)


def test_a_generator_streams_lines(client: httpx.Client) -> None:
    with client.stream("GET", "/lines?n=3") as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert list(answer.iter_lines()) == [f'{{"number":{i}}}' for i in range(3)]


def test_a_deployment_that_asks_for_starlettes_request_gets_it(client: httpx.Client) -> None:
    answer = client.post("/asked", params={"q": "why"}, json=[1], headers={"x-mine": "yes"})
    assert (answer.status_code, answer.text) == (201, "why [1] yes")
    assert client.post("/asked_lines", content=b"a b").text == "a,b,"


def test_request_and_model_ids_reach_the_deployment(client: httpx.Client) -> None:
    answer = client.get("/who", headers={"x-request-id": "mine", "serve-model-id": "m7"})
    assert answer.text == "mine m7" and answer.headers["x-request-id"] == "mine"


def test_fastapi_routes_are_methods_of_the_replica(client: httpx.Client) -> None:
    assert client.post("/shop/sell/tea?count=2").json() == {"item": "tea", "sold": 2}
    assert client.post("/shop/sell/tea").json()["sold"] == 3
    assert client.get("/shop/plain").json() == {"from": "a function"}
    assert client.get("/shop/steps").text == "0,1,2,"
    assert client.post("/shop/sell/tea?count=x").status_code == 422
    assert "/sell/{item}" in client.get("/shop/openapi.json").json()["paths"]


@pytest.mark.parametrize("path", ["/echo?fail=1", "/shop/broken"])
def test_what_the_code_raises_is_not_shown_to_clients(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 500 and "secret" not in answer.text


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("/nowhere", b"", "", 404),
        ("/echoes", b"", "", 404),
        ("/../etc/passwd", b"", "", 404),
        ("/echo", b"{", "application/json", 400),
        ("/echo", b"[" * 100_000, "application/json", 400),
        ("/echo", b"\x93NUMPY", "application/x-npy", 400),
        ("/echo", b"\xff", "text/plain", 400),
        ("/echo", b"a=1", "application/x-www-form-urlencoded", 415),
        ("/echo?what=1", b"", "", 422),
        ("/echo", b"0" * 1_000_001, "application/json", 413),
    ],
)
def test_wrong_requests_are_refused_and_harm_no_one(
    client: httpx.Client, path: str, body: bytes, kind: str, status: int
) -> None:
    answer = client.post(path, content=body, headers={"content-type": kind} if kind else {})
    assert answer.status_code == status and len(answer.content) < 500
    assert client.post("/echo", json=1).json() == 1


def test_a_body_without_a_length_is_bounded_too(client: httpx.Client) -> None:
    answer = client.post("/echo", content=(b"0" * 100_000 for _ in range(20)))
    assert answer.status_code == 413


def test_too_many_requests_get_a_503_and_when_to_come_back(client: httpx.Client) -> None:
    serve.run(Slow.options(graceful_shutdown_timeout_s=0.1).bind(), name="slow", route_prefix="/slow")
    statuses: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as mine:
            statuses.append(mine.get("/slow").status_code)

    first = threading.Thread(target=ask)
    first.start()
    answer = None
    for _ in range(500):  # until the first has been taken
        try:
            answer = client.get("/slow", timeout=0.2)
        except httpx.TimeoutException:
            continue
        if answer.status_code == 503:
            break
    assert answer is not None and answer.status_code == 503 and answer.headers["retry-after"] == "1"
    serve.delete("slow")
    first.join()
    assert len(statuses) == 1 and statuses[0] in (404, 502, 503)


def test_garbage_instead_of_http_gets_a_400(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=10) as raw:
        raw.sendall(b"\0\1\2 not http\r\n\r\n")
        assert b" 400 " in raw.recv(1000).split(b"\r\n")[0] + b" "


def test_two_applications_can_not_have_one_route(client: httpx.Client) -> None:
    with pytest.raises(ValueError, match="'/echo' is taken by application 'echo'"):
        serve.run(echo.bind(), name="second", route_prefix="/echo")


def test_bodies_are_decoded_by_their_type() -> None:
    assert decoded(b'{"a": 1}', "application/json; charset=utf-8") == {"a": 1}
    assert decoded(b"abc", "text/plain") == "abc"
    assert decoded(b"abc", "") == b"abc"
    with pytest.raises(BadRequest, match="not application/json"):
        decoded(b"nope", "application/json")
    assert encoded(np.float32(1.5), "").body == b"1.5"


def test_each_request_leaves_a_line_in_the_access_log(client: httpx.Client) -> None:
    client.post("/echo?fail=", json=[1], headers={"x-request-id": "logged"})
    found: list[dict[str, Any]] = []
    while not found:
        lines = Path(client.headers["x-access-log"]).read_text().splitlines()
        found = [one for one in map(json.loads, lines) if one["id"] == "logged"]
    (line,) = found
    wanted = {"client": "127.0.0.1", "method": "POST", "path": "/echo", "route": "/echo", "status": 200, "bytes": 3}
    assert wanted.items() <= line.items() and 0 < line["seconds"] < 60


def test_the_front_tells_prometheus_what_it_served(client: httpx.Client) -> None:
    client.post("/echo", json=1)
    client.get("/nowhere")
    text = client.get("/-/metrics").text
    assert re.search(r'weft_serve_requests_total\{route="/echo",status="200"\} [1-9]', text)
    assert re.search(r'weft_serve_requests_total\{route="",status="404"\} [1-9]', text)
    assert re.search(r'weft_serve_request_seconds_bucket\{route="/echo",le="\+Inf"\} [1-9]', text)
    assert 'weft_serve_waiting{deployment="echo:echo"} 0' in text
    assert client.get("/-/healthz").text == "ok" and client.get("/-/routes").json()["/echo"] == "echo"
    assert client.get("/-/other").status_code == 404


@serve.deployment(num_replicas=3)
class Session:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self) -> list[str]:
        self.seen.append(serve.get_session_id())
        return sorted(set(self.seen))


def test_requests_of_a_session_go_to_one_replica(client: httpx.Client) -> None:
    serve.run(Session.bind(), name="session", route_prefix="/session")
    names = [f"s{number}" for number in range(12)]
    told = [client.get("/session", headers={"serve-session-id": one}).json() for one in names * 3][-len(names) :]
    groups = {tuple(one) for one in told}
    assert 1 < len(groups) <= 3 and sorted(name for group in groups for name in group) == sorted(names)


def test_a_front_that_is_about_to_end_says_so_and_answers_what_it_has(client: httpx.Client) -> None:
    serve.shutdown()
    address = serve.start(http_options=serve.HTTPOptions(port=0, drain_delay_s=1.0))
    serve.run(echo.bind(), name="echo", route_prefix="/echo")
    (front,) = weft.get(weft.get_actor(NAME, namespace=NAMESPACE).fronts.remote("http"))
    with httpx.Client(base_url=address, timeout=30) as fresh:
        assert fresh.get("/-/readyz").text == "ready"
        stopped = front.stop.remote()
        wait_until(lambda: fresh.get("/-/readyz").status_code == 503)
        assert fresh.post("/echo", json=7).json() == 7
    weft.get(stopped)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/-/readyz")


def test_fronts_share_a_port_and_one_that_is_killed_comes_back(client: httpx.Client) -> None:
    serve.shutdown()
    address = serve.start(http_options=serve.HTTPOptions(port=0, workers=2))
    serve.run(echo.bind(), name="echo", route_prefix="/echo")
    fronts = weft.get(weft.get_actor(NAME, namespace=NAMESPACE).fronts.remote("http"))
    pids = weft.get([one.pid.remote() for one in fronts])
    assert len(set(pids)) == 2 and len(set(weft.get([one.address.remote() for one in fronts]))) == 1
    os.kill(pids[0], signal.SIGKILL)
    assert weft.get(fronts[0].pid.remote()) != pids[0] and weft.get(fronts[0].address.remote()) == address
    os.kill(pids[1], signal.SIGKILL)
    weft.get(fronts[1].pid.remote())
    for _ in range(10):
        with httpx.Client(base_url=address, timeout=30) as fresh:
            assert fresh.post("/echo", json=7).json() == 7
