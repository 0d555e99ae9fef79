"""How many replicas there should be, whether a canary is good, and which replica has a session; without processes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from weft.serve.batching import batch
from weft.serve.canaries import CanaryRule, Trial
from weft.serve.config import DeploymentConfig
from weft.serve.context import RequestContext, calls_of_request, get_time_left_s, request_context
from weft.serve.latencies import Figures
from weft.serve.multiplexing import multiplexed
from weft.serve.peers import Peer, choose
from weft.serve.scaling import AutoscalingConfig, ScalingView, ScheduledReplicas
from weft.serve.state import DeploymentState, StartReplica

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("replicas", "latency_s", "wanted"), [(4, 0.15, 6), (4, 0.9, 8), (4, 0.08, 4), (4, 0.02, 2), (4, None, 4)]
)
def test_a_latency_is_brought_to_its_target_in_bounded_steps(
    replicas: int, latency_s: float | None, wanted: int
) -> None:
    scaling = AutoscalingConfig(max_replicas=20, target_latency_s=0.1)
    assert scaling.wanted(ScalingView(replicas, ongoing=3, latency_s=latency_s)) == wanted


def test_a_time_in_line_above_its_target_makes_more_and_an_idle_deployment_ends() -> None:
    scaling = AutoscalingConfig(min_replicas=0, max_replicas=20, target_queue_s=0.5)
    assert scaling.wanted(ScalingView(2, ongoing=2, waiting=10, answers_per_s=10.0)) == 4
    assert scaling.wanted(ScalingView(2, ongoing=2, waiting=10)) == 4, "nothing is answered: they wait without end"
    assert scaling.wanted(ScalingView(4, ongoing=4)) == 4
    assert scaling.wanted(ScalingView(4, ongoing=1)) == 2
    assert scaling.wanted(ScalingView(0, waiting=1)) == 1
    assert scaling.wanted(ScalingView(4)) == 0


def test_a_function_of_ones_own_decides_within_the_bounds() -> None:
    scaling = AutoscalingConfig(max_replicas=5, policy=lambda view: view.waiting / 2)
    assert [scaling.wanted(ScalingView(1, waiting=count)) for count in (0, 5, 100)] == [1, 3, 5]
    with pytest.raises(TypeError, match="stands in place of targets"):
        AutoscalingConfig(policy=lambda view: 1, target_latency_s=0.1)


def test_a_function_that_fails_leaves_what_runs_and_is_told() -> None:
    scaling = AutoscalingConfig(max_replicas=5, initial_replicas=2, policy=lambda view: 1 / 0)
    state = DeploymentState("app:one")
    state.deployed(0.0, "1", DeploymentConfig(autoscaling=scaling))
    state.ticked(1.0)
    assert state.target == 2
    assert "division by zero" in state.message


def test_a_schedule_holds_replicas_from_hour_to_hour_on_its_days() -> None:
    office = ScheduledReplicas("08:00", "20:00", 4, days="mon-fri", timezone="Europe/Berlin")
    night = ScheduledReplicas("22:00", "02:00", 2, days="thu")
    scaling = AutoscalingConfig(min_replicas=0, max_replicas=9, schedule=(office, night))
    thursday, saturday = 0.0, 2 * 24 * HOUR_S  # the first of January 1970 was a Thursday
    at = {hour: scaling.wanted(ScalingView(0, time_s=thursday + hour * HOUR_S)) for hour in (0, 6, 7, 18, 19, 23, 25)}
    assert at == {0: 0, 6: 0, 7: 4, 18: 4, 19: 0, 23: 2, 25: 2}
    assert scaling.wanted(ScalingView(0, time_s=saturday + 12 * HOUR_S)) == 0


@pytest.mark.parametrize("wrong", [{"start": "8"}, {"days": "someday"}, {"timezone": "Nowhere/At_all"}])
def test_a_schedule_that_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        ScheduledReplicas(**{"start": "08:00", "end": "09:00", "min_replicas": 1, **wrong})  # type: ignore[arg-type]


def test_a_deployment_scales_by_what_its_replicas_report() -> None:
    scaling = AutoscalingConfig(max_replicas=8, target_latency_s=0.1, upscale_delay_s=0)
    state = DeploymentState("app:one")
    (first,) = state.deployed(0.0, "1", DeploymentConfig(autoscaling=scaling))
    assert isinstance(first, StartReplica)
    state.replica_started(0.0, first.replica)
    state.load_reported(0.0, first.replica, 4, served=0)
    state.load_reported(2.0, first.replica, 4, served=20, latency_s=0.4)
    assert state.target == 2


def test_scaling_by_a_function_is_not_begun_anew_by_the_same_deployment() -> None:
    state = DeploymentState("app:one")
    for _ in range(2):
        scaling = AutoscalingConfig(max_replicas=8, policy=lambda view: 5, upscale_delay_s=0)
        state.deployed(0.0, "1", DeploymentConfig(autoscaling=scaling))
        assert state.ticked(1.0) is not None
        assert state.target == 5


def figures(served: int, failed: int = 0, p95_s: float = 0.01) -> dict[str, Figures]:
    return {"one": Figures(served, failed, p95_s, p95_s, p95_s)}


def test_a_canary_as_good_as_what_runs_is_promoted_once_it_has_answered_enough() -> None:
    trial = Trial(CanaryRule(min_requests=50))
    assert trial.looked([(figures(1000, 500), figures(10))]) is None, "too few, and old failures do not count"
    verdict = trial.looked([(figures(1900, 500), figures(60))])
    assert verdict is not None and verdict.is_good and "0 of its 60" in verdict.said


def test_a_canary_that_fails_is_ended_before_all_its_requests_have() -> None:
    trial = Trial(CanaryRule(min_requests=100, more_failures=0.05))
    assert trial.looked([(figures(0), figures(5, 5))]) is None
    verdict = trial.looked([(figures(50), figures(6, 6))])
    assert verdict is not None and not verdict.is_good and "6 of its 6 requests failed" in verdict.said


def test_a_canary_that_is_slower_is_ended() -> None:
    trial = Trial(CanaryRule(min_requests=10))
    verdict = trial.looked([(figures(100, p95_s=0.01), figures(20, p95_s=0.02))])
    assert verdict is not None and not verdict.is_good and "0.02 s" in verdict.said


def test_a_session_has_one_replica_for_all_callers_and_moves_only_with_it() -> None:
    def where(names: str, session: str, full: str = "") -> str | None:
        peers = [Peer(name, None, mine=9 if name in full else 0) for name in names]
        random.Random(session).shuffle(peers)
        found = choose(peers, 9, "", random.Random(), session=session)
        return None if found is None else found.name

    sessions = [f"session {number}" for number in range(200)]
    before = {one: where("abcd", one) for one in sessions}
    assert {where("abcd", "x") for _ in range(20)} == {before.get("x", where("abcd", "x"))}
    assert min(Counter(before.values()).values()) > 20
    after = {one: where("abc", one) for one in sessions}
    assert all(after[one] == before[one] for one in sessions if before[one] != "d")
    assert where("abcd", sessions[0], full=str(before[sessions[0]])) is None, "another would not know it"


def test_a_share_of_the_sessions_has_a_canary_and_keeps_it() -> None:
    peers = [Peer("a", None), Peer("new", None, is_canary=True)]
    chosen = [choose(peers, 9, "", random.Random(), 0.25, f"session {number}") for number in range(400)]
    assert 60 < sum(one is peers[1] for one in chosen) < 140


def test_a_batch_has_neither_the_deadline_nor_the_end_of_its_first_request() -> None:
    seen = []

    @batch(max_batch_size=2, wait_s=0)
    async def one(values: list[int]) -> list[int]:
        seen.append((get_time_left_s(), calls_of_request.get()))
        return values

    @multiplexed
    async def load(model: str) -> str:
        seen.append((get_time_left_s(), calls_of_request.get()))
        return model

    async def first() -> None:
        request_context.set(RequestContext("id", "m", 0.0))
        calls_of_request.set([])
        await one(1)
        await load("m")

    asyncio.run(first())
    assert seen == [(None, None), (None, None)]
