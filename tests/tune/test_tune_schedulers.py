"""Schedulers, in virtual time: who goes on, who stops, who changes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from tune_models import Curve, Walker

from weft import tune
from weft.tune.errors import TuneError
from weft.tune.ledger import replay
from weft.tune.schedulers import (
    CONTINUE,
    PAUSE,
    STOP,
    ASHAScheduler,
    DistributeResources,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TimeSharingScheduler,
    TrialScheduler,
    create_scheduler,
)
from weft.tune.schedulers.asha import rung_times
from weft.tune.schedulers.hyperband import bracket_shapes
from weft.tune.schedulers.pb2 import PB2
from weft.tune.search import GridRandomSearch, TuneBOHB
from weft.tune.simulation import Outcome, Simulation, simulate
from weft.tune.trial import PENDING, TERMINATED

SPACE = {"x": tune.uniform(0, 1)}


def run(scheduler: TrialScheduler, **options: Any) -> Outcome:
    options = {"metric": "loss", "mode": "min", "num_samples": 40, "slots": 3, **options}
    return simulate(Curve, SPACE, scheduler=scheduler, **options)


def lengths(outcome: Outcome) -> list[int]:
    return [trial.seen_iteration for trial in outcome.state.trials]


ALL = {
    "fifo": lambda: FIFOScheduler(),
    "asha": lambda: ASHAScheduler(max_t=27, reduction_factor=3),
    "asha brackets": lambda: ASHAScheduler(max_t=27, reduction_factor=3, brackets=3),
    "asha promotion": lambda: ASHAScheduler(max_t=27, reduction_factor=3, variant="promotion"),
    "hyperband": lambda: HyperBandScheduler(max_t=27),
    "bohb": lambda: HyperBandForBOHB(max_t=27),
    "median": lambda: MedianStoppingRule(grace_period=3),
    "median soft": lambda: MedianStoppingRule(grace_period=3, hard_stop=False),
    "pbt": lambda: PopulationBasedTraining(perturbation_interval=4, hyperparam_mutations=SPACE),
    "pbt synch": lambda: PopulationBasedTraining(perturbation_interval=4, hyperparam_mutations=SPACE, synch=True),
    "pb2": lambda: PB2(perturbation_interval=4, hyperparam_bounds={"x": (0.0, 1.0)}),
    "time sharing": lambda: TimeSharingScheduler(5),
    "resizing": lambda: ResourceChangingScheduler(None, DistributeResources({"CPU": 8}), interval=5),
}


@pytest.mark.parametrize("name", ALL)
def test_every_trial_comes_to_its_end_and_the_same_seed_gives_the_same_run(name: str) -> None:
    outcomes = [run(ALL[name](), max_steps=27, num_samples=20) for _ in range(2)]
    for outcome in outcomes:
        assert outcome.state.is_finished
        assert outcome.state.trials.counts() == {TERMINATED: 20}
    assert outcomes[0].entries == outcomes[1].entries


@pytest.mark.parametrize("name", ALL)
def test_a_run_with_one_slot_or_more_slots_than_trials_ends_too(name: str) -> None:
    for slots in (1, 50):
        assert run(ALL[name](), max_steps=27, num_samples=10, slots=slots).state.is_finished


def test_asha_has_the_papers_rungs() -> None:
    assert rung_times(1, 81, 3) == [1, 3, 9, 27]
    assert rung_times(2, 100, 4, skip=1) == [8, 32]


def test_asha_lets_a_third_go_on_at_each_rung() -> None:
    outcome = run(ASHAScheduler(max_t=27, reduction_factor=3), num_samples=200)
    ended = lengths(outcome)
    assert set(ended) <= {1, 3, 9, 27}
    # at least the papers' shares; a little more, since the first arrivals have few to be compared with
    assert 130 <= ended.count(1) <= 150
    assert 2 <= ended.count(27) <= 16


def test_asha_promotion_never_runs_more_than_its_share() -> None:
    ended = lengths(run(ASHAScheduler(max_t=27, reduction_factor=3, variant="promotion"), num_samples=200))
    reached = [sum(length >= time for length in ended) for time in (1, 3, 9, 27)]
    assert reached[0] == 200
    for below, above in itertools.pairwise(reached):
        # who was of the best third at some time may not be at the end, so there is slack
        assert above <= below // 3 + 8


def test_asha_stops_the_bad_and_keeps_the_best() -> None:
    outcome = run(ASHAScheduler(max_t=81, reduction_factor=3), num_samples=100)
    longest = [trial for trial in outcome.state.trials if trial.seen_iteration == 81]
    far = sorted(abs(trial.config["x"] - 0.3) for trial in longest)
    # the first to arrive have nobody to be compared with, so not all are good
    assert longest and far[len(far) // 2] < 0.1


def test_asha_takes_a_nan_for_the_worst() -> None:
    class Broken(Curve):
        def step(self) -> dict[str, Any]:
            return {"loss": math.nan}

    outcome = simulate(
        Broken, SPACE, metric="loss", mode="min", num_samples=5, scheduler=ASHAScheduler(max_t=9), slots=1
    )
    assert lengths(outcome) == [1] * 5


def test_hyperband_has_the_papers_brackets() -> None:
    # Table 1 of the paper: R = 81, eta = 3
    shapes = [(size, round(first), halvings) for size, first, halvings in bracket_shapes(81, 3)]
    assert shapes == [(81, 1, 4), (34, 3, 3), (15, 9, 2), (8, 27, 1), (5, 81, 0)]


def test_hyperband_halves_a_bracket_exactly() -> None:
    outcome = run(HyperBandScheduler(max_t=27), num_samples=27)
    assert sorted(lengths(outcome)) == [1] * 18 + [3] * 6 + [9] * 2 + [27]
    best = min(outcome.state.trials, key=lambda trial: (trial.config["x"] - 0.3) ** 2)
    assert best.seen_iteration == 27


def test_hyperband_with_a_bracket_that_is_never_filled_still_halves() -> None:
    outcome = run(HyperBandScheduler(max_t=27), num_samples=10)
    assert outcome.state.is_finished
    assert max(lengths(outcome)) == 27


def test_hyperband_goes_on_when_a_limiter_holds_the_search_back() -> None:
    limited = tune.search.ConcurrencyLimiter(GridRandomSearch(), 4)
    assert run(HyperBandScheduler(max_t=9), searcher=limited, num_samples=12).state.is_finished


def test_bohb_learns_from_all_trials_when_few_get_far() -> None:
    scheduler = ASHAScheduler(max_t=27, reduction_factor=3, brackets=3)
    searcher = TuneBOHB(seed=0, learn_from="all")
    outcome = run(scheduler, searcher=searcher, num_samples=120)
    assert outcome.best_value < run(ASHAScheduler(max_t=27, reduction_factor=3), num_samples=20).best_value
    assert len(searcher._all_ranked()) > len(searcher._ranked_at_largest_budget()) >= 5
    with pytest.raises(ValueError, match="learn_from must be 'largest_budget' or 'all', but got 'some'"):
        TuneBOHB(learn_from="some")  # type: ignore[arg-type]


def test_the_bohb_pair_learns_where_the_minimum_is() -> None:
    outcome = run(HyperBandForBOHB(max_t=27), searcher=TuneBOHB(seed=0), num_samples=120)
    configs = [trial.config["x"] for trial in outcome.state.trials]
    first, last = configs[:40], configs[-40:]
    assert sum(abs(x - 0.3) for x in last) < sum(abs(x - 0.3) for x in first)


def test_the_median_rule_stops_a_trial_below_the_median() -> None:
    outcome = run(MedianStoppingRule(grace_period=5), max_steps=20, slots=40)
    stopped = [trial for trial in outcome.state.trials if trial.seen_iteration < 20]
    finished = [trial for trial in outcome.state.trials if trial.seen_iteration == 20]
    assert stopped and finished
    far = [abs(trial.config["x"] - 0.3) for trial in stopped]
    near = [abs(trial.config["x"] - 0.3) for trial in finished]
    assert sum(far) / len(far) > sum(near) / len(near)
    assert min(trial.seen_iteration for trial in stopped) >= 5


def walk(scheduler: TrialScheduler, **options: Any) -> Outcome:
    space = {"speed": tune.grid_search([1.0, 2.0, 3.0, 4.0])}
    options = {"num_samples": 1, "slots": 4, "max_steps": 40, **options}
    return simulate(Walker, space, metric="distance", mode="max", scheduler=scheduler, **options)


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize("slots", [4, 2])
def test_pbt_moves_the_slow_to_where_the_fast_are(synch: bool, slots: int) -> None:
    scheduler = PopulationBasedTraining(
        perturbation_interval=5,
        hyperparam_mutations={"speed": [1.0, 2.0, 3.0, 4.0]},
        resample_probability=0,
        synch=synch,
    )
    outcome = walk(scheduler, slots=slots)
    slowest = outcome.state.trials["00000"]
    assert slowest.config["speed"] >= 3 and slowest.last_result["distance"] > 40 * 1.0
    assert scheduler.perturbations >= 1


class Counted(Walker):
    """Reports what its `iteration` said during the step."""

    def step(self) -> dict[str, Any]:
        return {**super().step(), "before": self.iteration, "also": self.training_iteration}


def test_a_simulated_trainable_knows_its_iteration_also_after_a_pause() -> None:
    space = {"speed": tune.grid_search([1.0, 2.0, 3.0, 4.0])}
    scheduler = HyperBandScheduler(max_t=9)
    outcome = simulate(Counted, space, metric="distance", mode="max", scheduler=scheduler, slots=2, num_samples=4)
    results = [entry[2] for entry in outcome.entries if entry[0] == "reported"]
    assert any(entry[0] == "paused" for entry in outcome.entries)
    assert all(result["before"] == result["also"] == result["training_iteration"] - 1 for result in results)


def test_a_clone_begins_where_its_donor_last_saved() -> None:
    def steps(**options: Any) -> float:
        scheduler = PopulationBasedTraining(
            perturbation_interval=5, hyperparam_mutations={"speed": [1.0, 2.0, 3.0, 4.0]}, resample_probability=0
        )
        return walk(scheduler, slots=4, **options).spent

    assert steps(checkpoint_frequency=1) < steps(), "what a donor has done since it saved is not done again"


def test_the_best_of_a_young_rung_goes_on_by_promotion() -> None:
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3, variant="promotion")
    assert max(lengths(run(scheduler, num_samples=2, slots=1))) > 1, "a rung of two has its best one promoted"


def test_pbt_perturbs_by_the_factors_and_within_the_domain() -> None:
    import random

    from weft.tune.schedulers.pbt import explored

    mutations = {"lr": tune.uniform(0.1, 1), "n": tune.randint(1, 100), "kind": ["a", "b", "c"], "deep": {"z": [1, 2]}}
    config = {"lr": 0.5, "n": 10, "kind": "a", "deep": {"z": 1}, "other": 3}
    seen = [explored(config, mutations, 0.0, (1.2, 0.8), random.Random(seed)) for seed in range(40)]
    assert {round(each["lr"], 6) for each in seen} == {0.6, 0.4}
    assert {each["n"] for each in seen} == {12, 8}
    assert {each["kind"] for each in seen} == {"a", "b"}
    assert all(each["other"] == 3 for each in seen)
    assert explored({**config, "lr": 0.9}, mutations, 0.0, (1.2, 1.2), random.Random(0))["lr"] == 1


def test_a_pbt_schedule_can_be_replayed(tmp_path: Any) -> None:
    scheduler = PopulationBasedTraining(
        perturbation_interval=5,
        hyperparam_mutations={"speed": [1.0, 2.0, 3.0, 4.0]},
        resample_probability=0,
        synch=True,
    )
    outcome = walk(scheduler)
    files = scheduler.take_files()
    assert files
    name = sorted(files)[0]
    policy = tmp_path / name
    policy.write_text(files[name])
    trial_id = name.removeprefix("pbt_policy_").removesuffix(".json")
    replayed = simulate(
        Walker,
        {"speed": 0.0},
        metric="distance",
        mode="max",
        num_samples=1,
        max_steps=40,
        scheduler=PopulationBasedTrainingReplay(policy),
    )
    assert (
        replayed.state.trials["00000"].last_result["distance"]
        == (outcome.state.trials[trial_id].last_result["distance"])
    )


def test_pb2_explores_within_bounds_and_gets_faster() -> None:
    scheduler = PB2(perturbation_interval=4, hyperparam_bounds={"speed": (0.0, 5.0)})
    outcome = walk(scheduler, max_steps=60)
    assert all(0 <= trial.config["speed"] <= 5 for trial in outcome.state.trials)
    assert outcome.state.trials["00000"].last_result["distance"] > 60 * 1.5


def test_time_sharing_lets_all_trials_go_forward_together() -> None:
    outcome = run(TimeSharingScheduler(3), num_samples=4, slots=1, max_steps=12)
    order = [entry[1] for entry in outcome.entries if entry[0] == "started"]
    assert order[:4] == ["00000", "00001", "00002", "00003"]
    assert len(order) > 8


def test_resources_are_shared_by_those_that_are_left() -> None:
    scheduler = ResourceChangingScheduler(FIFOScheduler(), DistributeResources({"CPU": 8}), interval=2)
    outcome = run(scheduler, num_samples=2, slots=2, max_steps=8)
    assert {trial.resources.head["CPU"] for trial in outcome.state.trials} == {4.0}


def test_a_scheduler_written_by_hand_decides() -> None:
    class StopBad(TrialScheduler):
        def on_result(self, trial: Any, result: Any) -> str:
            return STOP if result["loss"] > 0.9 else CONTINUE

        def choose_trial_to_run(self) -> Any:
            return self.trials.first(PENDING)

    outcome = run(StopBad(), num_samples=5, max_steps=5)
    assert lengths(outcome) == [1] * 5


def test_a_scheduler_that_leaves_trials_paused_is_an_error_and_no_hang() -> None:
    class Sleepy(TrialScheduler):
        def on_result(self, trial: Any, result: Any) -> str:
            return PAUSE

        def choose_trial_to_run(self) -> Any:
            return self.trials.first(PENDING)

    with pytest.raises(TuneError, match="Sleepy runs none of the 3 trials that wait"):
        run(Sleepy(), num_samples=3)


def test_a_decision_that_is_none_is_an_error() -> None:
    class Silent(TrialScheduler):
        def on_result(self, trial: Any, result: Any) -> Any:
            return None

    with pytest.raises(TuneError, match=r"Silent.on_result returned None; it must be one of CONTINUE"):
        run(Silent(), num_samples=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create_scheduler("ashaa"), "scheduler must be one of asha, .* but got 'ashaa'"),
        (lambda: create_scheduler("asha", eta=3), "ASHAScheduler has no option 'eta'; it has: time_attr, metric"),
        (lambda: ASHAScheduler(max_t=0), "max_t must be positive, but got 0"),
        (lambda: ASHAScheduler(grace_period=200), "grace_period must be positive and at most max_t, but got 200"),
        (lambda: ASHAScheduler(reduction_factor=1), "reduction_factor must be more than 1, but got 1"),
        (lambda: ASHAScheduler(mode="maximum"), "mode must be 'min' or 'max', but got 'maximum'"),
        (lambda: PopulationBasedTraining(), "hyperparam_mutations must name what may change"),
        (lambda: MedianStoppingRule(min_samples_required=0), "min_samples_required must be positive, but got 0"),
    ],
)
def test_a_wrong_option_is_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_metric_said_twice_must_be_the_same() -> None:
    with pytest.raises(TuneError, match="metric is 'loss' for the experiment, but 'accuracy' for ASHAScheduler"):
        run(ASHAScheduler(metric="accuracy", mode="min"))


def summary(outcome: Outcome) -> list[Any]:
    return [
        (trial.trial_id, trial.status, trial.config, trial.seen_iteration, trial.checkpoint)
        for trial in outcome.state.trials
    ]


def new_simulation(name: str) -> Simulation:
    return Simulation(Curve, SPACE, GridRandomSearch(), ALL[name](), "loss", "min")


@pytest.mark.parametrize("name", ALL)
def test_replaying_the_ledger_leads_to_the_same_state(name: str) -> None:
    outcome = run(ALL[name](), max_steps=27, num_samples=12)
    state = new_simulation(name).state(12, 0)
    assert replay(state, iter(outcome.entries)) == len(outcome.entries)
    assert summary(Outcome(state, [], [], 0, 0)) == summary(outcome)
    assert state.is_finished


@pytest.mark.parametrize("name", ALL)
def test_a_driver_killed_at_any_moment_loses_nothing(name: str) -> None:
    """Restore from many prefixes of the ledger, and go on: all trials end, with the configurations that they had."""
    first = new_simulation(name)
    outcome = first.run(3, 10, math.inf, 27, 0)
    for cut in range(0, len(outcome.entries), 11 if name == "pb2" else 3):  # its model takes long
        again = new_simulation(name)
        again._saved = first._saved
        resumed = again.resume(outcome.entries[:cut], 3, 10, 27, 0)
        assert resumed.state.is_finished
        assert len(resumed.state.trials) == 10
        assert resumed.entries[: cut + 1] == [*outcome.entries[:cut], ("interrupted", "")]
        if name == "fifo":  # where nothing depends on who came first, even the whole outcome is the same
            assert summary(resumed) == summary(outcome)


@pytest.mark.parametrize("name", ALL)
def test_a_ledger_with_interruptions_can_be_replayed_again(name: str) -> None:
    first = new_simulation(name)
    entries = first.run(3, 8, math.inf, 20, 0).entries
    for cut in (len(entries) // 3, len(entries) // 2, len(entries) - 2):
        again = new_simulation(name)
        again._saved = first._saved
        entries = again.resume(entries[:cut], 3, 8, 20, 0).entries
        first = again
    state = new_simulation(name).state(8, 0)
    assert replay(state, iter(entries)) == len(entries)
    assert state.is_finished


@pytest.mark.parametrize("name", ["asha", "hyperband", "median", "pbt synch"])
def test_with_one_slot_a_restored_run_ends_exactly_as_an_uninterrupted_one(name: str) -> None:
    first = new_simulation(name)
    outcome = first.run(1, 9, math.inf, 27, 0)
    best = min(outcome.state.trials, key=lambda trial: trial.last_result["loss"])
    for cut in range(0, len(outcome.entries), 2):
        again = new_simulation(name)
        again._saved = first._saved
        resumed = again.resume(outcome.entries[:cut], 1, 9, 27, 0)
        ours = min(resumed.state.trials, key=lambda trial: trial.last_result["loss"])
        assert (ours.trial_id, ours.config, ours.last_result["loss"]) == (
            best.trial_id,
            best.config,
            best.last_result["loss"],
        )
