"""Experiments on real actors: both training APIs, both ways to run, and what goes wrong."""

from __future__ import annotations

import math
import os
import signal
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tune_models import Curve, Walker

import weft
from weft import tune
from weft.tune import Callback, RunConfig, TuneConfig, Tuner
from weft.tune.errors import TuneError
from weft.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining, TimeSharingScheduler
from weft.tune.trial import Trial

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def climb(config: dict[str, Any]) -> None:
    for step in range(1, 11):
        tune.report(score=config["alpha"] * step)


def fit(trainable: Any, space: dict[str, Any], path: Path, **options: Any) -> Any:
    run_names = ("stop", "failure_config", "checkpoint_config", "callbacks", "name", "verbose")
    run = {key: options.pop(key) for key in run_names if key in options}
    return Tuner(
        trainable,
        param_space=space,
        tune_config=TuneConfig(**options),
        run_config=RunConfig(storage_path=str(path), **run),
    ).fit()


# ---- both training APIs ----


def test_a_function_reports_by_name_and_the_best_is_found(tmp_path: Path) -> None:
    grid = fit(climb, {"alpha": tune.grid_search([0.2, 0.6, 0.4])}, tmp_path, metric="score", mode="max")
    best = grid.get_best_result()
    assert best.config == {"alpha": 0.6}
    assert best.metrics["score"] == pytest.approx(6.0) and best.metrics["training_iteration"] == 10
    assert [row["score"] for row in best.history] == pytest.approx([0.6 * step for step in range(1, 11)])


def test_a_function_may_return_its_result(tmp_path: Path) -> None:
    def square(config: dict[str, Any]) -> dict[str, float]:
        return {"loss": config["x"] ** 2}

    grid = fit(square, {"x": tune.grid_search([3, -1, 2])}, tmp_path, metric="loss", mode="min")
    assert grid.get_best_result().config == {"x": -1}


def test_the_program_of_2018_runs_as_it_was_written(tmp_path: Path) -> None:
    def my_func(config: dict[str, Any], reporter: Any) -> None:
        accuracy = 0.0
        for step in range(1_000):
            accuracy += config["alpha"] + config["beta"]
            reporter(timesteps_total=step, mean_accuracy=accuracy)

    trials = tune.run_experiments(
        {
            "my_experiment": {
                "run": my_func,
                "stop": {"mean_accuracy": 100},
                "config": {
                    "alpha": tune.grid_search([0.2, 0.4, 0.6]),
                    "beta": tune.grid_search([1, 2]),
                    "gamma": lambda spec: spec.config.alpha * 10,
                },
                "local_dir": str(tmp_path),
            }
        }
    )
    assert [str(trial) for trial in trials[:2]] == [
        "my_func_0_alpha=0.2,beta=1,gamma=2",
        "my_func_1_alpha=0.2,beta=2,gamma=2",
    ]
    assert all(100 <= trial.last_result["mean_accuracy"] < 103 for trial in trials)


class OldModel(tune.Trainable):
    def _setup(self, config: dict[str, Any]) -> None:
        self.total = 0

    def _train(self) -> dict[str, Any]:
        self.total += self.config["by"]
        return {"total": self.total, "timesteps_this_iter": 10}

    def _save(self, checkpoint_dir: str) -> str:
        path = os.path.join(checkpoint_dir, "model")
        Path(path).write_text(str(self.total))
        return path

    def _restore(self, path: str) -> None:
        self.total = int(Path(path).read_text())


def test_a_class_with_the_names_of_2018_saves_and_restores(tmp_path: Path) -> None:
    grid = tune.run(
        OldModel,
        config={"by": tune.grid_search([1, 2])},
        stop={"total": 8},
        checkpoint_freq=2,
        keep_checkpoints_num=1,
        storage_path=str(tmp_path),
        scheduler=TimeSharingScheduler(1e-6),
        metric="total",
        mode="max",
    )
    assert [result.metrics["training_iteration"] for result in grid] == [8, 4]
    assert [result.metrics["timesteps_total"] for result in grid] == [80, 40]
    checkpoint = grid[0].checkpoint
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        assert Path(folder, "model").read_text() == "8"
    assert len(list(Path(grid[0].path).glob("checkpoint_*"))) == 1


