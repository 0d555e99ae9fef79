"""What a training function can call: `report`, `get_checkpoint`, `get_context`. Runs in the trial's process.

One process runs one trial at a time, so "the trial" is a global of the process, and the threads of a training function
may report too. Outside of a trial `report` warns once and does nothing, so that a function can be tried by hand.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from weft.library.checkpoint import Checkpoint

__all__ = ["StopTrial", "TrialContext", "get_checkpoint", "get_context", "get_trial_dir", "get_trial_id", "report"]


class StopTrial(BaseException):
    """Raised by `report` when the trial shall end. Let it through; `finally` blocks run."""


class TrialContext:
    """Who the trial is."""

    def __init__(self, trial_id: str, trial_name: str, trial_dir: str, experiment: str, resources: Any, iteration: int):
        self._trial_id, self._trial_name, self._trial_dir = trial_id, trial_name, trial_dir
        self._experiment, self._resources = experiment, resources
        self.start_iteration = iteration
        """How many results it had reported before it was (re)started here."""

    def get_trial_id(self) -> str:
        return self._trial_id

    def get_trial_name(self) -> str:
        return self._trial_name

    def get_trial_dir(self) -> str:
        """A folder of this machine for the trial's own files."""
        os.makedirs(self._trial_dir, exist_ok=True)
        return self._trial_dir

    def get_experiment_name(self) -> str:
        return self._experiment

    def get_trial_resources(self) -> Any:
        return self._resources


class Session(Protocol):
    context: TrialContext
    checkpoint: Checkpoint | None

    def report(self, metrics: Mapping[str, Any], checkpoint: Any = None) -> None: ...


_current: Session | None = None
_warned = False


def set_current(session: Session | None) -> None:
    global _current
    _current = session


def report(_metrics: Mapping[str, Any] | None = None, *, checkpoint: Any = None, **metrics: Any) -> None:
    """Report metrics, as a dictionary or by name, and perhaps a checkpoint: a Checkpoint, a folder, or a dictionary.

    >>> tune.report(accuracy=0.9)
    >>> tune.report({"accuracy": 0.9}, checkpoint={"weights": weights})
    """
    global _warned
    if _metrics is not None and not isinstance(_metrics, Mapping):
        raise TypeError(f"report takes a dictionary of metrics, or metrics by name, but got {_metrics!r}")
    if _current is None:
        if not _warned:
            _warned = True
            warnings.warn("tune.report was called outside of a trial, so nothing is reported", stacklevel=2)
        return
    _current.report({**_metrics, **metrics} if _metrics else metrics, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """Where to go on from, when the trial was paused, retried, restored or changed by its scheduler."""
    return _current.checkpoint if _current is not None else None


def get_context() -> TrialContext:
    """Of the trial that runs in this process: its id, name and folder. For training functions only."""
    if _current is None:
        raise RuntimeError("there is no trial in this process: get_context() is for training functions")
    return _current.context


def get_trial_id() -> str:
    """The id of the trial that runs in this process."""
    return get_context().get_trial_id()


def get_trial_dir() -> str:
    """The folder of the trial that runs in this process."""
    return get_context().get_trial_dir()
