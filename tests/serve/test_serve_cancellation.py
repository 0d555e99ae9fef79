"""Nobody waits for an answer any more: what works for it ends, in every deployment that it has reached."""

from __future__ import annotations

import asyncio
import http.client
import math
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from types import ModuleType
from typing import Any

import pytest

from waiting import wait_until
from weft import serve
from weft.serve.context import RequestContext

DEADLINE_S = 30
WAYS = ["awaits", "gathers", "blocks", "gives_on", "forgets", "reads", "reads_blocking"]


@serve.deployment(health_check_period_s=0.05)
class Deep:
    """Answers never, and knows who has left it."""

    def __init__(self) -> None:
        self.began, self.ended = 0, 0

    async def __call__(self, _: Any = None) -> None:
        self.began += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def items(self) -> AsyncIterator[int]:
        self.began += 1
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def time_left_s(self) -> float | None:
        return serve.get_time_left_s()

    async def counts(self) -> tuple[int, int]:
        return self.began, self.ended


@serve.deployment(health_check_period_s=0.05)
class Middle:
    """Calls the other in many ways."""

    def __init__(self, deep: Any) -> None:
        self.deep = deep

    async def __call__(self, how: str = "awaits") -> Any:
        return await getattr(self, f"{how}_it")()

    async def awaits_it(self) -> None:
        await self.deep.remote()

    async def gathers_it(self) -> None:
        await asyncio.gather(self.deep.remote(), self.deep.remote())

    async def gives_on_it(self) -> None:
        await self.deep.remote(self.deep.remote())

    async def forgets_it(self) -> None:
        self.kept = self.deep.remote()
        await asyncio.Event().wait()

    async def reads_it(self) -> None:
        async for _ in self.deep.items.options(stream=True).remote():
            pass

    async def asks_it(self) -> float | None:
        left_s: float | None = await self.deep.time_left_s.remote()
        return left_s


@serve.deployment(health_check_period_s=0.05)
class Plain:
    """The same in plain code, on the replica's one thread."""

    def __init__(self, deep: Any) -> None:
        self.deep = deep

    def __call__(self, how: str) -> None:
        if how == "blocks":
            self.deep.remote().result()
        else:
            for _ in self.deep.items.options(stream=True).remote():
                pass


@serve.deployment(health_check_period_s=0.05)
class Front:
    def __init__(self, middle: Any, plain: Any) -> None:
        self.middle, self.plain = middle, plain

    async def __call__(self, how: str) -> Any:
        return await (self.plain if "block" in how else self.middle).remote(how)


class Served:
    def __init__(self, address: str) -> None:
        self.host = address.removeprefix("http://")
        self.front, self.middle, self.plain, self.deep = (
            serve.get_deployment_handle(name, "graph") for name in ("Front", "Middle", "Plain", "Deep")
        )

    def counts(self) -> tuple[int, int]:
        found: tuple[int, int] = self.deep.counts.remote().result(DEADLINE_S)
        return found


@pytest.fixture(scope="module")
def served(shared_weft_session: ModuleType) -> Iterator[Served]:
    deep = Deep.bind()
    serve.run(Front.bind(Middle.bind(deep), Plain.bind(deep)), name="graph", route_prefix="/graph")
    yield Served(serve.start(serve.HTTPOptions(port=0)))
    serve.shutdown()


def wait_until_begun(served: Served, before: tuple[int, int]) -> None:
    wait_until(lambda: served.counts()[0] > before[0])


def wait_until_nothing_runs(served: Served) -> None:
    def runs_nothing() -> bool:
        began, ended = served.counts()
        status = serve.status()["graph"].deployments
        return began == ended and not any(status[name].ongoing for name in ("Front", "Middle", "Plain"))

    wait_until(runs_nothing)


@pytest.mark.parametrize("how", WAYS)
def test_a_client_that_leaves_ends_all_that_works_for_it(served: Served, how: str) -> None:
    before = served.counts()
    client = http.client.HTTPConnection(served.host)
    client.request("GET", f"/graph?how={how}")
    wait_until_begun(served, before)
    client.close()
    wait_until_nothing_runs(served)


@pytest.mark.parametrize("how", WAYS)
def test_a_handles_call_that_is_cancelled_ends_all_that_works_for_it(served: Served, how: str) -> None:
    before = served.counts()

    async def leave() -> None:
        asking = asyncio.ensure_future(served.front.remote(how))
        await asyncio.get_running_loop().run_in_executor(None, wait_until_begun, served, before)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(leave())
    wait_until_nothing_runs(served)


def test_a_timeout_around_an_await_cancels_the_call(served: Served) -> None:
    before = served.counts()

    async def leave() -> None:
        asking = asyncio.ensure_future(asyncio.wait_for(_awaited(served.deep.remote()), DEADLINE_S))
        await asyncio.get_running_loop().run_in_executor(None, wait_until_begun, served, before)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(leave())
    wait_until_nothing_runs(served)


