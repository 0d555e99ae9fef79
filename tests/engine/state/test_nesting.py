"""Workers that wait for tasks of their own: how many may, and what happens then."""

from __future__ import annotations

from node_rig import DRIVER, Rig, grants

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.nesting import STANDSTILL_TICKS, STANDSTILL_TICKS_WITH_ACTORS

Process = tuple[int, int]


def nested(rig: Rig, levels: int) -> list[Process]:
    """So many tasks, each submitted by the one before, which waits for it."""
    chain: list[Process] = []
    asker = DRIVER
    for _ in range(levels):
        rig.define(1, asker, CPU=1)
        [(_, worker)] = rig.want(1, process=asker)
        rig.feed(ev.WorkerBlocked(worker))
        chain.append(worker)
        asker = worker
    rig.define(1, asker, CPU=1)
    return chain


def refusals(done: list[do.Instruction]) -> list[do.RefuseShape]:
    return [one for one in done if isinstance(one, do.RefuseShape)]


def full_rig(levels: int = 5) -> tuple[Rig, list[Process]]:
    rig = Rig(most_blocked=levels)
    rig.join()
    return rig, nested(rig, levels)


def test_below_the_limit_a_level_more_is_granted() -> None:
    rig, chain = full_rig(5)
    rig.state.nesting.most_blocked = 6
    assert len(rig.want(1, process=chain[-1])) == 1


def test_at_a_standstill_the_deepest_is_refused_with_the_chain_of_functions_and_once_only() -> None:
    rig, chain = full_rig(5)
    assert rig.want(1, process=chain[-1]) == []
    seen: list[do.Instruction] = []
    for _ in range(STANDSTILL_TICKS):
        assert not refusals(seen)
        seen += rig.feed(ev.Ticked())
    [refused] = refusals(seen)
    assert refused.process == chain[-1]
    assert (refused.shape, refused.only_now) == (1, True)
    assert "6 levels wait for each other: f > f > f > f > f > f." in refused.fault.text
    assert "WEFT_MAX_BLOCKED_WORKERS" in refused.fault.text
    assert not rig.state.demands.is_waiting
    rig.feed(ev.WorkerUnblocked(chain[-1]))
    assert len(rig.want(1, process=chain[-1])) == 1, "what it submits later is served again"


def test_while_another_task_runs_nothing_is_refused() -> None:
    rig, chain = full_rig(5)
    rig.define(2, CPU=1)
    assert len(rig.want(1, shape=2)) == 1, "a driver's task is no level more"
    assert rig.want(1, process=chain[-1]) == []
    for _ in range(3 * STANDSTILL_TICKS):
        assert not refusals(rig.feed(ev.Ticked()))


def test_who_goes_on_makes_room_for_the_next_level() -> None:
    rig, chain = full_rig(5)
    assert rig.want(1, process=chain[-1]) == []
    assert len(grants(rig.feed(ev.WorkerUnblocked(chain[0])))) == 1


def test_with_actors_that_may_answer_the_blocked_ones_it_takes_longer() -> None:
    rig = Rig({"CPU": 2}, most_blocked=5)
    rig.join()
    rig.create(1, placement_resources={})
    chain = nested(rig, 5)
    rig.want(1, process=chain[-1])
    for _ in range(STANDSTILL_TICKS_WITH_ACTORS - 1):
        assert not refusals(rig.feed(ev.Ticked()))
    assert len(refusals(rig.feed(ev.Ticked()))) == 1
