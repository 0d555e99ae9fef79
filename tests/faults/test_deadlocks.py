"""Waits that can never end end in a DeadlockError; waits that are only long do not."""

from __future__ import annotations

import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import pytest

import weft
from weft.cluster_utils import Cluster
from weft.exceptions import DeadlockError, GetTimeoutError

LONG_S = 2.5
"""Long enough for every wait to be looked into several times."""


@weft.remote(num_cpus=0)
class Peer:
    """Calls others, and itself, and waits for the answer."""

    def meet(self, other: Any) -> None:
        self.other = other

    def ask(self) -> int:
        answer: int = weft.get(self.other.ask_for_answer.remote())
        return answer

    def answer(self) -> int:
        return 7

    def ask_for_answer(self) -> int:
        answer: int = weft.get(self.other.answer.remote())
        return answer

    def work(self, seconds: float) -> int:
        time.sleep(seconds)
        return 7


def pair() -> tuple[Any, Any]:
    first, second = Peer.remote(), Peer.remote()
    weft.get([first.meet.remote(second), second.meet.remote(first)])
    return first, second


def test_an_actor_that_waits_for_itself_is_told(weft_session: ModuleType) -> None:
    actor = Peer.remote()
    weft.get(actor.meet.remote(actor))
    with pytest.raises(
        DeadlockError, match=r"Peer.ask_for_answer \(pid \d+\) waits for Peer.answer.* which is queued"
    ) as caught:
        weft.get(actor.ask_for_answer.remote())
    assert caught.value.cause.cycle and len(caught.value.cause.cycle) == 1
    assert weft.get(actor.answer.remote()) == 7, "the actor lives on"


def test_two_actors_that_wait_for_each_other_are_told(weft_session: ModuleType) -> None:
    first, second = pair()
    with pytest.raises(DeadlockError) as caught:
        weft.get(first.ask.remote())
    text = str(caught.value)
    assert "Peer.ask_for_answer (pid" in text and "waits for Peer.answer, which is queued" in text
    assert "waits for Peer.ask_for_answer, which runs in pid" in text
    assert weft.get([first.answer.remote(), second.answer.remote()]) == [7, 7]


def test_actors_on_two_nodes_that_wait_for_each_other_are_told() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"a": 1}})
    try:
        cluster.add_node(num_cpus=1, resources={"b": 1})
        weft.init(address=cluster.address)
        first = Peer.options(resources={"a": 1}).remote()
        second = Peer.options(resources={"b": 1}).remote()
        weft.get([first.meet.remote(second), second.meet.remote(first)])
        with pytest.raises(DeadlockError):
            weft.get(first.ask.remote())
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_a_task_that_waits_for_what_only_it_could_give_back_is_told() -> None:
    weft.init(num_cpus=2, resources={"licence": 1})
    try:

        @weft.remote(resources={"licence": 1})
        def inner() -> int:
            return 1

        @weft.remote(resources={"licence": 1})
        def outer() -> int:
            answer: int = weft.get(inner.remote())
            return answer

        with pytest.raises(DeadlockError, match="waits for resources, which its holders never give back"):
            weft.get(outer.remote())
        assert weft.get(inner.remote()) == 1
    finally:
        weft.shutdown()


KEPT = """
import weft

weft.init(num_cpus=1)

@weft.remote(num_cpus=1)
class Keeper:
    def answer(self):
        return 7

@weft.remote
def task():
    return 1

keeper = Keeper.remote()
weft.get(keeper.answer.remote())
try:
    weft.get(task.remote())
except weft.exceptions.DeadlockError as error:
    print(error)
pending = task.remote()
weft.kill(keeper)
print("then", weft.get(pending))
"""


def test_a_driver_that_waits_for_a_cpu_that_its_actors_keep_is_told() -> None:
    # A driver of its own: one with other threads, which might end the actor, is left alone.
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=280)
    assert "held by actor Keeper" in done.stdout, done
    assert done.stdout.endswith("then 1\n"), done


