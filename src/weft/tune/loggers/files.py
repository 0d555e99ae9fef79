"""One file per trial: `result.json` (a line a result), `progress.csv`, and `params.json`.

Results gather in memory and are written when the runner says so, or when their trial ends: one open a batch, whatever
the number of results.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from typing import Any

from weft.library.lookup import flatten
from weft.tune.callback import Callback
from weft.tune.trial import Trial

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "TrialFileLogger"]


class TrialFileLogger(Callback):
    """Subclasses say the file's name and how results become bytes."""

    file_name: str

    def __init__(self) -> None:
        self._folder = ""
        self._paths: dict[str, str] = {}
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}

    def set_up(self, experiment: str, folder: str) -> None:
        self._folder = folder

    def encode(self, trial: str, results: list[Mapping[str, Any]], is_new: bool) -> bytes:
        """What to append to the trial's file; `is_new` when the file is empty."""
        raise NotImplementedError

    def forget(self, trial: str) -> None:
        """The trial will not be written again, or from the start."""

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        folder = os.path.join(self._folder, trial_dir)
        os.makedirs(folder, exist_ok=True)
        self._paths[trial.trial_id] = os.path.join(folder, self.file_name)

    def on_trial_result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        self._waiting.setdefault(trial.trial_id, []).append(result)

    def on_trial_restore(self, trial: Trial, trial_dir: str, results: list[Mapping[str, Any]]) -> None:
        self.on_trial_start(trial, trial_dir)
        if os.path.exists(self._paths[trial.trial_id]):
            os.remove(self._paths[trial.trial_id])
        self._waiting[trial.trial_id] = list(results)

    def on_trial_complete(self, trial: Trial) -> None:
        self._write(trial.trial_id)
        self._paths.pop(trial.trial_id, None)
        self.forget(trial.trial_id)

    on_trial_error = on_trial_complete

    def on_experiment_end(self, trials: list[Trial]) -> None:
        self.flush()

    def flush(self) -> None:
        for trial_id in list(self._waiting):
            self._write(trial_id)

    def _write(self, trial_id: str) -> None:
        results = self._waiting.pop(trial_id, None)
        if not results:
            return
        with open(self._paths[trial_id], "ab") as file:
            file.write(self.encode(trial_id, results, file.tell() == 0))


class JsonLoggerCallback(TrialFileLogger):
    """`result.json`, one JSON object a line, and `params.json` with the configuration."""

    file_name = "result.json"

    def on_trial_start(self, trial: Trial, trial_dir: str) -> None:
        super().on_trial_start(trial, trial_dir)
        with open(os.path.join(self._folder, trial_dir, "params.json"), "w") as file:
            json.dump(trial.config, file, default=repr, indent=1)

    def encode(self, trial: str, results: list[Mapping[str, Any]], is_new: bool) -> bytes:
        return "".join(_ENCODE(result) + "\n" for result in results).encode()


_ENCODE = json.JSONEncoder(default=repr).encode


class CSVLoggerCallback(TrialFileLogger):
    """`progress.csv`; its columns are the keys of the first result."""

    file_name = "progress.csv"

    def __init__(self) -> None:
        super().__init__()
        self._columns: dict[str, list[str]] = {}

    def encode(self, trial: str, results: list[Mapping[str, Any]], is_new: bool) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        rows = [flatten(result) for result in results]
        if is_new or trial not in self._columns:
            self._columns[trial] = list(rows[0])
        columns = self._columns[trial]
        if is_new:
            writer.writerow(columns)
        writer.writerows([[row.get(column, "") for column in columns] for row in rows])
        return text.getvalue().encode()

    def forget(self, trial: str) -> None:
        self._columns.pop(trial, None)
