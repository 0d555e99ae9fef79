"""Whoever waits is served: jobs take turns, priorities go first, and nothing starves, whatever the others want.

Every job here has endless work: it gives a lease back only when it is asked to.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from node_rig import Rig, grants

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.demands import PATIENCE_TICKS
from weft.engine.wire.messages import DefineShape

CPUS = 4
LONGEST_WAIT = 4 * PATIENCE_TICKS
"""Ticks: it insists in every other spell of patience, and what others hold comes back within a tick."""


@dataclass
class Job:
    """One driver with endless work of one shape."""

    process: tuple[int, int]
    cpus: int
    priority: int
    granted: int = 0
    waits: int = 0


class Node:
    """A node and its drivers, who return what they are asked for at the next tick."""

    def __init__(self, jobs: list[tuple[int, int]]) -> None:
        self.rig = Rig({"CPU": CPUS}, start_limit=64)
        self.jobs = [Job((number + 1, 1), cpus, priority) for number, (cpus, priority) in enumerate(jobs)]
        self.asked_back: list[tuple[tuple[int, int], int]] = []
        self.order: list[int] = []
        for number, job in enumerate(self.jobs):
            self.rig.join(job.process, number + 1)
            strategy: dict[str, str | int | bool] = {"priority": job.priority} if job.priority else {}
            shape = DefineShape(1, {"CPU": float(job.cpus)}, strategy=strategy)
            self.rig.feed(ev.ShapeDefined(job.process, shape))
        for job in self.jobs:
            self.see(self.rig.feed(ev.LeaseRequested(job.process, 1, 8)))

    def see(self, done: list[do.Instruction]) -> None:
        for one in done:
            if isinstance(one, do.GrantLease):
                job = next(job for job in self.jobs if job.process == one.process)
                job.granted, job.waits = job.granted + 1, 0
                self.order.append(self.jobs.index(job))
            elif isinstance(one, do.RevokeLease):
                self.asked_back.append((one.process, one.lease))

    def tick(self) -> None:
        asked_back, self.asked_back = self.asked_back, []
        for process, lease in asked_back:
            self.see(self.rig.give_back(lease, process))
            self.see(self.rig.feed(ev.LeaseRequested(process, 1, 8)))
        for job in self.jobs:
            job.waits += 1
        self.see(self.rig.feed(ev.Ticked()))

    def held(self, job: Job) -> int:
        return len(self.rig.state.leases.held_by(job.process))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, CPUS), st.integers(0, 3)), min_size=1, max_size=7))
def test_nobody_starves_whatever_the_sizes_and_priorities(jobs: list[tuple[int, int]]) -> None:
    node = Node(jobs)
    for _ in range(3 * LONGEST_WAIT):
        node.tick()
        for job in node.jobs:
            if node.held(job):
                job.waits = 0
            assert job.waits <= LONGEST_WAIT, f"{job} of {jobs} starves"


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(1, 2))
def test_equal_jobs_share_equally(count: int, cpus: int) -> None:
    node = Node([(cpus, 0)] * count)
    for _ in range(20):
        node.tick()
    room = CPUS // cpus
    if count <= room:
        shares = [node.held(job) for job in node.jobs]
        assert max(shares) - min(shares) <= 1, shares
    else:
        for _ in range(5 * LONGEST_WAIT):
            node.tick()
        served = [job.granted for job in node.jobs]
        assert min(served) * 2 + 2 >= max(served), served


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3))
def test_the_higher_priority_is_served_before_the_lower_of_the_same_job(low: int, high: int) -> None:
    rig = Rig({"CPU": 1})
    rig.join()
    rig.define(1, CPU=1)
    ((lease, _),) = rig.want(1)
    for shape, priority in ((2, 0), (3, high)):
        strategy: dict[str, str | int | bool] = {"priority": priority} if priority else {}
        rig.feed(ev.ShapeDefined((1, 1), DefineShape(shape, {"CPU": 1.0}, strategy=strategy)))
    rig.feed(ev.LeaseRequested((1, 1), 2, low))
    rig.feed(ev.LeaseRequested((1, 1), 3, 1))
    done = rig.give_back(lease)
    assert grants(done)
    assert [one.shape for one in done if isinstance(one, do.GrantLease)] == [3]
