"""The experiment on the dashboard's page: its trials, their configurations, curves and outcomes. Runs in the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import weft
from weft.tune.callback import Callback
from weft.tune.lookup import flatten, value_at
from weft.tune.trial import Trial
from weft.util import board

__all__ = ["BoardCallback"]

PUBLISH_S = 2.0
MOST_TRIALS = 500
MOST_POINTS = 100
_LONGEST_VALUE = 100


class BoardCallback(Callback):
    """Publishes at most once in `PUBLISH_S`, and at the end. Of more than `MOST_TRIALS` trials the newest are shown."""

    def __init__(self, name: str, metric: str | None, mode: str | None) -> None:
        self._name, self._metric, self._mode = name, metric, mode or "max"
        self._trials: dict[str, Trial] = {}
        self._curves: dict[str, board.Curve] = {}
        self._published_s = 0.0
        self._has_news = False

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        self._trials[trial.trial_id] = trial
        self._has_news = True

    def on_trial_result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        value = value_at(result, self._metric)
        if isinstance(value, int | float):
            curve = self._curves.setdefault(trial.trial_id, board.Curve(MOST_POINTS))
            curve.add(float(result.get("training_iteration", trial.results_seen)), float(value))
        self._has_news = True

    def on_trial_complete(self, trial: Trial) -> None:
        self._has_news = True

    def on_trial_error(self, trial: Trial) -> None:
        self._has_news = True

    def flush(self) -> None:
        if self._has_news and time.monotonic() - self._published_s > PUBLISH_S:
            self._publish()

    def on_experiment_end(self, trials: list[Trial]) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._publish()

    def _publish(self) -> None:
        self._published_s, self._has_news = time.monotonic(), False
        rows = [self._row(trial) for trial in list(self._trials.values())[-MOST_TRIALS:]]
        while True:
            shown = {"metric": self._metric or "metric", "mode": self._mode, "trials": rows}
            try:
                return board.publish("tune", self._name, shown)
            except ValueError:  # too large: the older half is left out
                if not rows:
                    return None
                rows = rows[(len(rows) + 1) // 2 :]
            except weft.exceptions.RpcError:  # a busy node: the next one comes soon
                return None

    def _row(self, trial: Trial) -> dict[str, Any]:
        curve = self._curves.get(trial.trial_id)
        return {
            "id": trial.trial_id,
            "state": trial.status,
            "config": {key: _plain(value) for key, value in flatten(trial.config).items()},
            "best": trial.best_value,
            "iterations": int(trial.last_result.get("training_iteration", trial.results_seen)),
            "seconds": float(trial.last_result.get("time_total_s", 0.0)),
            "curve": curve.points if curve is not None else [],
            "error": (trial.error or "").strip().rpartition("\n")[2][:_LONGEST_VALUE],
        }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else str(value)[:_LONGEST_VALUE]