def test_a_class_can_be_used_by_itself(tmp_path: Path) -> None:
    first = Walker({"speed": 2.0})
    first.train()
    first.save(str(tmp_path / "saved"))
    second = Walker({"speed": 2.0})
    second.restore(str(tmp_path / "saved"))
    assert second.train() == {"training_iteration": 1, "distance": 4.0}


def test_report_outside_of_a_trial_warns_once_and_does_nothing() -> None:
    with pytest.warns(UserWarning, match=r"tune\.report was called outside of a trial"):
        climb({"alpha": 1})


def test_a_function_goes_on_from_its_own_checkpoint_after_a_failure(tmp_path: Path) -> None:
    def fragile(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        start = checkpoint.to_dict()["step"] if checkpoint else 0
        for step in range(start + 1, 7):
            if step == 4 and start == 0:
                raise RuntimeError("out of luck")
            tune.report({"step": step, "began_at": start}, checkpoint={"step": step})

    failure = tune.FailureConfig(max_failures=1)
    grid = fit(fragile, {}, tmp_path, metric="step", mode="max", failure_config=failure)
    rows = grid[0].history
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["began_at"] for row in rows] == [0, 0, 0, 3, 3, 3]
    assert grid.num_errors == 0


# ---- schedulers on real trials ----


@pytest.mark.parametrize(
    "make",
    [
        lambda: ASHAScheduler(max_t=9, reduction_factor=3),
        lambda: ASHAScheduler(max_t=9, reduction_factor=3, variant="promotion"),
        lambda: HyperBandScheduler(max_t=9),
        lambda: PopulationBasedTraining(perturbation_interval=3, hyperparam_mutations={"x": tune.uniform(0, 1)}),
    ],
)
def test_schedulers_stop_pause_and_change_class_trials(tmp_path: Path, make: Any) -> None:
    grid = fit(
        Curve,
        {"x": tune.uniform(0, 1)},
        tmp_path,
        metric="loss",
        mode="min",
        num_samples=9,
        scheduler=make(),
        seed=1,
        stop={"training_iteration": 9},
    )
    assert all(result.status == "TERMINATED" for result in grid)
    for result in grid:
        iterations = [row["training_iteration"] for row in result.history]
        assert iterations == sorted(iterations) or isinstance(make(), PopulationBasedTraining)
    assert max(result.metrics["training_iteration"] for result in grid) == 9


def test_a_stop_decision_drops_what_the_trial_reported_meanwhile(tmp_path: Path) -> None:
    class StopAtThree(tune.schedulers.TrialScheduler):
        needs_metric = False

        def on_result(self, trial: Any, result: Any) -> str:
            return "STOP" if result["training_iteration"] == 3 else "CONTINUE"

        def milestone(self, trial: Any) -> Any:
            return None  # trials run ahead

    def endless(config: dict[str, Any]) -> None:
        while True:
            tune.report(x=1)

    grid = fit(endless, {}, tmp_path, num_samples=3, scheduler=StopAtThree())
    assert [len(result.history) for result in grid] == [3, 3, 3]


def test_a_pbt_trial_goes_on_from_the_best_ones_weights(tmp_path: Path) -> None:
    grid = fit(
        Walker,
        {"speed": tune.grid_search([1.0, 5.0])},
        tmp_path,
        metric="distance",
        mode="max",
        stop={"training_iteration": 12},
        scheduler=PopulationBasedTraining(
            perturbation_interval=4, hyperparam_mutations={"speed": [1.0, 5.0]}, quantile_fraction=0.5, synch=True
        ),
    )
    assert grid[0].metrics["distance"] > 12
    assert list(Path(grid.experiment_path).glob("pbt_policy_*.json"))


def test_a_pause_without_checkpoints_repeats_but_reports_nothing_twice(tmp_path: Path) -> None:
    grid = fit(climb, {"alpha": tune.grid_search([1, 2, 3])}, tmp_path, scheduler=TimeSharingScheduler(1e-9))
    for result in grid:
        assert [row["training_iteration"] for row in result.history] == list(range(1, 11))


# ---- resources ----


def test_trials_with_workers_of_their_own_run_in_a_placement_group(tmp_path: Path) -> None:
    def nested(config: dict[str, Any]) -> None:
        @weft.remote(num_cpus=1)
        def work(x: int) -> int:
            return x * 2

        tune.report(total=sum(weft.get([work.remote(i) for i in range(4)])))

    shape = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    grid = fit(tune.with_resources(nested, shape), {}, tmp_path, num_samples=3)
    assert [result.metrics["total"] for result in grid] == [12, 12, 12]


