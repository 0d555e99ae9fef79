"""TensorBoard event files of trials."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from weft.library.tensorboard import encode_events
from weft.tune.loggers.files import TrialFileLogger
from weft.tune.trial import Trial

__all__ = ["TBXLoggerCallback"]


class TBXLoggerCallback(TrialFileLogger):
    """The numbers of each result, at step `timesteps_total` if it is reported, else at the iteration."""

    file_name = "events"

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        super().on_trial_start(trial, trial_dir)
        self._paths[trial.trial_id] += f".out.tfevents.{trial.number:010d}.{platform.node()}"

    def encode(self, trial: str, results: list[Mapping[str, Any]], is_new: bool) -> bytes:
        return encode_events(results, is_new)
