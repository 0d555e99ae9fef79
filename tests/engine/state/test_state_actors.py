"""The life of actors and who hears of it."""

from __future__ import annotations

from typing import Any

import pytest
from node_rig import DRIVER, Rig, actor_id, killed, sent, two_cpus

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.actors import Stage
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.wire.kinds import ErrorCode
from weft.engine.wire.messages import ExitProcess

OTHER = (50, 1)


def ups(instructions: list[do.Instruction]) -> list[tuple[tuple[int, int], bytes, tuple[int, int], int]]:
    """(who is told, of which actor, where it is, incarnation)."""
    return [(one.process, one.actor, one.worker, one.incarnation) for one in sent(instructions, do.TellActorUp)]


def downs(instructions: list[do.Instruction]) -> list[tuple[tuple[int, int], bool, Any]]:
    """(who is told, whether it is dead, fault or error payload)."""
    return [(one.process, one.is_dead, one.cause) for one in sent(instructions, do.TellActorDown)]


def worker_of(rig: Rig, number: int) -> tuple[int, int]:
    worker = rig.state.actors.by_id[actor_id(number)].worker
    assert worker is not None
    return worker


def alive(rig: Rig, number: int = 1, **fields: Any) -> tuple[int, int]:
    rig.create(number, **fields)
    worker = worker_of(rig, number)
    rig.feed(ev.ActorCreated(worker, actor_id(number), True, b""))
    return worker


def test_the_creation_is_sent_before_watchers_hear_where_the_actor_is() -> None:
    rig = two_cpus()
    done = rig.create(1)
    worker = worker_of(rig, 1)
    order = [type(one) for one in done if isinstance(one, do.Tell | do.SendFunction)]
    assert order == [do.BindWorker, do.SendFunction, do.CreateActor, do.TellActorUp]
    assert do.SendFunction(worker, 7) in done
    assert do.CreateActor(worker, b"creation") in done
    assert ups(done) == [(DRIVER, actor_id(1), worker, 0)]


def test_placing_needs_a_cpu_but_living_holds_none() -> None:
    rig = two_cpus()
    for number in range(20):
        rig.create(number)
    assert rig.free() == {"CPU": 2}
    assert all(actor.stage is Stage.STARTING for actor in rig.state.actors.by_id.values())


def test_an_actor_waits_for_its_resources_and_asks_leases_back() -> None:
    rig = two_cpus()
    leases = rig.want(2)
    done = rig.create(1)
    assert not ups(done)
    assert len(sent(done, do.RevokeLease)) == 1
    assert ups(rig.give_back(leases[0][0]))


def test_watchers_hear_now_and_later_and_may_come_before_the_actor() -> None:
    rig = two_cpus()
    rig.feed(ev.ActorWatched(OTHER, actor_id(1)))
    assert {who for who, *_ in ups(rig.create(1))} == {OTHER, DRIVER}
    late = (51, 1)
    assert [who for who, *_ in ups(rig.feed(ev.ActorWatched(late, actor_id(1))))] == [late]
    assert {who for who, *_ in downs(rig.die(worker_of(rig, 1)))} == {OTHER, DRIVER, late}
    assert [who for who, *_ in downs(rig.feed(ev.ActorWatched(OTHER, actor_id(1))))] == [OTHER]


def test_a_failed_constructor_is_passed_on_verbatim_and_its_worker_ends() -> None:
    rig = two_cpus()
    rig.create(1, max_restarts=5, resources={"CPU": 1.0})
    worker = worker_of(rig, 1)
    done = rig.feed(ev.ActorCreated(worker, actor_id(1), False, b"Ppickled"))
    assert downs(done) == [(DRIVER, 1, b"Ppickled")]
    assert any(isinstance(one, do.SendMessage) and isinstance(one.message, ExitProcess) for one in done)
    assert not downs(rig.die(worker, status=0))
    assert rig.free() == {"CPU": 2}


def test_an_actor_restarts_as_often_as_it_may_and_then_says_how_it_ended() -> None:
    rig = two_cpus()
    worker = alive(rig, max_restarts=2)
    done = rig.die(worker)
    ((_, state, fault),) = downs(done)
    assert state == 0 and "is restarting (1 of 2): its process was killed by SIGKILL" in fault.text
    assert fault.code == ErrorCode.ACTOR_UNAVAILABLE
    assert not ups(done), "told before its constructor is done"
    second = worker_of(rig, 1)
    done = rig.feed(ev.ActorCreated(second, actor_id(1), True, b""))
    assert second != worker and ups(done)[0][2:] == (second, 1)
    rig.die(second, status=3)
    last = worker_of(rig, 1)
    ((_, state, fault),) = downs(rig.die(last, status=3))
    assert (state, fault.code) == (1, ErrorCode.ACTOR_DIED)
    label = f"actor Counter (00000000, pid {last[0]})"
    assert fault.text == f"{label} died: its process exited with status 3; 2 of 2 restarts were used"


