"""Who is served next, found without a look at all who wait."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest
from node_rig import Rig, actor_id

from weft.engine.state import events as ev
from weft.engine.state.demands import PATIENCE_TICKS, Demand, DemandKey, DemandQueue
from weft.engine.state.resources import ResourcePool, to_amounts
from weft.engine.state.workers import WorkerPool

NEEDS: list[dict[str, float]] = [{}, {"CPU": 1}, {"CPU": 2}, {"CPU": 4}, {"A": 1}, {"CPU": 1, "A": 1}]


def by_looking_at_all(queue: DemandQueue, pool: ResourcePool, unplaceable: Collection[DemandKey]) -> Demand | None:
    """The rule in words: in the order of all, the first that fits and needs nothing that is kept for one before it."""
    kept: set[str] = set()
    for demand in queue.pending():
        names = {name for name, _ in demand.need}
        if names & kept:
            continue
        if demand.key in unplaceable:
            kept |= names
        elif not (short := demand.shortage(pool)):
            return demand
        elif demand.insists:
            kept |= set(short)
    return None


class Driven:
    """A queue under random events."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.queue = DemandQueue()
        self.pool = ResourcePool({"CPU": 4, "A": 1})
        self.held: list[tuple[Demand, Any]] = []
        self._last = 0

    def step(self) -> None:
        one_of: list[Any] = [self.ask, self.ask, self.serve, self.serve, self.give_back, self.tick, self.withdraw]
        self.random.choice(one_of)()

    def ask(self) -> None:
        self._last += 1
        need = to_amounts(self.random.choice(NEEDS))
        requester = (self.random.randrange(3), 1)
        is_actor = self.random.random() < 0.5
        key: DemandKey = actor_id(self._last) if is_actor else (requester, self.random.randrange(4))
        known = self.queue.by_key.get(key)
        job, depth = self.random.randrange(2), self.random.randrange(3)
        demand = known or Demand(key, job, (0, 0) if is_actor else requester, depth, need, need, "")
        demand.priority = known.priority if known else self.random.choice([0, 0, 5])
        self.queue.want(demand, 1 if is_actor else self.random.randrange(4))

    def serve(self) -> None:
        if (demand := self.queue.next_fitting(self.pool)) is not None:
            self.held.append((demand, self.pool.acquire(demand.hold, demand.need)))
            self.queue.granted(demand)

    def give_back(self) -> None:
        if self.held:
            demand, holding = self.held.pop(self.random.randrange(len(self.held)))
            self.pool.release(holding)
            self.queue.gave_back(demand.key)

    def tick(self) -> None:
        for _ in range(self.random.choice([1, PATIENCE_TICKS])):
            self.queue.tick()

    def withdraw(self) -> None:
        if self.random.random() < 0.1:
            self.queue.withdraw((self.random.randrange(3), 1))


@pytest.mark.parametrize("seed", range(20))
def test_the_next_one_is_the_one_that_a_look_at_all_of_them_finds(seed: int) -> None:
    driven = Driven(seed)
    for _ in range(200):
        driven.step()
        driven.queue.check()
        lacking: set[DemandKey] = set()
        while True:
            found = driven.queue.next_fitting(driven.pool, lacking)
            assert found is by_looking_at_all(driven.queue, driven.pool, lacking)
            if found is None:
                break
            lacking |= {one.key for one in driven.queue.pending() if one.peers == found.peers and one.job == found.job}


def test_so_many_actors_at_once_take_so_many_looks_at_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are events, not as many for each of them: with 300 actors a look each was hours."""
    looks = 0
    choose = WorkerPool.choose

    def counted(self: WorkerPool, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return choose(self, *args)

    monkeypatch.setattr(WorkerPool, "choose", counted)
    rig = Rig(forks_at_once=False, start_limit=4)
    rig.join()
    count = 100
    for number in range(count):
        rig.create(number, placement_resources={})
    forked = 0
    while starting := [worker.process for worker in rig.state.workers if not worker.forked]:
        forked += len(starting)
        for process in starting:
            rig.feed(ev.WorkerForked(process, process[0]))
    assert all(actor.worker is not None for actor in rig.state.actors.by_id.values())
    assert looks <= 2 * (count + 2 * forked)


def test_those_who_have_what_they_wanted_are_not_among_those_who_want() -> None:
    queue = DemandQueue()
    held, waiting = (Demand(((number, 1), 1), 1, (number, 1), 0, (), (), "") for number in (1, 2))
    for demand in (held, waiting):
        queue.want(demand, 1)
    assert set(queue.wanting()) == {held, waiting}
    queue.granted(held)
    assert set(queue.wanting()) == {waiting}
    assert set(queue.by_key.values()) == {held, waiting}


@pytest.mark.parametrize("cpus", [1, 0.75], ids=["all CPUs are used", "some of a CPU is left"])
def test_so_many_shapes_at_once_take_so_many_looks_at_those_who_wait(
    monkeypatch: pytest.MonkeyPatch, cpus: float
) -> None:
    """Some for each event, not one at every shape that waits: with 4,500 shapes the node was busy for minutes."""
    looks = 0
    shortage = ResourcePool.shortage

    def counted(self: Demand) -> bool:
        nonlocal looks
        looks += 1
        return self.is_local and self.wanted > self.away

    def counted_shortage(self: ResourcePool, wanted: Any) -> Any:
        nonlocal looks
        looks += 1
        return shortage(self, wanted)

    monkeypatch.setattr(Demand, "waits_here", property(counted))
    monkeypatch.setattr(ResourcePool, "shortage", counted_shortage)
    rig = Rig({"CPU": 2, "disk": 1000}, prestart=2)
    rig.feed(ev.NodeStarted())
    rig.join()
    count = 150
    for number in range(1, count + 1):
        rig.define(number, CPU=cpus, disk=number)
        rig.want(1, number)
    served = 0
    while leases := list(rig.state.leases.by_id):
        served += len(leases)
        for lease in leases:
            rig.give_back(lease)
    assert served == count
    assert looks < 60 * count
