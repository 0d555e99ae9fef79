"""Requests in bundles: the caller's half and the replica's, each alone on a loop, without processes."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from weft.serve.batching import batch
from weft.serve.bundler import Bundler
from weft.serve.bundles import FAILED, TAKEN, Bundles, pack, unpacked
from weft.serve.context import RequestContext
from weft.serve.peers import Peer
from weft.serve.requests import BundledRequest

PATIENCE_S = 30.0


class Actor:
    """A replica that answers when the test says so, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[bytes]] = []
        self.asked: list[str] = []
        self.exchange, self.give_up = _Method(self._exchange), _Method(self._give_up)

    def _exchange(self, caller: str, packed: bytes) -> asyncio.Future[bytes]:
        self.calls.append(asyncio.get_running_loop().create_future())
        self.asked.append(f"exchange {[parcel[0] for parcel in unpacked(packed)]}")
        return self.calls[-1]

    def _give_up(self, caller: str, number: int) -> None:
        self.asked.append(f"give up {number}")


class _Method:
    def __init__(self, call: Any) -> None:
        self.remote = call


class Answered:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    def bundler(self, actor: Actor) -> Bundler:
        return Bundler(Peer("one", actor), asyncio.get_running_loop(), "process", self._take, self._lose)

    def _take(self, peer: Peer, answers: list[tuple[BundledRequest, int, int, Any]]) -> None:
        self.numbers += [one[0].number for one in answers]

    def _lose(self, peer: Peer, requests: list[BundledRequest], error: BaseException) -> None:
        raise AssertionError("nothing is lost here") from error


def test_a_small_answer_does_not_wait_until_large_ones_are_copied() -> None:
    async def scenario() -> None:
        async def answer(context: RequestContext, method: str, args: Any, kwargs: Any) -> tuple[int, int, Any]:
            return TAKEN, 0, (200, (), bytes(args[0]))

        bundles = Bundles(answer, lambda: 0)
        sizes = (9, 1 << 20, 9, 1 << 20)
        sent = [(number, "", "", math.inf, "", "method", (size,)) for number, size in enumerate(sizes)]
        calls = [asyncio.ensure_future(bundles.exchange(pack(given))) for given in (sent, [])]
        assert [[one[0] for one in unpacked(await call)] for call in calls] == [[0, 1], [2, 3]]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def a_request() -> BundledRequest:
    return BundledRequest(asyncio.get_running_loop(), RequestContext(), "method", ())


async def rounds(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_call_stays_under_way_when_two_end_in_one_round_of_the_loop() -> None:
    async def scenario() -> None:
        actor, answered = Actor(), Answered()
        bundler = answered.bundler(actor)
        for sent in ((a_request(),), (a_request(), a_request())):
            for request in sent:
                bundler.send(request)
            await rounds()
        assert actor.asked == ["exchange [1]", "exchange [2, 3]"]
        actor.calls[0].set_result(pack([(1, TAKEN, 0, None)]))
        actor.calls[1].set_result(pack([(2, TAKEN, 0, None)]))
        await rounds()
        assert answered.numbers == [1, 2]
        assert actor.asked[2:] == ["exchange []"], "one call must wait for the third request"
        actor.calls[2].set_result(pack([(3, TAKEN, 0, None)]))
        await rounds()
        assert answered.numbers == [1, 2, 3] and len(actor.calls) == 3

    asyncio.run(scenario())


def test_a_request_that_is_given_up_before_it_was_sent_is_given_up_after() -> None:
    async def scenario() -> None:
        actor, answered = Actor(), Answered()
        bundler = answered.bundler(actor)
        request = a_request()
        bundler.send(request)
        request.give_up()
        await rounds()
        assert actor.asked == ["exchange [1]", "give up 1"]
        actor.calls[0].set_result(pack([(1, FAILED, 0, "given up")]))
        await rounds()
        assert answered.numbers == [1]

    asyncio.run(scenario())


def test_a_request_that_is_given_up_before_its_first_step_is_answered() -> None:
    """Else its caller counts it as under way for ever, and a replica with enough of them gets no request again."""

    async def answer(context: RequestContext, method: str, args: Any, kwargs: Any) -> tuple[int, int, Any]:
        return TAKEN, 0, "answered"

    async def scenario() -> None:
        bundles = Bundles(answer, lambda: 0)
        parcels = [(number, "", "", math.inf, "", "method", ()) for number in (1, 2)]
        loop = asyncio.get_running_loop()
        exchange = loop.create_task(bundles.exchange(pack(parcels)))
        loop.call_soon(bundles.give_up, 1)  # in the same round as the exchange, before the tasks that this makes
        outcomes = unpacked(await asyncio.wait_for(exchange, PATIENCE_S))
        if len(outcomes) < 2:
            outcomes += unpacked(await asyncio.wait_for(bundles.exchange(pack([])), PATIENCE_S))
        assert sorted(one[:2] for one in outcomes) == [(1, FAILED), (2, TAKEN)]

    asyncio.run(scenario())


def test_a_value_that_is_no_array_fails_alone() -> None:
    @batch(max_batch_size=3, wait_s=PATIENCE_S, stack=True)
    async def double(values: Any) -> Any:
        return 2 * values

    async def scenario() -> list[Any]:
        calls = (double([[1], [2, 3]]), double([1.0]), double([2.0]))
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_S)

    ragged, first, second = asyncio.run(scenario())
    assert isinstance(ragged, ValueError)
    assert np.array_equal(first, [2.0]) and np.array_equal(second, [4.0])


def test_a_batch_whose_function_is_cancelled_fails_and_the_next_one_runs() -> None:
    @batch(max_batch_size=1)
    async def inner(values: list[int]) -> list[int]:
        if values == [1]:
            raise asyncio.CancelledError("from inside")
        return values

    async def scenario() -> int:
        with pytest.raises(RuntimeError, match="cancelled: from inside"):
            await asyncio.wait_for(inner(1), PATIENCE_S)
        return int(await asyncio.wait_for(inner(2), PATIENCE_S))

    assert asyncio.run(scenario()) == 2


def test_a_request_that_came_while_a_batch_ran_does_not_wait_for_others_all_over_again() -> None:
    skipped_s = 0.0

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + skipped_s

    async def scenario() -> None:
        nonlocal skipped_s
        go_on, sizes = asyncio.Event(), []

        @batch(max_batch_size=2, wait_s=PATIENCE_S)
        async def slow(values: list[int]) -> list[int]:
            sizes.append(len(values))
            await go_on.wait()
            return values

        first = [asyncio.ensure_future(slow(number)) for number in (1, 2)]
        await rounds()
        late = asyncio.ensure_future(slow(3))
        await rounds()
        skipped_s = PATIENCE_S
        go_on.set()
        await asyncio.gather(*first)
        await rounds()
        assert sizes == [2, 1] and late.done()

    loop = Loop()
    loop.run_until_complete(scenario())
    loop.close()
