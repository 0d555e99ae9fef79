"""Short trials in bundles: the same outcome as one by one, whoever dies, raises or takes long."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from weft import tune
from weft.library.storage import LocalStorage
from weft.tune import audience, bundles
from weft.tune.bundle_run import BundleRun
from weft.tune.bundles import Bundles
from weft.tune.host import ENDED, HostSettings, Start, journal_of
from weft.tune.ledger import read_entries
from weft.tune.schedulers import ASHAScheduler
from weft.tune.search import GridRandomSearch, OptunaSearch
from weft.tune.trial import ERROR, TERMINATED
from weft.tune.tuner import build_state, make_spec


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the bundles, which grow whatever the machine's speed."""
    monkeypatch.setattr(audience, "FIRST_HEARD", 4)
    monkeypatch.setattr(bundles, "TARGET_S", 1e6)
    seen: list[int] = []
    asked = Bundles.size

    def size(self: Bundles, hosts: int) -> int:
        seen.append(asked(self, hosts))
        return seen[-1]

    monkeypatch.setattr(Bundles, "size", size)
    return seen


def tuner_of(trainable: Any, folder: Path, trials: int = 60, **run: Any) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        param_space={"number": tune.grid_search(list(range(trials))), "x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="score", mode="max", seed=3),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0, **run),
    )


def double(config: dict[str, Any]) -> dict[str, Any]:
    return {"score": 2 * config["x"]}


def test_bundled_trials_have_the_results_of_trials_alone(sizes: list[int], tmp_path: Path, weft_session: Any) -> None:
    grid = tuner_of(double, tmp_path).fit()
    assert max(sizes) > 1
    assert [result.config["number"] for result in grid] == list(range(60))
    assert all(result.metrics["score"] == 2 * result.config["x"] for result in grid)
    assert all(len(rows) == 1 for rows in grid.histories.values())
    again = tune.Tuner.restore(grid.experiment_path).get_results()
    assert [result.metrics["score"] for result in again] == [result.metrics["score"] for result in grid]


@pytest.mark.parametrize("asked", [None, True])
def test_log_files_are_left_out_for_bundled_trials_unless_asked_for(
    sizes: list[int], tmp_path: Path, weft_session: Any, asked: bool | None
) -> None:
    grid = tuner_of(double, tmp_path, log_files=asked).fit()
    files = len(list(Path(grid.experiment_path).rglob("result.json")))
    assert files == 60 if asked else 4 <= files < 60


def test_trials_that_raise_in_a_bundle_fail_alone(sizes: list[int], tmp_path: Path, weft_session: Any) -> None:
    def raises(config: dict[str, Any]) -> dict[str, Any]:
        if config["number"] % 10 == 7:
            raise ValueError("seven")
        return {"score": config["x"]}

    grid = tuner_of(raises, tmp_path, failure_config=tune.FailureConfig(max_failures=1)).fit()
    assert [result.config["number"] for result in grid if result.error] == [7, 17, 27, 37, 47, 57]
    assert grid.num_terminated == 54


def test_a_trial_that_ends_its_process_fails_and_those_of_its_bundle_run_again(
    sizes: list[int], tmp_path: Path, weft_session: Any
) -> None:
    def dies(config: dict[str, Any]) -> None:
        tune.report(score=config["x"])
        if config["number"] == 40:
            tune.report(score=-1.0)
            os._exit(1)

    grid = tuner_of(dies, tmp_path, failure_config=tune.FailureConfig(max_crashes=0)).fit()
    assert max(sizes) > 1
    statuses = {result.config["number"]: bool(result.error) for result in grid}
    assert statuses == {number: number == 40 for number in range(60)}
    assert {trial_id for trial_id, rows in grid.histories.items() if len(rows) != 1} == {"00040"}
    assert [row["score"] for row in grid.histories["00040"]] == [grid[40].config["x"], -1.0]
    entries = list(read_entries(LocalStorage(grid.experiment_path)))
    assert ("returned", "00040", True) in entries
    again = tune.Tuner.restore(grid.experiment_path).get_results()
    assert [bool(result.error) for result in again] == [bool(result.error) for result in grid]


