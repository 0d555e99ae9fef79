"""What the reporting callbacks of boosting libraries share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import weft.train
from weft.compat.ray.train.session import report
from weft.train import Checkpoint


class Reporting:
    """Reports rounds. The last round's report waits until it is known whether the model goes with it."""

    def __init__(self, metrics: Any, frequency: int, at_end: bool, postprocess: Callable[[Any], Any] | None) -> None:
        self._names = [metrics] if isinstance(metrics, str) else metrics
        self._frequency, self._at_end, self._postprocess = frequency, at_end, postprocess
        self._last: dict[str, Any] = {}
        self._is_saved = False

    def round_ended(self, number: int, found: dict[str, Any], save: Callable[[str], None]) -> None:
        """Report it, with the model when it is time."""
        self._last = self._chosen(found)
        self._is_saved = bool(self._frequency) and (number + 1) % self._frequency == 0
        self._report(save if self._is_saved else None)

    def ended(self, save: Callable[[str], None]) -> None:
        """The last model, unless it was reported."""
        if self._at_end and not self._is_saved:
            self._report(save)

    def _chosen(self, found: dict[str, Any]) -> dict[str, Any]:
        if self._names:
            pairs = self._names.items() if isinstance(self._names, dict) else ((name, name) for name in self._names)
            found = {shown: found[name] for shown, name in pairs}
        return self._postprocess(found) if self._postprocess else found

    def _report(self, save: Callable[[str], None] | None) -> None:
        if save is None or weft.train.get_context().rank != 0:
            report(self._last)
            return
        with tempfile.TemporaryDirectory() as folder:
            save(folder)
            report(self._last, checkpoint=Checkpoint.from_directory(folder))