def test_a_trial_that_blocks_in_get_lends_its_cpu_to_its_tasks(tmp_path: Path) -> None:
    def nested(config: dict[str, Any]) -> None:
        @weft.remote(num_cpus=1)
        def work() -> int:
            return 1

        tune.report(total=weft.get(work.remote()))

    grid = fit(nested, {}, tmp_path, num_samples=4)
    assert [result.metrics["total"] for result in grid] == [1] * 4


def test_large_parameters_are_shared_by_all_trials(tmp_path: Path) -> None:
    def use(config: dict[str, Any], data: Any) -> None:
        tune.report(total=float(sum(data)))

    grid = fit(tune.with_parameters(use, data=[1.0, 2.0]), {}, tmp_path, num_samples=2)
    assert [result.metrics["total"] for result in grid] == [3.0, 3.0]


def test_more_than_the_machine_has_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"a trial needs 64 CPU, but this machine has 2"):
        fit(tune.with_resources(climb, {"cpu": 64}), {"alpha": 1}, tmp_path)


def test_trials_share_processes_unless_told_not_to(tmp_path: Path) -> None:
    def who(config: dict[str, Any]) -> dict[str, int]:
        return {"process": os.getpid()}

    shared = fit(who, {}, tmp_path, num_samples=6)
    alone = fit(who, {}, tmp_path, num_samples=6, reuse_actors=False)
    assert len({result.metrics["process"] for result in shared}) <= 2
    assert len({result.metrics["process"] for result in alone}) == 6


def test_no_more_trials_run_at_once_than_allowed(tmp_path: Path) -> None:
    class Most(Callback):
        running: set[str] = set()  # noqa: RUF012
        most = 0

        def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
            self.running.add(trial.trial_id)
            self.most = max(self.most, len(self.running))

        def on_trial_complete(self, trial: Trial) -> None:
            self.running.discard(trial.trial_id)

    most = Most()
    fit(climb, {"alpha": 1}, tmp_path, num_samples=5, max_concurrent_trials=1, callbacks=[most])
    assert most.most == 1


# ---- what goes wrong ----


def test_a_trial_that_raises_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    def sometimes(config: dict[str, Any]) -> None:
        if config["x"] == 1:
            raise ValueError("x must not be 1")
        tune.report(score=config["x"])

    grid = fit(sometimes, {"x": tune.grid_search([0, 1, 2])}, tmp_path, metric="score", mode="max")
    assert [result.status for result in grid] == ["TERMINATED", "ERROR", "TERMINATED"]
    assert "ValueError: x must not be 1" in str(grid.errors[0])
    assert "sometimes" in Path(grid[1].path, "error.txt").read_text()
    assert grid.get_best_result().config == {"x": 2}


def test_run_raises_at_the_end_for_failed_trials(tmp_path: Path) -> None:
    def broken(config: dict[str, Any]) -> None:
        raise ValueError("no")

    with pytest.raises(TuneError, match=r"2 of 2 trials failed, the first one: trial 00000: ValueError: no"):
        tune.run(broken, num_samples=2, storage_path=str(tmp_path))


def test_fail_fast_ends_the_experiment_at_the_first_failure(tmp_path: Path) -> None:
    def broken(config: dict[str, Any]) -> None:
        raise ValueError("no")

    failure = tune.FailureConfig(fail_fast=True)
    grid = fit(broken, {}, tmp_path, num_samples=50, failure_config=failure)
    assert len(grid) < 10


def test_a_nan_is_never_the_best(tmp_path: Path) -> None:
    def odd(config: dict[str, Any]) -> None:
        tune.report(loss=math.nan if config["x"] == 0 else config["x"])

    grid = fit(odd, {"x": tune.grid_search([0, 2, 1])}, tmp_path, metric="loss", mode="min")
    assert grid.get_best_result().config == {"x": 1}
    assert math.isnan(grid[0].metrics["loss"])


def test_a_trial_whose_process_dies_is_tried_again(tmp_path: Path) -> None:
    marker = tmp_path / "died"

    def mortal(config: dict[str, Any]) -> None:
        tune.report(step=1)
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        tune.report(step=2)

    grid = fit(mortal, {}, tmp_path, metric="step", mode="max")
    assert grid[0].status == "TERMINATED"
    assert [row["step"] for row in grid[0].history] == [1, 2]


