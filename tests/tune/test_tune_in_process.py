"""Trials in the driver's own process: the same outcome as in processes of their own, without a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tune_models import Walker

import weft
from weft import tune
from weft.tune.errors import TuneError
from weft.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining
from weft.tune.search import OptunaSearch


def fit(trainable: Any, space: dict[str, Any], folder: Path, scheduler: Any = None, **settings: Any) -> tune.ResultGrid:
    chosen = {"metric": "score", "mode": "max", "seed": 1, "in_process": True}
    run = {"storage_path": str(folder), "verbose": 0}
    run |= {name: settings.pop(name) for name in ("stop", "failure_config", "checkpoint_config") if name in settings}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**{**chosen, "scheduler": scheduler, **settings}),
        run_config=tune.RunConfig(**run),
    ).fit()


def climbing(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    step = checkpoint.to_dict()["step"] if checkpoint else 0
    while step < 9:
        step += 1
        tune.report({"score": step * config["speed"]}, checkpoint={"step": step})


GRID = {"speed": tune.grid_search([1.0, 3.0, 2.0, 5.0, 4.0, 0.5])}


def test_no_session_is_made_and_results_are_in_the_ledger(tmp_path: Path) -> None:
    grid = fit(lambda config: {"score": config["x"] ** 2}, {"x": tune.grid_search([1, 3, 2])}, tmp_path)
    assert not weft.is_initialized()
    assert [result.metrics["score"] for result in grid] == [1, 9, 4]
    again = tune.Tuner.restore(grid.experiment_path).get_results()
    assert again.get_best_result().config == {"x": 3}
    assert [row["score"] for row in again[1].history] == [9]
    assert not list(Path(grid.experiment_path).rglob("*.csv"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: ASHAScheduler(max_t=9, reduction_factor=2),
        lambda: HyperBandScheduler(max_t=9),
        lambda: ASHAScheduler(max_t=9, reduction_factor=2, variant="promotion"),
    ],
)
def test_schedulers_stop_pause_and_resume_trials_of_this_process(make: Any, tmp_path: Path) -> None:
    grid = fit(climbing, GRID, tmp_path, make())
    assert {result.status for result in grid} == {"TERMINATED"}
    assert grid.get_best_result().metrics["score"] == 45.0
    for result in grid:
        iterations = [row["training_iteration"] for row in result.history]
        assert iterations == list(range(1, len(iterations) + 1)), "a result is missing, or was counted twice"
    if make() is not None:
        assert sum(len(result.history) for result in grid) < 6 * 9, "nothing was stopped"


def test_a_population_goes_on_from_each_others_checkpoints(tmp_path: Path) -> None:
    scheduler = PopulationBasedTraining(
        metric="distance",
        mode="max",
        perturbation_interval=2,
        hyperparam_mutations={"speed": [1.0, 4.0]},
        synch=True,
    )
    grid = fit(
        Walker,
        {"speed": tune.grid_search([1.0, 1.0, 4.0, 4.0])},
        tmp_path,
        scheduler,
        metric=None,
        mode=None,
        stop={"training_iteration": 8},
    )
    assert {result.status for result in grid} == {"TERMINATED"}
    assert scheduler.perturbations == 0, "the scheduler that was given is not the one that ran"
    assert list(Path(grid.experiment_path).glob("pbt_policy_*.json")), "nobody went on from another"
    assert all(result.metrics["training_iteration"] == 8 for result in grid)


def test_a_trial_that_raises_is_tried_again_and_then_failed(tmp_path: Path) -> None:
    tries: list[int] = []

    def flaky(config: dict[str, Any]) -> None:
        tries.append(config["x"])
        if config["x"] == 2 or tries.count(config["x"]) < 2:
            raise RuntimeError("not yet")
        tune.report(score=config["x"])

    failures = tune.FailureConfig(max_failures=1)
    grid = fit(flaky, {"x": tune.grid_search([1, 2])}, tmp_path, failure_config=failures)
    assert [result.status for result in grid] == ["TERMINATED", "ERROR"]
    assert sorted(tries) == [1, 1, 2, 2]
    assert "RuntimeError: not yet" in str(grid.errors[0])
    assert "in flaky" in (Path(grid[1].path) / "error.txt").read_text()


def test_what_is_wrong_with_the_experiment_is_raised_through_the_trial(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        try:
            tune.report(loss=1.0)
        except Exception:
            raise AssertionError("the trial saw what is none of its business") from None

    with pytest.raises(TuneError, match="metric 'score' is not in the result"):
        fit(train, {"x": tune.grid_search([1, 2])}, tmp_path)


def test_an_interrupt_ends_the_experiment_which_goes_on_after_a_restore(tmp_path: Path) -> None:
    seen: list[float] = []

    def train(config: dict[str, Any]) -> None:
        seen.append(config["x"])
        if len(seen) == 3:
            raise KeyboardInterrupt
        tune.report(score=config["x"])

    with pytest.raises(KeyboardInterrupt):
        fit(train, {"x": tune.uniform(0.0, 1.0)}, tmp_path, num_samples=5, search_alg=OptunaSearch())
    (folder,) = tmp_path.iterdir()
    grid = tune.Tuner.restore(folder, trainable=train).fit()
    assert [result.status for result in grid] == ["TERMINATED"] * 5
    assert len(seen) == 6 and seen[2] == seen[3], "the trial that was interrupted is run again, and no other"
    with pytest.raises(RuntimeError, match="there is no trial"):
        tune.get_context()


def test_a_time_budget_ends_a_trial_that_reports(tmp_path: Path) -> None:
    def endless(config: dict[str, Any]) -> None:
        while True:
            tune.report(score=1.0)

    grid = fit(endless, {"x": tune.grid_search([1, 2])}, tmp_path, time_budget_s=0.0)
    assert [result.status for result in grid] == ["TERMINATED"]


def test_what_this_process_cannot_do_is_refused(tmp_path: Path) -> None:
    heavy = tune.with_resources(climbing, {"CPU": 2})
    with pytest.raises(TuneError, match="asks for resources, which in_process=True cannot set aside"):
        fit(heavy, GRID, tmp_path)
    with pytest.raises(TuneError, match="leave hang_timeout_s out"):
        fit(climbing, GRID, tmp_path, failure_config=tune.FailureConfig(hang_timeout_s=1.0))
