"""Trials that failed get another chance: with every scheduler and every search algorithm, and after every restore."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from waiting import wait_until
from weft import tune
from weft.tune.config import RunConfig, TuneConfig
from weft.tune.errors import TuneError
from weft.tune.ledger import replay
from weft.tune.schedulers import (
    PB2,
    ASHAScheduler,
    DistributeResources,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TimeSharingScheduler,
)
from weft.tune.schedulers.scheduler import CONTINUE, PAUSE, SAVE, STOP, Exploit, Restart
from weft.tune.search import ConcurrencyLimiter, OptunaSearch, Repeater, Searcher, TuneBOHB
from weft.tune.space import resolve
from weft.tune.state import ExperimentState
from weft.tune.trial import ERROR
from weft.tune.tuner import build_state, make_spec

TRIALS, ITERATIONS = 9, 9
SPACE = {"x": tune.uniform(0.0, 1.0), "kind": tune.choice(["a", "b"])}


class Forgetful(Searcher):
    """As a user may write it: what was told is forgotten."""

    def ask(self, trial_id: str) -> Any:
        self.asked = getattr(self, "asked", {})
        self.asked[trial_id] = resolve(self.space, lambda path, domain: domain.sample(self.rng))
        return self.asked[trial_id]

    def tell(self, trial_id: str, result: Any) -> None:
        del self.asked[trial_id]


def nevergrad() -> Searcher:
    pytest.importorskip("nevergrad")
    from weft.tune.search import NevergradSearch

    return NevergradSearch("OnePlusOne")


def bayesopt() -> Searcher:
    pytest.importorskip("bayes_opt")
    from weft.tune.search import BayesOptSearch

    return BayesOptSearch(4)


SCHEDULERS: dict[str, Callable[[], Any]] = {
    "fifo": lambda: None,
    "asha": lambda: ASHAScheduler(max_t=ITERATIONS, reduction_factor=2, brackets=2),
    "promotion": lambda: ASHAScheduler(max_t=ITERATIONS, reduction_factor=2, variant="promotion"),
    "hyperband": lambda: HyperBandScheduler(max_t=ITERATIONS),
    "median": lambda: MedianStoppingRule(min_samples_required=2),
    "pbt": lambda: PopulationBasedTraining(perturbation_interval=2, hyperparam_mutations={"x": [0.1, 0.5, 0.9]}),
    "synchronous pbt": lambda: PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": [0.1, 0.5, 0.9]}, synch=True
    ),
    "pb2": lambda: PB2(perturbation_interval=2, hyperparam_bounds={"x": (0.0, 1.0)}),
    "time sharing": lambda: TimeSharingScheduler(3.0),
    "resources": lambda: ResourceChangingScheduler(
        ASHAScheduler(max_t=ITERATIONS, reduction_factor=2), DistributeResources({"CPU": 8})
    ),
}
SEARCHERS: dict[str, Callable[[], Any]] = {
    "random": lambda: None,
    "optuna": lambda: OptunaSearch("tpe"),
    "bohb": lambda: TuneBOHB(),
    "limiter": lambda: ConcurrencyLimiter(OptunaSearch("random"), 2),
    "limited forgetful": lambda: ConcurrencyLimiter(Forgetful(), 2),
    "repeater": lambda: Repeater(OptunaSearch("random"), 3),
    "forgetful": Forgetful,
    "nevergrad": nevergrad,
    "bayesopt": bayesopt,
}


def new_state(spec: Any) -> ExperimentState:
    import copy

    return build_state(spec, copy.deepcopy(spec.searcher), copy.deepcopy(spec.scheduler))[0]


def spec_of(scheduler: Any, searcher: Any) -> Any:
    chosen = TuneConfig(
        metric="score", mode="max", num_samples=TRIALS, scheduler=scheduler, search_alg=searcher, seed=3
    )
    return make_spec(lambda config: None, SPACE, chosen, RunConfig(stop={"training_iteration": ITERATIONS}))


class Driver:
    """Plays the runner: tells the state what happens, notes it as the ledger does."""

    def __init__(self, state: ExperimentState) -> None:
        self.state = state
        self.entries: list[tuple[Any, ...]] = []

    def note(self, *entry: Any) -> None:
        self.entries.append(entry)
        replay(self.state, iter([entry]))

    def run(self, failing: Callable[[Any], bool]) -> None:
        """Until all have ended; a trial that is `failing` fails for good at its fourth iteration."""
        state = self.state
        for _ in range(1000):
            had_ended = state.search_ended
            trial, made = state.next_trial()
            if made is not None:
                self.entries.append(("added", made.trial_id, made.config))
            if state.search_ended and not had_ended:
                self.entries.append(("search ended", ""))
            if trial is None:
                if state.is_finished:
                    return
                if made is None and state.is_stalled:
                    self.note("stalled", "")
                continue
            self.note("started", trial.trial_id)
            self.play(trial, failing(trial))
            state.interrupts.clear()
        raise AssertionError("the experiment does not end")

    def play(self, trial: Any, fails: bool) -> None:
        iteration = trial.checkpoint.iteration if trial.checkpoint else 0
        while True:
            self.state.scheduler.milestone(trial)
            iteration += 1
            if fails and iteration == 4:
                return self.note("failed", trial.trial_id, "RuntimeError: not yet", False)
            score = trial.config["x"] * iteration
            result = {"score": score, "training_iteration": iteration, "time_total_s": float(iteration)}
            self.entries.append(("reported", trial.trial_id, {**result, "done": iteration >= ITERATIONS}))
            decision = self.state.reported(trial, self.entries[-1][2])
            if trial.is_finished or decision == STOP:
                return None
            if iteration >= ITERATIONS:
                return self.note("ended", trial.trial_id)
            if isinstance(decision, Exploit):
                iteration = trial.checkpoint.iteration if trial.checkpoint else 0
                continue
            self.note("saved", trial.trial_id, f"c{trial.trial_id}-{iteration}", iteration, 0.0, {})
            if decision == PAUSE or isinstance(decision, Restart):
                return self.note("paused", trial.trial_id)
            assert decision in (CONTINUE, SAVE)


COMBINATIONS = [
    *((scheduler, "optuna") for scheduler in SCHEDULERS),
    *(("asha", searcher) for searcher in SEARCHERS if searcher != "optuna"),
    ("hyperband", "bohb"),
    ("promotion", "limiter"),  # what is paused takes up the places of what could come
    ("hyperband", "limiter"),
]


@pytest.mark.parametrize(("scheduler", "searcher"), COMBINATIONS)
def test_failed_trials_are_revived_with_every_scheduler_and_searcher(scheduler: str, searcher: str) -> None:
    spec = spec_of(SCHEDULERS[scheduler](), SEARCHERS[searcher]())
    first = Driver(new_state(spec))
    first.run(lambda trial: trial.number % 3 == 1)
    failed = [trial.trial_id for trial in first.state.trials if trial.status == ERROR]
    assert failed, "nothing failed, so nothing is tested"
    entries = first.entries
    for fails_again in (failed[:1], []):  # what was written can be read each time
        driver = Driver(new_state(spec))
        replay(driver.state, iter(entries))
        driver.entries = [*entries]
        for trial in [trial for trial in driver.state.trials if trial.status == ERROR]:
            driver.note("revived", trial.trial_id)
        driver.run(lambda trial, fails_again=fails_again: trial.trial_id in fails_again)
        entries = driver.entries
    assert not [trial for trial in driver.state.trials if trial.status == ERROR]
    last = new_state(spec)
    replay(last, iter(entries))
    assert [trial.status for trial in last.trials] == [trial.status for trial in driver.state.trials]
    assert [trial.seen_iteration for trial in last.trials] == [trial.seen_iteration for trial in driver.state.trials]


STOPPED = [each for each in COMBINATIONS if each[0] not in ("time sharing", "resources")]  # one goes by the clock


@pytest.mark.parametrize(("scheduler", "searcher"), STOPPED)
def test_an_experiment_interrupted_again_and_again_ends_as_if_it_never_was(
    scheduler: str, searcher: str, tmp_path: Path
) -> None:
    def outcome(folder: str, every: int) -> tuple[int, list[Any]]:
        """(how often it was interrupted, what came out): with Ctrl-C at each so many reports, before or after them."""
        reports = interrupts = 0

        def climb(config: dict[str, Any]) -> None:
            nonlocal reports, interrupts
            checkpoint = tune.get_checkpoint()
            step = checkpoint.to_dict()["step"] if checkpoint else 0
            while step < ITERATIONS:
                step, reports = step + 1, reports + 1
                if reports % every == 0:
                    interrupts += 1
                    raise KeyboardInterrupt
                tune.report({"score": config["x"] * step}, checkpoint={"step": step})
                if reports % (2 * every) == every // 2:
                    interrupts += 1
                    raise KeyboardInterrupt

        chosen = TuneConfig("score", "max", SEARCHERS[searcher](), SCHEDULERS[scheduler](), TRIALS, seed=3)
        chosen.in_process = True
        tuner = tune.Tuner(
            climb,
            param_space=SPACE,
            tune_config=chosen,
            run_config=RunConfig(name=folder, storage_path=str(tmp_path), verbose=0),
        )
        for _ in range(200):
            try:
                grid = tuner.fit()
            except KeyboardInterrupt:
                tuner = tune.Tuner.restore(tmp_path / folder, climb, verbose=0)
                continue
            rows = [(one.config, one.status, [row["score"] for row in one.history]) for one in grid]
            return interrupts, rows
        raise AssertionError("the experiment does not end")

    undisturbed, wanted = outcome("once", 1_000_000)
    interrupts, found = outcome("often", 5)
    assert undisturbed == 0 and interrupts > 2
    assert found == wanted


def test_a_revived_trial_is_compared_once_at_each_rung() -> None:
    spec = spec_of(SCHEDULERS["asha"](), None)
    driver = Driver(new_state(spec))
    driver.run(lambda trial: trial.number == 0)
    first = driver.state.trials["00000"]
    assert first.status == ERROR
    driver.note("revived", "00000")
    driver.run(lambda trial: False)
    scheduler: Any = driver.state.scheduler
    for rungs in scheduler._brackets:
        for rung in rungs:
            assert len(rung._sorted) == len(rung.scores), f"someone was counted twice at {rung.time}"


class Unseeded(Searcher):
    """Draws from elsewhere, so that asking it again gives something else."""

    def ask(self, trial_id: str) -> Any:
        return resolve(self.space, lambda path, domain: domain.sample(random.Random(os.urandom(8))))


def test_an_unseeded_sampler_is_told_the_results_of_what_was_recorded() -> None:
    optuna = pytest.importorskip("optuna")
    spec = spec_of(SCHEDULERS["asha"](), OptunaSearch(optuna.samplers.RandomSampler(seed=None)))
    driver = Driver(new_state(spec))
    driver.run(lambda trial: trial.number == 2)
    restored = new_state(spec)
    restored.searcher.study.sampler.reseed_rng()  # type: ignore[attr-defined]
    replay(restored, iter(driver.entries))

    def known(state: ExperimentState) -> list[Any]:
        study: Any = state.searcher.study  # type: ignore[attr-defined]
        done = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
        return sorted((trial.params["x"], trial.params["kind"], trial.state.name, trial.value) for trial in done)

    assert known(restored) == known(driver.state)


def test_choices_of_tuples_are_known_again_after_a_restore(tmp_path: Path) -> None:
    space = {"hidden": tune.choice([(64, 64), (32,)]), "x": tune.uniform(0.0, 1.0)}
    chosen = TuneConfig(metric="score", mode="max", num_samples=6, search_alg=OptunaSearch(), seed=3, in_process=True)
    run = RunConfig(storage_path=str(tmp_path), name="tuples", verbose=0)
    seen: list[Any] = []

    def train(config: dict[str, Any]) -> dict[str, Any]:
        seen.append(config["hidden"])
        if len(seen) == 4:
            raise KeyboardInterrupt
        return {"score": config["x"]}

    with pytest.raises(KeyboardInterrupt):
        tune.Tuner(train, param_space=space, tune_config=chosen, run_config=run).fit()
    grid = tune.Tuner.restore(tmp_path / "tuples", trainable=train).fit()
    assert len(grid) == 6
    assert all(isinstance(result.config["hidden"], tuple) for result in grid)
    assert all(isinstance(hidden, tuple) for hidden in seen)


def test_an_unseeded_bohb_is_told_the_results_of_what_was_recorded() -> None:
    spec = spec_of(SCHEDULERS["asha"](), TuneBOHB())
    driver = Driver(new_state(spec))
    driver.run(lambda trial: False)
    restored = new_state(spec)
    restored.searcher._draws.random(7)  # type: ignore[attr-defined]  # as of another version
    replay(restored, iter(driver.entries))
    searcher: Any = restored.searcher
    for trial in restored.trials:
        assert searcher._cube.to_config(searcher._vectors[trial.trial_id]) == pytest.approx(
            {**driver.state.trials[trial.trial_id].config}
        )


def test_a_searcher_of_ones_own_that_answers_otherwise_is_warned_of() -> None:
    spec = spec_of(None, Unseeded())
    driver = Driver(new_state(spec))
    driver.run(lambda trial: False)
    with pytest.warns(UserWarning, match="Unseeded gave another configuration for trial 00000"):
        replay(new_state(spec), iter(driver.entries))


def test_failed_trials_of_asha_and_optuna_can_be_tried_again(tmp_path: Path, weft_session: Any) -> None:
    mended = tmp_path / "mended"

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 5):
            if step == 3 and config["x"] > 0.3 and not mended.exists():
                raise RuntimeError("not yet")
            tune.report(score=config["x"] * step)

    tuner = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=TuneConfig(
            metric="score",
            mode="max",
            num_samples=4,
            search_alg=OptunaSearch(),
            scheduler=ASHAScheduler(max_t=4, grace_period=4),
            seed=1,
        ),
        run_config=RunConfig(name="revived", storage_path=str(tmp_path), verbose=0),
    )
    assert tuner.fit().num_errors
    mended.touch()
    assert tune.Tuner.restore(tuner.path, resume_errored=True).fit().num_errors == 0
    assert tune.Tuner.restore(tuner.path).get_results().num_terminated == 4


def test_when_all_trials_failed_the_best_result_says_so_with_the_first_error(tmp_path: Path, weft_session: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report(loss=1.0)
        raise ZeroDivisionError("the cause")

    def train_without_report(config: dict[str, Any]) -> None:
        raise ZeroDivisionError("the cause")

    grid = tune.Tuner(
        train_without_report,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=TuneConfig(metric="score", mode="max"),
        run_config=RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    with pytest.raises(TuneError, match=r"all 2 trials failed.*00000: ZeroDivisionError: the cause"):
        grid.get_best_result()
    partial = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert partial.get_best_result().metrics["loss"] == 1.0, "what was reported before the failure counts"


@pytest.mark.parametrize("behind_url", [False, True])
def test_a_trial_process_that_dies_loses_no_report(tmp_path: Path, weft_session: Any, behind_url: bool) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def train(config: dict[str, Any]) -> None:
        first = not (marks / f"{config['x']}").exists()
        (marks / f"{config['x']}").touch()
        checkpoint = tune.get_checkpoint()
        for step in range(checkpoint.to_dict()["step"] + 1 if checkpoint else 1, 6):
            tune.report({"step": step, "first": first}, checkpoint={"step": step} if step == 2 else None)
            if step == 4 and first:
                os.kill(os.getpid(), signal.SIGKILL)

    if behind_url:
        pytest.importorskip("fsspec")
    root = f"local://{tmp_path}/results" if behind_url else str(tmp_path / "results")
    grid = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1])},
        tune_config=TuneConfig(metric="step", mode="max"),
        run_config=RunConfig(storage_path=root, verbose=0),
    ).fit()
    for result in grid:
        assert [(row["step"], row["first"]) for row in result.history] == [
            (1, True),
            (2, True),
            (3, True),
            (4, True),
            (5, False),
        ]
        assert result.status == "TERMINATED"
    if not behind_url:
        left = Path(grid.experiment_path)
        wait_until(lambda: not list(left.rglob("*.journal")))