def test_restarts_without_end() -> None:
    rig = two_cpus()
    alive(rig, max_restarts=-1)
    for _ in range(20):
        rig.die(worker_of(rig, 1))
    assert rig.state.actors.by_id[actor_id(1)].incarnation == 20


def test_an_actor_that_exits_with_status_zero_has_died_like_any_other() -> None:
    rig = two_cpus()
    worker = alive(rig, max_restarts=-1)
    ((_, state, fault),) = downs(rig.die(worker, status=0))
    assert state == 0 and "restarting" in fault.text


def test_exit_actor_is_final_and_not_hurried_by_a_kill() -> None:
    rig = two_cpus()
    worker = alive(rig, max_restarts=-1)
    assert not killed(rig.feed(ev.ActorKillRequested(worker, actor_id(1), True)))
    ((_, state, fault),) = downs(rig.die(worker, status=0))
    assert state == 1 and "exit_actor" in fault.text


def test_the_last_handle_lets_the_queue_finish() -> None:
    rig = two_cpus()
    worker = alive(rig, max_restarts=-1)
    done = rig.feed(ev.ActorDropped(DRIVER, actor_id(1)))
    (message,) = [one for one in done if isinstance(one, do.SendMessage)]
    assert message.process == worker and isinstance(message.message, ExitProcess) and message.message.drain
    ((_, state, fault),) = downs(rig.die(worker, status=0))
    assert state == 1 and "all handles to it are gone" in fault.text


def test_a_pending_actor_can_be_dropped_or_killed() -> None:
    rig = two_cpus()
    leases = rig.want(2)
    for number, event in enumerate((ev.ActorDropped, ev.ActorKillRequested)):
        rig.create(number)
        done = rig.feed(event(DRIVER, actor_id(number), *([True] if event is ev.ActorKillRequested else [])))
        assert downs(done)[0][1] == 1
    assert not ups(rig.give_back(leases[0][0]))
    assert not rig.state.demands.is_waiting


def test_an_actor_killed_before_its_creation_arrives_never_starts() -> None:
    rig = two_cpus()
    rig.feed(ev.ActorKillRequested(DRIVER, actor_id(1), True))
    assert downs(rig.create(1))[0][1] == 1


def test_kill_ends_it_for_good_or_makes_it_restart() -> None:
    rig = two_cpus()
    worker = alive(rig, max_restarts=1)
    assert killed(rig.feed(ev.ActorKillRequested(DRIVER, actor_id(1), False))) == {worker}
    assert downs(rig.die(worker))[0][1] == 0
    second = worker_of(rig, 1)
    assert killed(rig.feed(ev.ActorKillRequested(DRIVER, actor_id(1), True))) == {second}
    ((_, state, fault),) = downs(rig.die(second))
    assert state == 1 and "was killed by weft.kill()" in fault.text


def test_names_are_per_namespace_and_free_again_after_death() -> None:
    rig = two_cpus()
    worker = alive(rig, 1, name="a", namespace="x", handle=b"h1")
    alive(rig, 2, name="a", namespace="y", handle=b"h2")
    actors = rig.state.actors
    assert (actors.handle_of("x", "a"), actors.handle_of("y", "a"), actors.handle_of("z", "a")) == (b"h1", b"h2", None)
    ((_, state, fault),) = downs(rig.create(3, name="a", namespace="x"))
    assert state == 1 and "the name 'a' is already taken in namespace 'x'" in fault.text
    rig.die(worker)
    assert actors.handle_of("x", "a") is None
    assert ups(rig.create(4, name="a", namespace="x"))


def test_get_if_exists_leads_a_second_creator_to_the_first_actor() -> None:
    rig = two_cpus()
    worker = alive(rig, 1, name="a", namespace="x")
    done = rig.create(2, name="a", namespace="x", get_if_exists=True)
    assert ups(done) == [(DRIVER, actor_id(2), worker, 0)]
    assert rig.feed(ev.ActorDropped(DRIVER, actor_id(2))) == [do.RecordActor(actor_id(2), "", {})]
    assert worker_of(rig, 1) == worker


def test_a_claimed_name_is_found_at_once_and_given_up_with_its_creator() -> None:
    rig = two_cpus()
    ((_, creator),) = rig.want(1)
    rig.feed(ev.ActorNameClaimed(creator, actor_id(1), "a", "x", b"handle"))
    assert rig.state.actors.handle_of("x", "a") == b"handle"
    rig.feed(ev.ActorWatched(OTHER, actor_id(1)))
    ((who, state, fault),) = downs(rig.die(creator))
    assert (who, state) == (OTHER, 1) and "its creator died" in fault.text
    assert rig.state.actors.handle_of("x", "a") is None


