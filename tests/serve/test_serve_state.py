"""The controller's decisions, without processes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.serve.config import AutoscalingConfig, DeploymentConfig
from weft.serve.router import Peer, choose
from weft.serve.state import (
    CALLER_SILENT_S,
    DeploymentState,
    DeploymentStatus,
    DrainReplica,
    ReconfigureReplica,
    ReplicaState,
    StartReplica,
)


def started(count: int, version: str = "1") -> DeploymentState:
    state = DeploymentState("app:one")
    for instruction in state.deployed(0.0, version, DeploymentConfig(num_replicas=count)):
        assert isinstance(instruction, StartReplica)
        state.replica_started(0.0, instruction.replica)
    assert state.status is DeploymentStatus.HEALTHY
    return state


def test_a_new_version_replaces_replicas_one_by_one_and_never_runs_fewer() -> None:
    state = started(3)
    todo = state.deployed(1.0, "2", DeploymentConfig(num_replicas=3))
    fewest, most = 3, 3
    while todo:
        instruction = todo.pop(0)
        if isinstance(instruction, StartReplica):
            todo += state.replica_started(1.0, instruction.replica)
        elif isinstance(instruction, DrainReplica):
            todo += state.replica_ended(1.0, instruction.replica, "drained")
        fewest = min(fewest, len(state.routed))
        most = max(most, len(state.replicas))
    assert fewest == 3 and most <= 5
    assert {record.version for record in state.replicas.values()} == {"2"}
    assert state.status is DeploymentStatus.HEALTHY


def test_where_there_is_no_room_for_one_more_the_outdated_make_room_one_by_one() -> None:
    state = started(2)
    todo = state.deployed(1.0, "2", DeploymentConfig(num_replicas=2))
    assert [type(one) for one in todo] == [StartReplica]
    drained, *_ = state.room_lacked(2.0)
    assert isinstance(drained, DrainReplica) and len(state.routed) == 1
    assert state.room_lacked(3.0) == [], "the first has not gone yet"
    state.replica_ended(3.0, drained.replica, "drained")
    state.replica_started(3.0, todo[0].replica)
    assert state.room_lacked(4.0)[0].replica not in (drained.replica, todo[0].replica)
    assert started(2).room_lacked(1.0) == [], "nobody is outdated"


def test_a_new_user_config_restarts_nothing() -> None:
    state = started(2)
    todo = state.deployed(1.0, "1", DeploymentConfig(num_replicas=2, user_config={"a": 1}))
    assert [type(one) for one in todo] == [ReconfigureReplica, ReconfigureReplica]
    assert state.ticked(2.0) == []


def test_what_waits_at_a_caller_that_is_not_heard_of_any_more_is_forgotten() -> None:
    scaling = AutoscalingConfig(min_replicas=0, max_replicas=4, target_ongoing_requests=1, downscale_delay_s=0)
    state = DeploymentState("app:one")
    state.deployed(0.0, "1", DeploymentConfig(autoscaling=scaling))
    state.waiting_reported(0.0, "killed", 3)
    state.waiting_reported(0.0, "alive", 1)
    now_s = 0.0
    while now_s < 2 * CALLER_SILENT_S:
        now_s += CALLER_SILENT_S / 3
        state.caller_heard(now_s, "alive")
        state.caller_heard(now_s, "a stranger, with whom nothing waits")
        state.ticked(now_s)
    assert state.waiting == 1 and state.target == 1
    state.recovered(1e6, frozenset(state.replicas))
    state.ticked(1e6 + 1)
    assert state.waiting == 1, "a restarted controller has another clock, and hears of it soon"
    state.ticked(1e6 + 1 + CALLER_SILENT_S)
    assert state.waiting == 0 and state.target == 0


def test_a_user_config_with_arrays_is_compared_by_what_is_in_it() -> None:
    def config(value: float) -> DeploymentConfig:
        return DeploymentConfig(user_config={"weights": np.full(3, value)})

    state = DeploymentState("app:one")
    for instruction in state.deployed(0.0, "1", config(1.0)):
        state.replica_started(0.0, instruction.replica)
    assert state.deployed(1.0, "1", config(1.0)) == [], "it has these weights"
    assert [type(one) for one in state.deployed(2.0, "1", config(2.0))] == [ReconfigureReplica]


def test_a_deployment_is_healthy_only_when_every_replica_uses_the_newest_user_config() -> None:
    state = started(2)
    first, second = state.deployed(1.0, "1", DeploymentConfig(num_replicas=2, user_config="a"))
    assert isinstance(first, ReconfigureReplica) and isinstance(second, ReconfigureReplica)
    assert state.status is DeploymentStatus.UPDATING
    assert state.replica_reconfigured(1.0, first.replica, first.config_number) == []
    assert state.status is DeploymentStatus.UPDATING
    assert [one.replica for one in state.deployed(2.0, "1", DeploymentConfig(num_replicas=2, user_config="b"))] == [
        first.replica
    ], "the other is asked once it has answered"
    (again,) = state.replica_reconfigured(2.0, second.replica, second.config_number)
    state.replica_reconfigured(2.0, first.replica, again.config_number)
    assert state.status is DeploymentStatus.UPDATING
    state.replica_reconfigured(2.0, second.replica, again.config_number)
    assert state.status is DeploymentStatus.HEALTHY


def test_a_replica_that_was_starting_is_given_the_newer_user_config_before_all_is_healthy() -> None:
    state = started(2)
    (start,) = state.replica_ended(1.0, state.routed[0], "killed")
    (running,) = state.deployed(1.0, "1", DeploymentConfig(num_replicas=2, user_config="a"))
    state.replica_reconfigured(1.0, running.replica, running.config_number)
    (late,) = state.replica_started(1.0, start.replica)
    assert isinstance(late, ReconfigureReplica) and late.replica == start.replica
    assert state.status is DeploymentStatus.UPDATING
    state.replica_reconfigured(1.0, late.replica, late.config_number)
    assert state.status is DeploymentStatus.HEALTHY


def test_a_restarted_controller_asks_again_whether_replicas_use_the_config() -> None:
    state = started(1)
    (asked,) = state.deployed(1.0, "1", DeploymentConfig(user_config="a"))
    assert state.recovered(2.0, frozenset(state.replicas)) == [asked]


def test_a_dead_replica_is_replaced_and_leaves_the_table() -> None:
    state = started(2)
    name = state.routed[0]
    revision = state.revision
    todo = state.replica_ended(1.0, name, "killed")
    assert [type(one) for one in todo] == [StartReplica]
    assert name not in state.routed and state.revision > revision


def test_a_failing_constructor_is_tried_ever_less_often() -> None:
    state = DeploymentState("app:one")
    now, waits = 0.0, []
    todo = state.deployed(now, "1", DeploymentConfig())
    for _ in range(4):
        (instruction,) = todo
        began, todo = now, state.replica_start_failed(now, instruction.replica, "no such file")
        while not todo:
            now += 0.05
            todo = state.ticked(now)
        waits.append(now - began)
    assert waits == sorted(waits) and waits[-1] > 4 * waits[0]
    assert state.status is DeploymentStatus.UNHEALTHY and state.message == "no such file"


def test_a_deleted_deployment_drains_everything_and_is_gone() -> None:
    state = started(2)
    drained = state.deleted(1.0)
    assert len(drained) == 2 and not state.routed and not state.is_gone
    for one in drained:
        state.replica_ended(1.0, one.replica, "drained")
    assert state.is_gone


def test_autoscaling_goes_up_after_its_delay_down_to_zero_and_back_at_once() -> None:
    scaling = AutoscalingConfig(
        min_replicas=0, max_replicas=3, target_ongoing_requests=1, upscale_delay_s=1, downscale_delay_s=5
    )
    state = DeploymentState("app:one")
    assert state.deployed(0.0, "1", DeploymentConfig(autoscaling=scaling)) == []
    (first,) = state.waiting_reported(10.0, "caller", 1)
    state.replica_started(10.0, first.replica)
    assert state.waiting_reported(11.0, "caller", 3) == []
    assert len(state.ticked(12.0)) == 2
    state.waiting_reported(13.0, "caller", 0)
    assert not any(isinstance(one, DrainReplica) for one in state.ticked(17.0))
    assert len(state.ticked(18.5)) == 3
    assert state.target == 0


EVENTS = st.sampled_from("deploy start fail end delete tick restart lack".split())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 5)), max_size=60))
def test_no_order_of_events_breaks_the_invariants(events: list[tuple[str, int]]) -> None:
    state = DeploymentState("app:one")
    drained: list[str] = []
    now = 0.0
    for word, number in events:
        now += number
        names = list(state.replicas)
        chosen = names[number % len(names)] if names else "none"
        todo = {
            "deploy": lambda: state.deployed(now, str(number % 2), DeploymentConfig(num_replicas=number)),  # noqa: B023
            "start": lambda: state.replica_started(now, chosen),  # noqa: B023
            "fail": lambda: state.replica_start_failed(now, chosen, "why"),  # noqa: B023
            "end": lambda: state.replica_ended(now, chosen, "why"),  # noqa: B023
            "delete": lambda: state.deleted(now),  # noqa: B023
            "tick": lambda: state.ticked(now),  # noqa: B023
            "lack": lambda: state.room_lacked(now),  # noqa: B023
            "restart": lambda: state.recovered(now, frozenset(names) - set(state.starting)),  # noqa: B023
        }[word]()
        if word == "restart":
            drained = []
            assert not state.starting or any(isinstance(one, StartReplica) for one in todo)
        drained += [one.replica for one in todo if isinstance(one, DrainReplica)]
        assert len(drained) == len(set(drained))
        assert not [name for name in state.routed if name in drained]
        assert not [one for one in todo if isinstance(one, DrainReplica) and one.replica in state.routed]
        live = [one for one in state.replicas.values() if one.state is not ReplicaState.DRAINING]
        assert len([one for one in live if one.version == state.version]) <= state.target


def test_of_two_random_replicas_the_less_loaded_one_is_chosen() -> None:
    peers = [Peer("a", None, mine=3), Peer("b", None, mine=1), Peer("c", None, mine=9)]
    pick = random.Random(1)
    chosen = {choose(peers[:2], 10, "", pick).name for _ in range(20)}  # type: ignore[union-attr]
    assert chosen == {"b"}
    assert choose(peers, 1, "", pick) is None


def test_what_a_replica_said_long_ago_does_not_speak_against_it_for_ever() -> None:
    busy, idle = Peer("a", None, said=5), Peer("b", None)
    chosen = [choose([busy, idle], 10, "", random.Random(1)).name for _ in range(20)]  # type: ignore[union-attr]
    assert chosen[:5] == ["b"] * 5 and "a" in chosen


def test_a_replica_of_this_node_is_preferred_until_it_has_more_to_do() -> None:
    here, away = Peer("a", None, is_local=True, mine=2), Peer("b", None)
    pick = random.Random(1)
    assert {choose([away, here], 10, "", pick).name for _ in range(20)} == {"a"}  # type: ignore[union-attr]
    here.mine = 3
    assert choose([away, here], 10, "", pick) is away
    assert choose([away, here], 10, "", pick, canary_share=0.0) is away
    away.mine = 10
    assert choose([away, here], 10, "", pick) is here


def test_a_replica_that_has_the_model_is_preferred() -> None:
    peers = [Peer("a", None), Peer("b", None, mine=3, models={"m"})]
    assert choose(peers, 10, "m", random.Random(1)) is peers[1]
    assert choose(peers, 3, "m", random.Random(1)) is peers[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_replicas": -1}, "num_replicas must be at least 0, but got -1"),
        ({"max_ongoing_requests": 0}, "max_ongoing_requests must be at least 1, but got 0"),
        ({"autoscaling": {"min_replicas": 3, "max_replicas": 2}}, "max_replicas must be at least 3, but got 2"),
    ],
)
def test_wrong_settings_are_refused_where_they_are_written(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeploymentConfig().changed(**options)


def test_no_module_hides_a_public_name() -> None:
    import pkgutil

    from weft import serve

    assert not {one.name for one in pkgutil.iter_modules(serve.__path__)} & set(serve.__all__)
