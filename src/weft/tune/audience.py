"""Who is told what happens to trials: the callbacks. Runs in the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.tune.callback import Callback
from weft.tune.naming import trial_dir_of
from weft.tune.trial import ERROR, SavedCheckpoint, Trial

__all__ = ["Audience"]

FIRST_HEARD = 30
"""So many trials are told to all, so that a small experiment has all its log files."""


class Audience:
    """All callbacks; of later trials in bundles only those that want to hear of them."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self._folders: dict[str, str] = {}
        self._bundled: set[str] = set()

    def folder(self, trial: Trial) -> str:
        """Of a trial that has not finished, in the experiment's."""
        found = self._folders.get(trial.trial_id)
        if found is None:
            found = self._folders[trial.trial_id] = trial_dir_of(trial)
        return found

    def started(self, trial: Trial, in_bundle: bool = False) -> None:
        if in_bundle and trial.number >= FIRST_HEARD:
            self._bundled.add(trial.trial_id)
        for callback in self._of(trial):
            callback.on_trial_start(trial, self.folder(trial))

    def left_bundle(self, trial: Trial) -> None:
        """It runs alone from here on."""
        if trial.trial_id not in self._bundled:
            return
        self._bundled.discard(trial.trial_id)
        for callback in self._callbacks:
            if not callback.hears_of_bundles:
                callback.on_trial_start(trial, self.folder(trial))

    def returned(self, trial: Trial) -> None:
        """It waits again, and will be started another time."""
        self._bundled.discard(trial.trial_id)

    def reported(self, trial: Trial, result: Mapping[str, Any]) -> None:
        for callback in self._of(trial):
            callback.on_trial_result(trial, result)

    def saved(self, trial: Trial, checkpoint: SavedCheckpoint) -> None:
        for callback in self._of(trial):
            callback.on_checkpoint(trial, checkpoint)

    def finished(self, trial: Trial) -> None:
        for callback in self._of(trial):
            if trial.status == ERROR:
                callback.on_trial_error(trial)
            else:
                callback.on_trial_complete(trial)
        self._folders.pop(trial.trial_id, None)
        self._bundled.discard(trial.trial_id)

    def flush(self) -> None:
        for callback in self._callbacks:
            callback.flush()

    def experiment_ended(self, trials: list[Trial]) -> None:
        for callback in self._callbacks:
            callback.on_experiment_end(trials)

    def _of(self, trial: Trial) -> Iterable[Callback]:
        if trial.trial_id not in self._bundled:
            return self._callbacks
        return (callback for callback in self._callbacks if callback.hears_of_bundles)
