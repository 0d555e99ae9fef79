"""The thread of a replica's plain code, and what plain code may raise."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from weft.serve import batch
from weft.serve.lane import Lane

PATIENCE_S = 10.0
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("lane")
    yield made
    made.close()
    if made._thread is not None:
        made._thread.join()


def none_left() -> Any:
    return next(iter([]))


def test_calls_run_in_order_on_one_thread_with_the_callers_context(lane: Lane) -> None:
    ran: list[int] = []

    def call(number: int) -> tuple[int, str, str]:
        ran.append(number)
        return number, threading.current_thread().name, variable.get()

    async def scenario() -> list[Any]:
        variable.set("mine")
        return await asyncio.gather(*(lane.run(lambda number=number: call(number)) for number in range(5)))

    assert asyncio.run(scenario()) == [(number, "lane", "mine") for number in range(5)]
    assert ran == list(range(5))


def test_a_call_that_nobody_waits_for_when_its_turn_comes_is_left_out(lane: Lane) -> None:
    go_on, ran = threading.Event(), []

    async def scenario() -> None:
        first, second, third = lane.run(go_on.wait), lane.run(lambda: ran.append(2)), lane.run(lambda: ran.append(3))
        second.cancel()
        go_on.set()
        await asyncio.gather(first, third)

    asyncio.run(scenario())
    assert ran == [3]


def test_what_is_raised_comes_back_and_the_next_call_runs(lane: Lane) -> None:
    async def scenario() -> Any:
        with pytest.raises(ZeroDivisionError):
            await lane.run(lambda: 1 / 0)
        with pytest.raises(SystemExit):
            await lane.run(lambda: exec("raise SystemExit"))
        return await lane.run(lambda: 3)

    assert asyncio.run(scenario()) == 3


def test_a_stop_iteration_of_plain_code_leaves_nobody_waiting(lane: Lane) -> None:
    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(lane.run(none_left), PATIENCE_S)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_a_stop_iteration_of_a_batch_leaves_nobody_waiting(how: str) -> None:
    @batch(max_batch_size=1)
    def numbers(values: list[int]) -> list[Any]:
        if values == [1]:
            return [StopIteration()] if how == "returned" else none_left()
        return values

    async def scenario() -> Any:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(numbers(1), PATIENCE_S)
        return await asyncio.wait_for(numbers(2), PATIENCE_S)

    assert asyncio.run(scenario()) == 2
