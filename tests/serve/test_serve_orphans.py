"""Processes that are killed while replicas work for them: their requests end, and their places are free again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.sync.client import connect

import weft
from waiting import wait_until
from weft import serve
from weft.serve.callers import LASTING_S, UnderWay
from weft.serve.controller import NAME, NAMESPACE

DEADLINE_S = 60


@serve.deployment(max_ongoing_requests=4, health_check_period_s=0.1)
class Patient:
    def __init__(self) -> None:
        self.ended = 0

    async def __call__(self) -> None:
        await self.wait()

    async def items(self) -> AsyncIterator[int]:
        yield 0
        await self.wait()

    async def wait(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def count(self) -> int:
        return self.ended


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text)


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


app = Starlette(routes=[WebSocketRoute("/socket", echo), Route("/", hello)])


@serve.deployment(max_ongoing_requests=2, health_check_period_s=0.1)
@serve.ingress(app)
class Sockets:
    pass


@pytest.fixture(scope="module")
def address(shared_weft_session: ModuleType) -> Iterator[str]:
    serve.run(Patient.bind(), name="patient", route_prefix=None)
    serve.run(Sockets.bind(), name="sockets")
    yield serve.start(serve.HTTPOptions(port=0))
    serve.shutdown()


def test_what_a_caller_that_is_killed_has_asked_for_is_cancelled(address: str) -> None:
    patient = serve.get_app_handle("patient")

    @weft.remote
    class Caller:
        async def ask(self, patient: Any) -> int:
            self.kept = [patient.remote(), patient.items.options(stream=True).remote()]
            await self.kept[1].__anext__()
            return os.getpid()

    caller = Caller.remote()  # type: ignore[attr-defined]
    mine = patient.remote()
    os.kill(weft.get(caller.ask.remote(patient)), signal.SIGKILL)
    wait_until(lambda: patient.count.remote().result(DEADLINE_S) == 2)
    assert not mine.done(), "of a process that lives"
    mine.cancel()


def test_the_places_of_a_killed_fronts_websockets_are_free_again(address: str) -> None:
    front = weft.get(weft.get_actor(NAME, namespace=NAMESPACE).fronts.remote("http"))[0]
    where = address.replace("http:", "ws:") + "/socket"
    with connect(where, legacy=True) as one, connect(where, legacy=True) as other:  # type: ignore[call-arg]
        for each in (one, other):
            each.send("a")
            assert each.recv(DEADLINE_S) == "a"
        os.kill(weft.get(front.pid.remote()), signal.SIGKILL)

    def answers() -> bool:
        try:
            return httpx.get(address, timeout=DEADLINE_S).text == "hello"
        except httpx.TransportError:  # while there is no front
            return False

    wait_until(answers)


def test_callers_whose_requests_last_are_named_and_no_others() -> None:
    async def check() -> None:
        under_way = UnderWay()
        first = under_way.begin("a", 0.0)
        under_way.begin("b", LASTING_S)
        assert under_way.lasting(LASTING_S) == ["a"]
        under_way.end(first)
        assert under_way.lasting(LASTING_S) == []
        assert under_way.lasting(2 * LASTING_S) == ["b"]
        under_way.give_up(["a", "b", "c"])
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(DEADLINE_S)

    asyncio.run(check())