async def _awaited(response: Any) -> Any:
    return await response


def test_a_thread_that_waits_for_a_cancelled_call_is_told(served: Served) -> None:
    before = served.counts()
    response = served.deep.remote()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            response.result()
        except BaseException as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until_begun(served, before)
    response.cancel()
    waiting.join(DEADLINE_S)
    assert [type(error) for error in raised] == [CancelledError]
    wait_until_nothing_runs(served)


def test_a_call_that_is_cancelled_while_it_waits_gives_its_place_in_the_queue_to_another(served: Served) -> None:
    @serve.deployment(max_ongoing_requests=1, max_queued_requests=1, health_check_period_s=0.05)
    class Narrow:
        async def __call__(self) -> None:
            await asyncio.Event().wait()

        async def ping(self) -> str:
            return "pong"

    narrow = serve.run(Narrow.bind(), name="narrow", route_prefix="/narrow")
    holder = narrow.remote()
    status = serve.status
    wait_until(lambda: status()["narrow"].deployments["Narrow"].ongoing == 1)

    async def leave() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(narrow.ping.remote(), 0.01)

    asyncio.run(leave())
    next_one = narrow.ping.remote()  # BackPressureError if the one that left is still counted
    client = http.client.HTTPConnection(served.host)
    client.request("GET", "/narrow")
    wait_until(lambda: _metric(served, "weft_serve_waiting", "narrow:Narrow") == 1)
    client.close()
    wait_until(lambda: _metric(served, "weft_serve_waiting", "narrow:Narrow") == 0)
    holder.cancel()
    assert next_one.result(DEADLINE_S) == "pong"
    serve.delete("narrow")


def _metric(served: Served, name: str, deployment: str) -> float:
    client = http.client.HTTPConnection(served.host)
    client.request("GET", "/-/metrics")
    text = client.getresponse().read().decode()
    client.close()
    (found,) = [line for line in text.splitlines() if line.startswith(f'{name}{{deployment="{deployment}"}}')]
    return float(found.split()[-1])


@pytest.mark.parametrize("how", ["awaits", "blocks"])
def test_a_deadline_ends_all_that_works_for_a_request(served: Served, how: str) -> None:
    response = served.front.options(timeout_s=0.3).remote(how)
    with pytest.raises(serve.DeadlineExceededError, match="graph:"):
        response.result(DEADLINE_S)
    wait_until_nothing_runs(served)


def test_a_deadline_ends_an_await_and_a_stream(served: Served) -> None:
    async def ask() -> None:
        with pytest.raises(serve.DeadlineExceededError):
            await served.deep.options(timeout_s=0.05).remote()
        items = served.deep.items.options(stream=True, timeout_s=0.5).remote()
        assert await items.__anext__() == 0
        with pytest.raises(serve.DeadlineExceededError):
            await items.__anext__()

    asyncio.run(ask())
    with pytest.raises(serve.DeadlineExceededError):
        list(served.deep.items.options(stream=True, timeout_s=0.2).remote())
    wait_until_nothing_runs(served)


def test_a_deadline_that_nobody_waits_for_ends_the_request(served: Served) -> None:
    before = served.counts()
    kept = served.deep.options(timeout_s=0.2).remote()
    wait_until_begun(served, before)
    wait_until_nothing_runs(served)
    assert isinstance(kept._request.future.exception(DEADLINE_S), serve.DeadlineExceededError)


def test_a_request_whose_deadline_has_passed_is_not_begun(served: Served) -> None:
    before = served.counts()
    with pytest.raises(serve.DeadlineExceededError):
        served.deep.options(timeout_s=0).remote().result(DEADLINE_S)
    assert served.counts() == before


def test_deployments_know_how_much_time_is_left(served: Served) -> None:
    assert served.middle.asks_it.remote().result(DEADLINE_S) is None
    left_s = served.middle.asks_it.options(timeout_s=20).remote().result(DEADLINE_S)
    assert 0 < left_s <= 20
    client = http.client.HTTPConnection(served.host)
    client.request("GET", "/graph?how=asks")
    left_s = float(client.getresponse().read())
    client.close()
    assert 0 < left_s <= 60.25, "the front's request_timeout_s, as of its last look at the clock"


def test_what_travels_of_a_deadline_is_the_time_left() -> None:
    """Nodes have clocks of their own."""
    assert RequestContext("a", "m").departing(5.0) == RequestContext("a", "m")
    assert RequestContext("a", "m", 7.0).departing(5.0) == RequestContext("a", "m", 2.0)
    assert RequestContext("a", "m", 2.0).arrived(100.0) == RequestContext("a", "m", 102.0)
    assert RequestContext("a", "m").arrived(100.0).deadline_s == math.inf