def test_all_threads_of_an_actor_that_wait_for_its_queue_are_told(weft_session: ModuleType) -> None:
    actor = Peer.options(max_concurrency=2).remote()
    weft.get(actor.meet.remote(actor))
    calls = [actor.ask_for_answer.remote() for _ in range(2)]
    outcomes = []
    for call in calls:
        try:
            outcomes.append(weft.get(call))
        except DeadlockError:
            outcomes.append("deadlock")
    assert outcomes in ([7, 7], ["deadlock", 7], [7, "deadlock"]), "one broken wait is enough for the other"

    deep = Peer.options(max_concurrency=2).remote()
    weft.get(deep.meet.remote(deep))
    with pytest.raises(DeadlockError):
        weft.get(deep.ask.remote())


def test_a_blocking_wait_on_an_event_loop_for_that_loop_is_told(weft_session: ModuleType) -> None:
    @weft.remote(num_cpus=0)
    class Loop:
        async def answer(self) -> int:
            return 7

        async def ask(self, me: Any) -> int:
            answer: int = weft.get(me.answer.remote())
            return answer

    actor = Loop.remote()
    with pytest.raises(DeadlockError):
        weft.get(actor.ask.remote(actor))


def test_an_argument_that_waits_for_its_own_task_is_told(weft_session: ModuleType) -> None:
    """The cycle goes through a task that waits for an argument."""

    @weft.remote
    def use(value: int) -> int:
        return value

    @weft.remote(num_cpus=0)
    class Maker:
        def make(self) -> int:
            return 1

        def ask(self, me: Any) -> int:
            answer: int = weft.get(use.remote(me.make.remote()))
            return answer

    actor = Maker.remote()
    with pytest.raises(DeadlockError, match="an argument that is not there"):
        weft.get(actor.ask.remote(actor))


def test_long_waits_that_end_are_left_alone(weft_session: ModuleType) -> None:
    """All at once: what they have in common is that everything in them waits for seconds, and ends."""

    @weft.remote(num_cpus=0)
    def long() -> int:
        time.sleep(LONG_S)
        return 1

    @weft.remote(num_cpus=0)
    def nested(depth: int) -> int:
        answer: int = weft.get(nested.remote(depth - 1)) if depth else weft.get(long.remote())
        return answer

    @weft.remote
    def last_cpu(depth: int) -> int:
        if depth:
            answer: int = weft.get(last_cpu.remote(depth - 1))
            return answer
        time.sleep(LONG_S)
        return 1

    @weft.remote(num_cpus=0)
    class Async:
        async def ask(self, other: Any, depth: int) -> int:
            if depth:
                answer: int = await other.ask.remote(self.me, depth - 1)
                return answer
            import asyncio

            await asyncio.sleep(LONG_S)
            return 1

        def meet(self, me: Any) -> None:
            self.me = me

    first, second = pair()
    one, two = Async.remote(), Async.remote()
    weft.get([one.meet.remote(one), two.meet.remote(two)])
    threaded = Peer.options(max_concurrency=3).remote()
    weft.get(threaded.meet.remote(threaded))
    busy = second.work.remote(LONG_S)
    waits = [
        nested.remote(3),
        last_cpu.remote(4),
        first.ask_for_answer.remote(),  # behind `busy`
        one.ask.remote(two, 6),
        threaded.work.remote(LONG_S),
        threaded.work.remote(LONG_S),
        threaded.ask_for_answer.remote(),
    ]
    assert weft.get(waits) == [1, 1, 7, 1, 7, 7, 7]
    assert weft.get(busy) == 7


def test_a_wait_with_a_timeout_ends_in_the_timeout(weft_session: ModuleType) -> None:
    @weft.remote(num_cpus=0)
    class Patient:
        def ask(self, me: Any) -> str:
            try:
                weft.get(me.answer.remote(), timeout=LONG_S)
            except GetTimeoutError:
                return "timeout"
            return "answer"

        def answer(self) -> int:
            return 1

    actor = Patient.remote()
    assert weft.get(actor.ask.remote(actor)) == "timeout"


def test_a_wait_that_another_thread_of_the_driver_ends_is_left_alone() -> None:
    import threading

    weft.init(num_cpus=1)
    try:

        @weft.remote
        def task() -> int:
            return 1

        keeper = Peer.options(num_cpus=1).remote()
        weft.get(keeper.answer.remote())
        killer = threading.Timer(LONG_S, weft.kill, (keeper,))
        killer.start()
        assert weft.get(task.remote()) == 1
        killer.join()
    finally:
        weft.shutdown()