def test_what_was_not_begun_is_given_back_while_a_trial_takes_long(tmp_path: Path) -> None:
    waiting, may_end = threading.Event(), threading.Event()

    def waits(config: dict[str, Any]) -> None:
        tune.report(score=1)
        if config["waits"]:
            waiting.set()
            may_end.wait()
            tune.report(score=2)

    storage = LocalStorage(str(tmp_path))
    starts = tuple(
        Start(f"{number}", f"{number}", f"{number}", {"waits": number == 1}, 1, None, None, None) for number in range(4)
    )
    bundle = BundleRun(starts, HostSettings(waits, storage, "waits", "id"), storage, storage)
    thread = threading.Thread(target=bundle.main)
    thread.start()
    waiting.wait()
    made = bundle.take(0.01, 1.0)
    assert [trial_id for trial_id, _ in made.done] == ["0"]
    assert (made.left, made.unstarted) == ("1", ("2", "3"))
    assert bundle.left is not None
    assert len(list(read_entries(storage, journal_of("1", 1)))) == 1
    may_end.set()
    thread.join()
    batch = bundle.left.take(0.01, 1.0)
    assert batch.phase == ENDED
    assert [item[1]["score"] for item in batch.items] == [1, 2]
    assert len(list(read_entries(storage, journal_of("1", 1)))) == 2
    bundle.left.delete_journal()


def test_a_trial_alone_counts_as_one_however_often_it_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weft_session: Any
) -> None:
    def thrice(config: dict[str, Any]) -> None:
        for step in range(3):
            tune.report(score=step)

    counted: list[int] = []
    monkeypatch.setattr(Bundles, "took", lambda self, elapsed_s, trials: counted.append(trials))
    tuner_of(thrice, tmp_path, trials=3).fit()
    assert counted == [1, 1, 1]


class OwnSearch(GridRandomSearch):
    """It might learn."""


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({}, True),
        ({"scheduler": ASHAScheduler()}, False),
        ({"search_alg": OptunaSearch()}, False),
        ({"search_alg": OwnSearch()}, False),
        ({"max_concurrent_trials": 2}, False),
        ({"reuse_actors": False}, False),
    ],
)
def test_only_trials_that_depend_on_no_others_are_bundled(settings: dict[str, Any], may: bool) -> None:
    config = tune.TuneConfig(metric="score", mode="max", num_samples=1000, **settings)
    spec = make_spec(double, {"x": tune.uniform(0, 1)}, config, tune.RunConfig())
    state, _ = build_state(spec, spec.searcher, spec.scheduler)
    asked = Bundles(spec, state)
    assert asked.size(2) == 1
    asked.took(0.001, 1)
    assert [asked.size(2), asked.size(2)] == ([2, 4] if may else [1, 1])
    asked.took(1.0, 1)
    assert asked.size(2) == 1


def test_a_trial_that_was_given_back_is_as_it_was_before(tmp_path: Path) -> None:
    spec = make_spec(double, {"x": tune.uniform(0, 1)}, tune.TuneConfig(num_samples=3), tune.RunConfig())
    state, _ = build_state(spec, spec.searcher, spec.scheduler)
    trials = []
    for _ in range(2):
        trial, _ = state.next_trial()
        assert trial is not None
        state.started(trial)
        trials.append(trial)
    state.returned(trials[1], ran=False)
    state.returned(trials[0], ran=True)
    assert [trial.incarnation for trial in trials] == [1, 0]
    assert list(state.trials.pending) == trials
    assert not any(trial.status in (TERMINATED, ERROR) for trial in trials)


def test_a_trials_folder_is_there_without_log_files(tmp_path: Path) -> None:
    def writes(config: dict[str, Any]) -> dict[str, Any]:
        Path(tune.get_trial_dir(), "own.txt").write_text("here")
        return {"score": 1}

    tune.Tuner(
        writes,
        tune_config=tune.TuneConfig(in_process=True),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0, log_files=False),
    ).fit()
    assert len(list(tmp_path.rglob("own.txt"))) == 1
