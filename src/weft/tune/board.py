"""The experiment on the dashboard's page: its trials, their configurations, curves and outcomes. Runs in the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.library.board import Board, Curve, plain
from weft.library.lookup import flatten, value_at
from weft.tune.callback import Callback
from weft.tune.trial import Trial

__all__ = ["BoardCallback"]

MOST_TRIALS = 500
MOST_POINTS = 100


class BoardCallback(Callback):
    """Publishes now and then, and at the end. Of more than `MOST_TRIALS` trials the newest are shown."""

    def __init__(self, name: str, metric: str | None, mode: str | None) -> None:
        self._board = Board("tune", name)
        self._metric, self._mode = metric, mode or "max"
        self._trials: dict[str, Trial] = {}
        self._curves: dict[str, Curve] = {}
        self._has_news = False

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        self._trials[trial.trial_id] = trial
        self._has_news = True

    def on_trial_result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        value = value_at(result, self._metric)
        if isinstance(value, int | float):
            curve = self._curves.setdefault(trial.trial_id, Curve(MOST_POINTS))
            curve.add(float(result.get("training_iteration", trial.results_seen)), float(value))
        self._has_news = True

    def on_trial_complete(self, trial: Trial) -> None:
        self._has_news = True

    def on_trial_error(self, trial: Trial) -> None:
        self._has_news = True

    def flush(self) -> None:
        if self._has_news and self._board.is_due():
            self._publish()

    def on_experiment_end(self, trials: list[Trial]) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._publish()

    def _publish(self) -> None:
        self._has_news = False
        rows = [self._row(trial) for trial in list(self._trials.values())[-MOST_TRIALS:]]
        shown = {"metric": self._metric or "metric", "mode": self._mode, "trials": rows}
        while not self._board.show(shown) and rows:  # too large: the older half is left out
            shown["trials"] = rows = rows[(len(rows) + 1) // 2 :]

    def _row(self, trial: Trial) -> dict[str, Any]:
        curve = self._curves.get(trial.trial_id)
        return {
            "id": trial.trial_id,
            "state": trial.status,
            "config": {key: plain(value) for key, value in flatten(trial.config).items()},
            "best": trial.best_value,
            "iterations": int(trial.last_result.get("training_iteration", trial.results_seen)),
            "seconds": float(trial.last_result.get("time_total_s", 0.0)),
            "curve": curve.points if curve is not None else [],
            "error": (trial.error or "").strip().rpartition("\n")[2][:100],
        }
