"""Pools, queues and maps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import weft
from weft.util import ActorPool, as_completed, map_unordered
from weft.util.queue import Empty, Full, Queue

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
class Doubler:
    def double(self, x: int) -> int:
        return 2 * x

    @weft.method(num_returns=2)
    def both(self, x: int) -> tuple[int, int]:
        return x, 2 * x

    def fail(self, x: int) -> None:
        raise ValueError(x)


@weft.remote
def double(x: int) -> int:
    return 2 * x


def pool(size: int = 2) -> ActorPool:
    return ActorPool([Doubler.remote() for _ in range(size)])


def twice(actor: Any, value: int) -> Any:
    return actor.double.remote(value)


def test_a_pool_maps_in_order_and_out_of_order() -> None:
    actors = pool()
    assert list(actors.map(twice, range(10))) == [2 * i for i in range(10)]
    assert sorted(actors.map_unordered(twice, range(10))) == [2 * i for i in range(10)]
    assert list(actors.map(twice, [])) == []


def test_a_pool_gives_all_returns_of_a_method_that_has_several() -> None:
    actors = pool()
    for i in range(4):
        actors.submit(lambda actor, value: actor.both.remote(value), i)
    assert [actors.get_next() for _ in range(3)] == [[0, 0], [1, 2], [2, 4]]
    assert actors.get_next_unordered() == [3, 6]


def test_a_pool_gives_results_one_by_one() -> None:
    actors = pool()
    for i in range(5):
        actors.submit(twice, i)
    assert actors.get_next() == 0
    assert actors.get_next_unordered() in (2, 4, 6, 8)
    rest = []
    while actors.has_next():
        rest.append(actors.get_next())
    assert len(rest) == 3
    with pytest.raises(StopIteration):
        actors.get_next()


def test_a_pools_members_come_and_go() -> None:
    actors = pool(1)
    actors.submit(twice, 1)
    assert actors.pop_idle() is None
    assert not actors.has_free()
    assert actors.get_next() == 2
    member = actors.pop_idle()
    assert not actors.has_free()
    actors.push(member)
    assert actors.has_free()
    with pytest.raises(ValueError, match="already belongs"):
        actors.push(member)


def test_a_failed_call_gives_the_actor_back() -> None:
    actors = pool(1)
    actors.submit(lambda actor, value: actor.fail.remote(value), 1)
    actors.submit(twice, 2)
    with pytest.raises(ValueError):  # noqa: PT011
        actors.get_next()
    assert actors.get_next() == 4


def test_a_queue_is_first_in_first_out() -> None:
    queue = Queue()
    assert queue.empty()
    for i in range(3):
        queue.put(i)
    assert (len(queue), queue.size(), queue.full()) == (3, 3, False)
    assert [queue.get() for _ in range(3)] == [0, 1, 2]


def test_an_empty_queue_and_a_full_one_say_so() -> None:
    queue = Queue(maxsize=1)
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(timeout=0.01)
    queue.put(1)
    with pytest.raises(Full):
        queue.put_nowait(2)
    with pytest.raises(Full):
        queue.put(2, timeout=0.01)
    with pytest.raises(ValueError, match="non-negative"):
        queue.put(2, timeout=-1)


def test_a_queue_takes_batches_whole() -> None:
    queue = Queue(maxsize=5)
    queue.put_nowait_batch([1, 2, 3])
    with pytest.raises(Full):
        queue.put_nowait_batch([4, 5, 6])
    assert queue.get_nowait_batch(2) == [1, 2]
    with pytest.raises(Empty):
        queue.get_nowait_batch(2)


def test_a_queue_joins_tasks() -> None:
    queue = Queue()

    @weft.remote
    def produce(target: Any, n: int) -> None:
        for i in range(n):
            target.put(i)

    produce.remote(queue, 5)
    assert [queue.get(timeout=30) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_queue_can_be_awaited() -> None:
    async def main() -> Any:
        queue = Queue(maxsize=1)
        await queue.put_async(1)
        return await queue.get_async()

    assert asyncio.run(main()) == 1


def test_a_queue_can_be_shut_down() -> None:
    queue = Queue()
    actor = queue.actor
    queue.shutdown()
    assert queue.actor is None
    with pytest.raises(weft.exceptions.RayActorError):
        weft.get(actor.empty.remote())


def test_results_come_as_they_are_ready() -> None:
    assert sorted(as_completed([double.remote(i) for i in range(25)])) == [2 * i for i in range(25)]
    refs = list(as_completed([double.remote(1)], yield_obj_refs=True))
    assert weft.get(refs) == [2]
    assert sorted(map_unordered(double, range(25), backpressure_size=10, chunk_size=2)) == [2 * i for i in range(25)]
    with pytest.raises(ValueError, match="backpressure_size"):
        map_unordered(double, [], backpressure_size=1, chunk_size=2)


def test_a_result_that_is_ready_does_not_wait_for_others() -> None:
    @weft.remote
    class Gate:
        def __init__(self) -> None:
            self.opened = asyncio.Event()

        async def enter(self) -> str:
            await self.opened.wait()
            return "late"

        async def open(self) -> None:
            self.opened.set()

    gate = Gate.remote()
    results = weft.as_completed([gate.enter.remote(), weft.put("early")])
    assert next(results) == "early"
    weft.get(gate.open.remote())
    assert list(results) == ["late"]


def test_results_can_be_iterated_over_in_a_coroutine() -> None:
    async def read() -> tuple[list[int], list[int], int]:
        values = [value async for value in weft.as_completed([double.remote(i) for i in range(500)])]
        refs = [ref async for ref in weft.as_completed([double.remote(7)], yield_obj_refs=True)]
        failures = 0
        try:
            async for _ in weft.as_completed([Doubler.remote().fail.remote(1)]):
                pass
        except ValueError:
            failures += 1
        return sorted(values), weft.get(refs), failures

    assert asyncio.run(read()) == ([2 * i for i in range(500)], [14], 1)


def test_as_completed_refuses_what_it_cannot_wait_for() -> None:
    with pytest.raises(TypeError, match=r"got a single one: as_completed\(\[ObjectRef"):
        weft.as_completed(weft.put(1))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="has 3 in it"):
        weft.as_completed([weft.put(1), 3])
    with pytest.raises(ValueError, match="chunk_size must be at least 1, but got 0"):
        weft.as_completed([], chunk_size=0)
    with pytest.raises(TypeError, match="chunk_size must be an int or None, but got '2'"):
        weft.as_completed([], chunk_size="2")
