"""Generator tasks and methods stream their results."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import numpy as np
import pytest

import weft
from waiting import comes_true
from weft.engine.process.calls import generator as generators

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
def count(n: int) -> Any:
    yield from range(n)


@weft.remote
class Streams:
    def __init__(self) -> None:
        self.made = 0

    def plain(self, n: int) -> Any:
        for i in range(n):
            self.made += 1
            yield i

    def produced(self) -> int:
        return self.made


@weft.remote
class AsyncStreams:
    def __init__(self) -> None:
        self.made = 0
        self.closed = False

    async def coroutine(self, n: int) -> Any:
        try:
            for i in range(n):
                await asyncio.sleep(0)
                self.made += 1
                yield i
        finally:
            self.closed = True

    def plain(self, n: int) -> Any:
        yield from range(n)

    async def state(self) -> Any:
        return self.made, self.closed


def values(generator: Any) -> list[Any]:
    return [weft.get(ref) for ref in generator]


def test_a_generator_tasks_values_come_one_by_one() -> None:
    generator = count.remote(3)
    assert isinstance(generator, weft.ObjectRefGenerator)
    assert weft.get(next(generator)) == 0
    assert values(generator) == [1, 2]
    with pytest.raises(StopIteration):
        next(generator)
    assert generator.is_finished() and not generator.next_ready()
    assert weft.wait([generator], timeout=0)[0] == [generator]


def test_many_and_large_items_stream() -> None:
    assert values(count.remote(2000)) == list(range(2000))

    @weft.remote
    def arrays() -> Any:
        for i in range(5):
            yield np.full(200_000, i)

    assert [array[0] for array in values(arrays.remote())] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["plain", "threaded", "async", "plain of async"])
def test_methods_stream(kind: str) -> None:
    if kind == "plain":
        assert values(Streams.remote().plain.remote(300)) == list(range(300))
    elif kind == "threaded":
        assert values(Streams.options(max_concurrency=2).remote().plain.remote(300)) == list(range(300))
    elif kind == "async":
        assert values(AsyncStreams.remote().coroutine.remote(300)) == list(range(300))
    else:
        assert values(AsyncStreams.remote().plain.remote(300)) == list(range(300))


def test_a_generators_exception_is_its_last_item() -> None:
    @weft.remote(max_retries=0)
    def fail() -> Any:
        yield 1
        yield ValueError("only a value")
        raise ValueError("the end")

    generator = fail.remote()
    assert weft.get(next(generator)) == 1
    assert isinstance(weft.get(next(generator)), ValueError)
    with pytest.raises(ValueError, match="the end"):
        weft.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


def test_a_generator_whose_worker_dies_ends_with_that_error() -> None:
    @weft.remote(max_retries=0)
    def die() -> Any:
        yield 1
        os._exit(1)

    generator = die.remote()
    assert weft.get(next(generator)) == 1
    with pytest.raises(weft.exceptions.WorkerCrashedError):
        weft.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


def test_a_generator_that_fails_at_once_has_one_item() -> None:
    @weft.remote
    def fail() -> Any:
        raise KeyError("first")
        yield

    with pytest.raises(KeyError):
        weft.get(next(fail.remote()))


def test_the_producer_is_held_back() -> None:
    streams = AsyncStreams.remote()
    generator = streams.coroutine.options(_generator_backpressure_num_objects=2).remote(100)
    assert weft.get(next(generator)) == 0
    made, _ = weft.get(streams.state.remote())
    assert made <= 5
    assert len(values(generator)) == 99


def test_a_dropped_generator_ends_its_task() -> None:
    streams = AsyncStreams.remote()
    generator = streams.coroutine.options(_generator_backpressure_num_objects=1).remote(1_000_000)
    assert weft.get(next(generator)) == 0
    del generator
    assert comes_true(lambda: weft.get(streams.state.remote())[1])
    assert weft.get(streams.state.remote())[0] < 1000


def test_a_generator_can_be_iterated_asynchronously() -> None:
    async def main() -> Any:
        return [await ref async for ref in count.remote(5)]

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_generators_and_refs_can_be_waited_for_together() -> None:
    generator, ref = count.remote(1), weft.put(5)
    ready, rest = weft.wait([generator, ref], num_returns=2, timeout=30)
    assert (ready, rest) == ([generator, ref], [])
    assert values(generator) == [0]


def test_get_of_a_generator_is_the_generator() -> None:
    generator = count.options(num_returns="dynamic").remote(2)
    assert values(weft.get(generator)) == [0, 1]


def test_a_fixed_number_of_returns_may_be_yielded() -> None:
    assert weft.get(count.options(num_returns=3).remote(3)) == [0, 1, 2]


def test_what_is_yielded_beyond_that_number_is_not_taken() -> None:
    assert weft.get(count.options(num_returns=2).remote(3)) == [0, 1]
    with pytest.raises(ValueError, match="num_returns=3 but returned 2"):
        weft.get(count.options(num_returns=3).remote(2))


def test_the_one_value_of_a_generator_is_the_tasks() -> None:
    assert weft.get(count.options(num_returns=1).remote(1)) == 0


def test_only_a_generator_function_is_dynamic() -> None:
    with pytest.raises(ValueError, match="can only be used with generator functions"):

        @weft.remote(num_returns="dynamic")
        def plain() -> list[int]:
            return [1]


def test_a_dynamic_generator_is_sent_once_its_task_has_ended() -> None:
    @weft.remote
    def read(sent: Any) -> list[int]:
        return [weft.get(ref) for ref in sent]

    generator = count.options(num_returns="dynamic").remote(4)
    assert isinstance(generator, weft.DynamicObjectRefGenerator)
    assert weft.get(next(generator)) == 0
    assert weft.get(read.remote(generator)) == [1, 2, 3]
    assert len(generator) == 3 and not generator.is_finished()
    assert values(generator) == [1, 2, 3]
    assert generator.is_finished()


def test_a_generator_can_not_be_sent() -> None:
    with pytest.raises(TypeError, match="ObjectRefGenerator cannot be sent"):
        weft.put(count.remote(1))


def test_an_item_that_comes_while_a_wait_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @weft.remote
    def one() -> Any:
        yield 1

    stream = one.options(num_returns="streaming").remote()
    weft.wait([stream], num_returns=1, timeout=30)
    is_ready, looks = generators._is_ready, []

    def look(entry: Any) -> bool:
        looks.append(entry)
        return len(looks) > 1 and is_ready(entry)

    monkeypatch.setattr(generators, "_is_ready", look)
    ready, _ = weft.wait([stream], num_returns=1, timeout=5)
    assert ready == [stream]
    assert len(looks) == 2, "it waited until the timeout"
    assert weft.get(next(stream)) == 1


def test_a_generator_may_be_ahead_by_more_items_than_its_record_has_room_for() -> None:
    """The number wrapped: 2³² + 1 was taken for 1."""
    assert generators.window(2**32 + 1) == generators.window(-1) == generators.NO_LIMIT
    assert generators.window(7) == 7


def test_a_generator_may_yield_several_objects_at_once() -> None:
    @weft.remote(_num_objects_per_yield=2)
    def pairs(count: int) -> Any:
        for number in range(count):
            yield number, f"about {number}"

    class Source:
        @weft.method(_num_objects_per_yield=2)
        async def pairs(self) -> Any:
            yield [1, 2]

    assert [weft.get(ref) for ref in pairs.remote(2)] == [0, "about 0", 1, "about 1"]
    source = weft.remote(Source).remote()
    assert [weft.get(ref) for ref in source.pairs.remote()] == [1, 2]
    with pytest.raises(ValueError, match=r"_num_objects_per_yield.*not supported in '.options"):
        pairs.options(_num_objects_per_yield=3)
    with pytest.raises(ValueError, match="_num_objects_per_yield=2 is for generators"):
        weft.remote(_num_objects_per_yield=2)(len)


def test_what_is_not_so_many_objects_as_the_generator_said_is_an_error() -> None:
    @weft.remote(_num_objects_per_yield=2)
    def wrong() -> Any:
        yield (1,)

    only, *more = wrong.remote()
    with pytest.raises(ValueError, match=r"must yield tuples of 2, .* but yielded 1 values"):
        weft.get(only)
    assert not more