def test_watchers_of_an_actor_that_will_never_be_created_are_told() -> None:
    rig = two_cpus()
    ((_, creator),) = rig.want(1)
    rig.feed(ev.ActorWatched(OTHER, actor_id(1), owner=creator))
    rig.feed(ev.ActorWatched(OTHER, actor_id(2)))
    assert downs(rig.feed(ev.ActorCreated(creator, actor_id(2), False, b"Perror"))) == [(OTHER, 1, b"Perror")]
    assert [(who, state) for who, state, _ in downs(rig.die(creator))] == [(OTHER, 1)]
    assert downs(rig.feed(ev.ActorWatched(OTHER, actor_id(3), owner=creator)))[0][1] == 1


def test_an_actor_dies_with_its_owner_unless_it_is_detached() -> None:
    rig = two_cpus()
    ((_, owner),) = rig.want(1)
    mortal = alive(rig, 1, process=owner)
    detached = alive(rig, 2, process=owner, detached=True, name="d", namespace="x")
    assert killed(rig.die(owner)) == {mortal}
    assert worker_of(rig, 2) == detached


def test_a_job_ends_with_its_last_actor_also_where_that_is_on_another_node() -> None:
    rig, elsewhere = Rig({"CPU": 0}), (77, 1)
    rig.state.cluster = ClusterView(NodeView(0, "here", {}, {}))
    rig.join()
    rig.create(1, detached=True, name="d", namespace="x")
    rig.feed(ev.ActorPlacedElsewhere(actor_id(1), elsewhere, 7))
    assert not [one for one in rig.die(DRIVER) if isinstance(one, do.EndJob)]
    rig.feed(ev.ActorKillRequested(OTHER, actor_id(1), True))
    assert do.EndJob(1) in rig.die(elsewhere)


def test_a_detached_actor_keeps_its_job_until_it_is_dead() -> None:
    rig = two_cpus()
    worker = alive(rig, 1, detached=True, name="d", namespace="x", max_restarts=1)
    assert not [one for one in rig.die(DRIVER) if isinstance(one, do.EndJob)]
    done = rig.die(worker)
    assert not [one for one in done if isinstance(one, do.EndJob)]
    second = worker_of(rig, 1)
    rig.feed(ev.ActorKillRequested(OTHER, actor_id(1), True))
    assert do.EndJob(1) in rig.die(second)


def test_an_actor_that_fits_nowhere_is_dead_with_the_reason() -> None:
    rig = two_cpus()
    ((_, state, fault),) = downs(rig.create(1, resources={"GPU": 1.0}))
    assert state == 1 and fault.code == ErrorCode.ACTOR_UNSCHEDULABLE
    assert "actor Counter (00000000) can never be placed: 1 GPU is asked for, but the node has 0" in fault.text


def test_a_blocked_actor_lends_its_cpu() -> None:
    rig = Rig({"CPU": 1})
    rig.feed(ev.NodeStarted())
    rig.join()
    worker = alive(rig, resources={"CPU": 1.0})
    rig.define(1, process=worker, CPU=1)
    assert not rig.want(1, process=worker)
    assert sent(rig.feed(ev.WorkerBlocked(worker)), do.GrantLease)
    rig.feed(ev.WorkerUnblocked(worker))
    assert rig.free() == {"CPU": -1}


@pytest.mark.parametrize("stage", ["starting", "alive"])
def test_actor_rows_follow_its_life(stage: str) -> None:
    rig = two_cpus()
    done = rig.create(1)
    if stage == "alive":
        done = rig.feed(ev.ActorCreated(worker_of(rig, 1), actor_id(1), True, b""))
    rows = [one for one in done if isinstance(one, do.RecordActor)]
    assert rows[-1].state == stage.upper()
    assert rows[-1].row["class_name"] == "Counter"


@pytest.mark.parametrize("ok", [True, False])
def test_a_constructor_elsewhere_may_be_done_before_the_actor_is_known_to_be_there(ok: bool) -> None:
    rig = Rig({"CPU": 0})
    rig.state.cluster = ClusterView(NodeView(0, "here", {}, {}))
    rig.join()
    rig.create(1, placement_resources={"CPU": 1.0})
    elsewhere = (77, 1)
    rig.feed(ev.ActorCreated(elsewhere, actor_id(1), ok, b"error"))
    assert rig.state.actors.by_id[actor_id(1)].stage is Stage.PENDING
    rig.feed(ev.ActorPlacedElsewhere(actor_id(1), elsewhere, 7))
    assert rig.state.actors.by_id[actor_id(1)].stage is (Stage.ALIVE if ok else Stage.DEAD)
