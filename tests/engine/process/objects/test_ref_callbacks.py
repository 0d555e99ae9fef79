"""Refs where a future is expected: `asyncio.wait`, callbacks, results."""

from __future__ import annotations

import asyncio
import threading
from types import ModuleType
from typing import Any

import pytest

import weft
from weft.engine.process.objects import ref_callbacks

pytestmark = pytest.mark.usefixtures("weft_session")


@weft.remote
def double(x: int) -> int:
    return 2 * x


@weft.remote
def fail() -> None:
    raise KeyError("gone")


@weft.remote
class Gate:
    def __init__(self) -> None:
        self._open = asyncio.Event()

    async def open(self) -> None:
        self._open.set()

    async def passed(self) -> str:
        await self._open.wait()
        return "through"


def test_asyncio_waits_for_refs() -> None:
    async def run() -> tuple[int, int, set[int]]:
        gate = Gate.remote()
        held = gate.passed.remote()
        done, pending = await asyncio.wait([double.remote(x) for x in range(3)] + [held], timeout=1)
        values = {await ref for ref in done}
        await gate.open.remote()
        through, _ = await asyncio.wait([held])
        assert [await ref for ref in through] == ["through"]
        return len(done), len(pending), values

    assert asyncio.run(run()) == (3, 1, {0, 2, 4})
    assert not ref_callbacks._added


def test_asyncio_waits_for_the_first() -> None:
    async def run() -> None:
        gate = Gate.remote()
        held = gate.passed.remote()
        done, pending = await asyncio.wait([held, double.remote(4)], return_when=asyncio.FIRST_COMPLETED)
        assert [await ref for ref in done] == [8]
        assert pending == {held}
        await gate.open.remote()
        assert await held == "through"

    asyncio.run(run())


def test_a_callback_is_called_once_with_the_ref() -> None:
    called: list[Any] = []
    came = threading.Event()
    ref = double.remote(21)

    def take(given: Any) -> None:
        called.append(given)
        came.set()

    ref.add_done_callback(take)
    assert came.wait(30)
    assert called == [ref]
    assert ref.done()
    came.clear()
    ref.add_done_callback(take)  # it is there already
    assert came.wait(30)


def test_a_callback_that_was_removed_is_not_called() -> None:
    gate = Gate.remote()
    held = gate.passed.remote()
    called: list[Any] = []
    held.add_done_callback(called.append)
    held.add_done_callback(called.append)
    assert held.remove_done_callback(called.append) == 2
    assert held.remove_done_callback(called.append) == 0
    weft.get(gate.open.remote())
    assert held.result(timeout=30) == "through"
    came = threading.Event()
    held.add_done_callback(lambda _: came.set())  # calls come in order: the removed ones would have come before
    assert came.wait(30)
    assert called == []


def test_results_and_exceptions(weft_session: ModuleType) -> None:
    assert double.remote(3).result() == 6
    assert double.remote(3).exception() is None
    assert isinstance(fail.remote().exception(timeout=30), KeyError)
    gate = Gate.remote()
    held = gate.passed.remote()
    with pytest.raises(weft.exceptions.GetTimeoutError):
        held.exception(timeout=0.01)
    assert not held.done()
