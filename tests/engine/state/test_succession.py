"""What a node makes of another head, and of being the head itself."""

from __future__ import annotations

from node_rig import DRIVER, Rig, actor_id, killed

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.actors import Stage
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.placement import GroupState
from weft.engine.state.resources import UNIT
from weft.engine.wire.messages import ActorSpec, CreateGroup

OLD, NEW, THERE = (50, 1), (51, 1), (60, 1)
NEED = (("CPU", UNIT),)


def node() -> Rig:
    """One of three nodes that is not the head; its driver has job 1."""
    rig = Rig({"CPU": 4})
    rig.state.cluster = ClusterView(NodeView(1, "here", {}, {"CPU": 4 * UNIT}))
    rig.state.cluster.own.available = rig.state.resources.available
    rig.state.cluster.nodes[2] = NodeView(2, "there", {}, {"CPU": 2 * UNIT})
    rig.state.standing.is_head = False
    rig.join()
    return rig


def place(rig: Rig, number: int = 1) -> tuple[int, int]:
    """A worker that the old head has leased for an actor."""
    rig.feed(ev.PlaceWanted(OLD, number, 1, NEED, NEED, "", 1))
    return next(lease.worker.process for lease in rig.state.leases.held_by(OLD) if lease.group[1] == number)


def row(number: int, stage: str = "ALIVE", job: int = 1, **fields: object) -> ev.RestoredActor:
    spec = ActorSpec(actor_id(number), "Counter", 7, {"CPU": 1.0}, {"CPU": 1.0}, **fields)  # type: ignore[arg-type]
    return ev.RestoredActor(spec, b"creation", DRIVER, job, stage)


def take_over(
    rig: Rig,
    *actors: ev.RestoredActor,
    found: dict[bytes, ev.FoundActor] | None = None,
    groups: list[ev.RestoredGroup] | None = None,
    bundles: dict[bytes, dict[int, int]] | None = None,
) -> list[do.Instruction]:
    return rig.feed(ev.TookOver(2, OLD, list(actors), {}, found or {}, groups or [], bundles or {}))


def test_a_new_head_holds_the_actors_of_the_old_one_and_what_never_was_one_ends() -> None:
    rig = node()
    actor, meant = place(rig, 1), place(rig, 2)
    done = rig.feed(ev.HeadChanged(OLD, NEW, frozenset([actor])))
    assert killed(done) == {meant}
    assert killed(rig.die(OLD)) == set(), "the old head's death takes no actor with it"
    assert rig.state.leases.held_by(NEW)


def test_who_takes_over_finds_the_actors_where_they_are() -> None:
    rig = node()
    here = place(rig)
    found = {
        actor_id(1): ev.FoundActor(here, 7, 0, True),
        actor_id(2): ev.FoundActor(THERE, 8, 1, True),
    }
    done = take_over(rig, row(1, name="a"), row(2, max_restarts=1), found=found)
    assert killed(done) == set()
    actors = rig.state.actors
    assert [actors.by_id[actor_id(n)].worker for n in (1, 2)] == [here, THERE]
    assert actors.by_id[actor_id(2)].incarnation == 1
    assert actors.names["", "a"] == actor_id(1)
    rig.die(here)
    assert actors.by_id[actor_id(1)].stage is Stage.DEAD


def test_an_actor_that_nobody_has_was_lost_with_the_head() -> None:
    rig = node()
    take_over(rig, row(1, max_restarts=1), row(2), row(3, stage="PENDING_CREATION"))
    stages = [rig.state.actors.by_id[actor_id(n)].stage for n in (1, 2, 3)]
    assert stages == [Stage.STARTING, Stage.DEAD, Stage.STARTING]
    assert rig.state.actors.by_id[actor_id(1)].incarnation == 1


def test_a_worker_whose_actor_is_told_of_later_is_kept_for_it_and_others_end() -> None:
    rig = node()
    told, unknown = place(rig, 1), place(rig, 2)
    found = {
        actor_id(1): ev.FoundActor(told, 7, 0, True),
        actor_id(2): ev.FoundActor(unknown, 7, 0, True),
    }
    take_over(rig, found=found)
    rig.create(1)
    assert rig.state.actors.by_id[actor_id(1)].worker == told
    assert killed(rig.feed(ev.HeadReady())) == {unknown}


def test_an_actor_whose_job_is_over_does_not_come_back() -> None:
    rig = node()
    done = take_over(rig, row(1, job=9, max_restarts=5), found={actor_id(1): ev.FoundActor(THERE, 7, 0, True)})
    assert killed(done) == {THERE}
    assert rig.state.actors.by_id[actor_id(1)].stage is Stage.DEAD


def test_a_creation_that_is_told_again_makes_no_second_actor() -> None:
    rig = node()
    take_over(rig, row(1), found={actor_id(1): ev.FoundActor(THERE, 7, 0, True)})
    assert rig.create(1) == []
    assert rig.state.actors.by_id[actor_id(1)].worker == THERE


def group(number: int, bundles: int = 2) -> CreateGroup:
    return CreateGroup(bytes([number]) * 16, [{"CPU": 1.0}] * bundles)


def test_groups_are_as_the_nodes_have_them() -> None:
    rig = node()
    whole, lost, begun, over = (group(number) for number in (1, 2, 3, 4))
    for spec in (whole, lost, begun):
        rig.feed(ev.BundlesAsked(spec.group, {0: NEED}, 1, False))
    done = take_over(
        rig,
        groups=[
            ev.RestoredGroup(whole, "PENDING", DRIVER, 1, b""),
            ev.RestoredGroup(lost, "CREATED", DRIVER, 1, b""),
            ev.RestoredGroup(begun, "PENDING", DRIVER, 1, b""),
            ev.RestoredGroup(over, "CREATED", DRIVER, 9, b""),
        ],
        bundles={whole.group: {0: 1, 1: 2}, lost.group: {0: 1}, begun.group: {0: 1}, b"unknown" * 2: {0: 2}},
    )
    states = {number: rig.state.groups.by_id[bytes([number]) * 16].state for number in (1, 2, 3, 4)}
    assert states[1] is GroupState.CREATED, "all its bundles are set aside, whatever the row says"
    assert states[2] is GroupState.CREATED and states[3] is not GroupState.REMOVED, "there is room to place them again"
    assert states[4] is GroupState.REMOVED, "its job is over"
    assert do.ReleaseBundles(2, b"unknown" * 2, [0]) in done


def test_a_group_that_was_removed_stays_removed_though_a_new_head_has_not_heard_of_it() -> None:
    rig = node()
    spec = group(1, bundles=1)
    rig.feed(ev.GroupLearnt(spec, "CREATED", [2]))
    rig.feed(ev.GroupLearnt(spec, "REMOVED", [None]))
    rig.feed(ev.GroupLearnt(spec, "CREATED", [2]))
    assert rig.state.groups.by_id[spec.group].state is GroupState.REMOVED