def test_a_trial_that_kills_its_process_every_time_fails_for_good(tmp_path: Path) -> None:
    def suicidal(config: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    grid = fit(suicidal, {}, tmp_path, failure_config=tune.FailureConfig(max_crashes=1))
    assert grid[0].status == "ERROR"
    assert "its process ended" in str(grid.errors[0])


def test_a_trial_that_hangs_is_ended_and_the_others_go_on(tmp_path: Path) -> None:
    def hang(config: dict[str, Any]) -> None:
        tune.report(score=1)
        if config["x"] == 0:
            threading.Event().wait()

    failure = tune.FailureConfig(hang_timeout_s=2.0, max_crashes=0)
    grid = fit(hang, {"x": tune.grid_search([0, 1])}, tmp_path, metric="score", mode="max", failure_config=failure)
    assert [result.status for result in grid] == ["ERROR", "TERMINATED"]
    assert "it reported nothing for 2 s" in str(grid.errors[0])


def test_a_trial_that_waits_for_its_resources_does_not_count_as_hung(tmp_path: Path) -> None:
    """Another program holds the CPUs for longer than a trial may be silent."""
    cpus = int(weft.cluster_resources()["CPU"])
    released = threading.Event()

    @weft.remote(num_cpus=cpus)
    class Holder:
        def is_there(self) -> bool:
            return True

    holder = Holder.remote()
    weft.get(holder.is_there.remote())

    class Release(tune.Callback):
        def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
            if not released.is_set():
                released.set()
                threading.Timer(2.5, lambda: weft.kill(holder)).start()

    failure = tune.FailureConfig(hang_timeout_s=1.5, max_crashes=0)
    grid = fit(climb, {"alpha": 1}, tmp_path, failure_config=failure, callbacks=[Release()])
    assert released.is_set() and grid[0].status == "TERMINATED"


def test_a_time_budget_ends_an_endless_search(tmp_path: Path) -> None:
    def endless(config: dict[str, Any]) -> None:
        while True:
            tune.report(x=1)

    grid = fit(endless, {}, tmp_path, num_samples=-1, time_budget_s=0.5)
    assert len(grid) == 2 and all(result.status == "TERMINATED" for result in grid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "loss", "mode": "min"}, r"metric 'loss' is not in the result of the trial, which reported: score "),
        (
            {"stop": {"accuracy": 1}},
            r"stop condition's 'accuracy' is not in the result of the trial, which reported: sc",
        ),
        (
            {"scheduler": ASHAScheduler(time_attr="epoch"), "metric": "score", "mode": "max"},
            r"ASHAScheduler's time_attr 'epoch' is not in the result of the trial, which reported: score",
        ),
        ({"scheduler": "asha"}, r"ASHAScheduler compares trials by a metric: give metric= and mode="),
        ({"stop": {"score": math.inf}}, r"stop\['score'\] = inf can never be reached"),
        ({"stop": {"score": "high"}}, r"stop\['score'\] must be a number, but got 'high'"),
        ({"stop": 5}, r"stop must be a dictionary of thresholds, a function or a Stopper, but got 5"),
        ({"num_samples": 0}, r"num_samples must be positive, or -1 for no end, but got 0"),
        ({"mode": "best"}, r"mode must be 'min' or 'max', but got 'best'"),
    ],
)
def test_what_can_not_be_meant_is_an_error_that_names_it(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(TuneError, match=message):
        fit(climb, {"alpha": 1}, tmp_path, **options)


@pytest.mark.parametrize("options", [{"metric": "loss", "mode": "min"}, {"stop": {"loss": 1}}])
def test_a_key_that_is_no_number_is_an_error_that_shows_it(tmp_path: Path, options: Any) -> None:
    def odd(config: dict[str, Any]) -> None:
        tune.report(loss="low")

    with pytest.raises(TuneError, match=r"trial 00000: .* 'loss' must be a number, but it reported 'low'"):
        fit(odd, {}, tmp_path, **options)


def test_a_best_trial_that_can_not_be_is_explained(tmp_path: Path) -> None:
    grid = fit(lambda config: {"loss": math.nan, "name": "a"}, {}, tmp_path)
    with pytest.raises(TuneError, match=r"'loss' is NaN or infinite in all 1 trials"):
        grid.get_best_result("loss", "min")
    with pytest.raises(TuneError, match=r"no trial has a number: metric 'name' must be a number, but the trial repo"):
        grid.get_best_result("name", "min")
    with pytest.raises(TuneError, match=r"no trial has a number: metric 'los' is not in the result .* loss, name"):
        grid.get_best_result("los", "min")


def test_a_result_that_can_not_be_sent_is_an_error_of_the_trial_that_names_the_key(tmp_path: Path) -> None:
    def odd(config: dict[str, Any]) -> None:
        tune.report(loss=1, more={"lock": threading.Lock()})

    grid = fit(odd, {}, tmp_path)
    assert "TypeError: key 'more' of the result cannot be sent: cannot pickle" in str(grid.errors[0])


def test_pbt_says_that_trials_save_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pbt = PopulationBasedTraining(perturbation_interval=2, hyperparam_mutations={"alpha": tune.uniform(0, 1)})
    fit(climb, {"alpha": tune.grid_search([1, 2])}, tmp_path, metric="score", mode="max", scheduler=pbt)
    assert caplog.text.count("lets trials go on from the checkpoints of others, but climb saves none") == 1


def test_a_trial_that_ends_without_a_word_is_an_error_if_a_metric_is_needed(tmp_path: Path) -> None:
    with pytest.raises(
        TuneError, match=r"trial 00000 ended without reporting anything; the experiment needs: metric 'a'"
    ):
        fit(lambda config: None, {}, tmp_path, metric="a", mode="max")


def test_unknown_trainables_and_keys_list_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"there is no trainable 'NoSuchThing'"):
        Tuner("NoSuchThing")
    with pytest.raises(
        TuneError, match=r"has an unknown key 'confg'; it may have: run stop config|it may have: run, stop"
    ):
        tune.run_experiments({"x": {"run": climb, "confg": {}}})
    with pytest.raises(TuneError, match=r"must take the configuration \(config\), or \(config, reporter\), but takes"):
        Tuner(lambda config, data, more: None)


