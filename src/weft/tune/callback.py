"""What happens in an experiment, for whoever wants to know: loggers, trackers, tests. Called in the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.tune.trial import SavedCheckpoint, Trial

__all__ = ["Callback"]


class Callback:
    """Override what is of interest. An exception here ends the experiment.

    >>> class Tell(Callback):
    ...     def on_trial_complete(self, trial):
    ...         print(trial.number, trial.last_result["score"])
    >>> from weft import tune
    >>> tuner = tune.Tuner(lambda config: {"score": config["x"]}, param_space={"x": 7},
    ...                    run_config=tune.RunConfig(callbacks=[Tell()], verbose=0))
    >>> results = tuner.fit()
    0 7
    """

    hears_of_bundles = True
    """Whether it is told of trials so short that many ran at once (`weft.tune.bundles`)."""

    def set_up(self, experiment: str, folder: str) -> None:
        """Before the first trial. `folder` is local; trials' files go to `folder/<trial_dir>`."""

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        """The trial begins, or begins again after a failure."""

    def on_trial_result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """The trial has reported."""

    def on_checkpoint(self, trial: Trial, checkpoint: SavedCheckpoint) -> None:
        """The trial's checkpoint is stored."""

    def on_trial_complete(self, trial: Trial) -> None:
        """The trial has ended well, or was stopped."""

    def on_trial_error(self, trial: Trial) -> None:
        """The trial has failed and is not tried again; `trial.error` says why."""

    def on_trial_restore(self, trial: Trial, trial_dir: str, results: list[Mapping[str, Any]]) -> None:
        """A restored experiment goes on with this trial, which reported these results before."""

    def flush(self) -> None:
        """Called now and then: write what was gathered."""

    def on_experiment_end(self, trials: list[Trial]) -> None:
        """The last trial has ended."""
