"""Experiment trackers: Weights & Biases and MLflow. Each is imported when its callback is made, and only then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft.library.lookup import flatten
from weft.tune.callback import Callback
from weft.tune.trial import Trial

__all__ = ["MLflowLoggerCallback", "WandbLoggerCallback"]


class WandbLoggerCallback(Callback):
    """One W&B run for each trial; `options` go to `wandb.init`."""

    def __init__(self, project: str, group: str | None = None, **options: Any) -> None:
        self._wandb = _imported("wandb", "WandbLoggerCallback")
        self._options = {"project": project, **options}
        self._group = group
        self._runs: dict[str, Any] = {}

    def set_up(self, experiment: str, folder: str) -> None:
        self._group = self._group or experiment

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        if trial.trial_id not in self._runs:
            self._runs[trial.trial_id] = self._wandb.init(
                name=str(trial), group=self._group, config=trial.config, reinit="create_new", **self._options
            )

    def on_trial_result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        self._runs[trial.trial_id].log(flatten(result), step=result["training_iteration"])

    def on_trial_restore(self, trial: Trial, trial_dir: str, results: list[Mapping[str, Any]]) -> None:
        self.on_trial_start(trial, trial_dir)

    def on_trial_complete(self, trial: Trial) -> None:
        self._end(trial, 0)

    def on_trial_error(self, trial: Trial) -> None:
        self._end(trial, 1)

    def _end(self, trial: Trial, exit_code: int) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.finish(exit_code=exit_code)


class MLflowLoggerCallback(Callback):
    """One MLflow run for each trial, with the configuration as parameters."""

    def __init__(self, tracking_uri: str | None = None, experiment_name: str | None = None, tags: Any = None) -> None:
        tracking = _imported("mlflow.tracking", "MLflowLoggerCallback")
        self._client = tracking.MlflowClient(tracking_uri=tracking_uri)
        self._experiment_name = experiment_name
        self._tags = dict(tags or {})
        self._experiment_id: str = ""
        self._runs: dict[str, str] = {}

    def set_up(self, experiment: str, folder: str) -> None:
        name = self._experiment_name or experiment
        found = self._client.get_experiment_by_name(name)
        self._experiment_id = found.experiment_id if found is not None else self._client.create_experiment(name)

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        if trial.trial_id in self._runs:
            return
        run = self._client.create_run(self._experiment_id, tags={**self._tags, "mlflow.runName": str(trial)})
        self._runs[trial.trial_id] = run.info.run_id
        for key, value in flatten(trial.config).items():
            self._client.log_param(run.info.run_id, key, value)

    def on_trial_result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        for key, value in flatten(result).items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._client.log_metric(self._runs[trial.trial_id], key, value, step=result["training_iteration"])

    def on_trial_restore(self, trial: Trial, trial_dir: str, results: list[Mapping[str, Any]]) -> None:
        self.on_trial_start(trial, trial_dir)

    def on_trial_complete(self, trial: Trial) -> None:
        self._end(trial, "FINISHED")

    def on_trial_error(self, trial: Trial) -> None:
        self._end(trial, "FAILED")

    def _end(self, trial: Trial, status: str) -> None:
        run_id = self._runs.pop(trial.trial_id, None)
        if run_id is not None:
            self._client.set_terminated(run_id, status)


def _imported(module: str, wanted_by: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ModuleNotFoundError(f"{wanted_by} needs {package}: pip install {package}", name=package) from error
