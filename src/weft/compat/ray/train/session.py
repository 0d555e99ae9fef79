"""`report`, `get_checkpoint` and `get_context` of `ray.train` in Ray 2.60, in a training loop or in a trial of Tune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import weft.train
import weft.tune
from weft.train import session as train_session
from weft.tune import session as tune_session


def report(metrics: Mapping[str, Any], checkpoint: Any = None, **_: Any) -> None:
    """Other words of Ray's say how a checkpoint is uploaded and have no effect: it is copied, and kept behind."""
    if train_session._current is None and tune_session._current is not None:
        weft.tune.report(dict(metrics), checkpoint=checkpoint)
    else:
        weft.train.report(metrics, checkpoint=checkpoint)


def get_checkpoint() -> Any:
    """Where to go on from; None at the beginning."""
    if train_session._current is None and tune_session._current is not None:
        return weft.tune.get_checkpoint()
    return weft.train.get_checkpoint()


class TrainContext:
    """Weft's, with the questions that Ray's answers."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def get_experiment_name(self) -> str:
        """The run's name."""
        return str(self._context.trainer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def get_context() -> Any:
    """Who this worker, or this trial, is."""
    if train_session._current is None and tune_session._current is not None:
        return weft.tune.get_context()
    return TrainContext(weft.train.get_context())