def test_a_registered_name_runs(tmp_path: Path) -> None:
    tune.register_trainable("climber", climb)
    trials = tune.run_experiments({"named": {"run": "climber", "config": {"alpha": 2}, "local_dir": str(tmp_path)}})
    assert trials[0].last_result["score"] == 20


def test_a_name_that_is_taken_is_refused_rather_than_overwritten(tmp_path: Path) -> None:
    fit(climb, {"alpha": 1}, tmp_path, name="taken")
    with pytest.raises(
        TuneError, match=r"there is an experiment at .*taken already: continue it with tune.Tuner.restore"
    ):
        fit(climb, {"alpha": 1}, tmp_path, name="taken")


def test_a_stop_function_and_a_stopper_end_trials_and_experiments(tmp_path: Path) -> None:
    grid = fit(climb, {"alpha": 1}, tmp_path, stop=lambda trial_id, result: result["score"] >= 4)
    assert grid[0].metrics["score"] == 4

    class Enough(tune.Stopper):
        needs_every_result = True
        seen = 0

        def __call__(self, trial_id: str, result: Any) -> bool:
            self.seen += 1
            return False

        def stop_all(self) -> bool:
            return self.seen >= 3

    grid = fit(climb, {"alpha": 1}, tmp_path, num_samples=50, stop=Enough())
    assert len(grid) <= 4


def test_an_exception_in_a_callback_ends_the_experiment_and_leaves_no_trial_running(
    tmp_path: Path, shared_weft_session: ModuleType
) -> None:
    class Broken(Callback):
        def on_trial_result(self, trial: Trial, result: Any) -> None:
            raise RuntimeError("callback")

    with pytest.raises(RuntimeError, match="callback"):
        fit(climb, {"alpha": 1}, tmp_path, num_samples=4, callbacks=[Broken()])
    assert fit(climb, {"alpha": 1}, tmp_path, num_samples=4).num_terminated == 4


def test_a_keyword_of_run_that_is_misspelt_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match="no 'konfig'; did you mean 'config'"):
        tune.run(lambda config: None, konfig={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no 'param_space': write config=\{...\}"):
        tune.run(lambda config: None, param_space={})  # type: ignore[call-arg]
