"""A training on the dashboard's page: its workers, metrics and checkpoints. Runs in the process that calls `fit`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import weft
from weft.util import board

__all__ = ["TrainBoard"]

PAGE = "train"
PUBLISH_S = 2.0
MOST_METRICS = 24
MOST_CHECKPOINTS = 50
_LONGEST_VALUE = 100


class TrainBoard:
    """Publishes at most once in `PUBLISH_S`, and at the end."""

    def __init__(self, name: str, backend: str, path: str) -> None:
        self._name, self._backend, self._path = name, backend, path
        self._began_s = time.time()
        self._workers: list[dict[str, Any]] = []
        self._curves: dict[str, board.Curve] = {}
        self._checkpoints: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self._reports = self._generations = 0
        self._published_s = 0.0

    def began(self, nodes: Sequence[str]) -> None:
        """The loop starts, or starts anew, in one worker on each of these nodes."""
        self._generations += 1
        self._workers = [{"rank": rank, "node_id": node} for rank, node in enumerate(nodes)]
        self._publish("running")

    def reported(self, metrics: Mapping[str, Any], checkpoint: str | None, kept: Collection[str]) -> None:
        """`kept` are the checkpoints that are still there."""
        self._reports += 1
        for key, value in metrics.items():
            has_room = key in self._curves or len(self._curves) < MOST_METRICS
            if has_room and isinstance(value, int | float) and not isinstance(value, bool):
                self._curves.setdefault(key, board.Curve()).add(self._reports, float(value))
        self._last = {key: _plain(value) for key, value in list(metrics.items())[:MOST_METRICS]}
        if checkpoint is not None:
            self._checkpoints.append({"name": checkpoint, "time_s": time.time(), "report": self._reports})
        self._checkpoints = [one for one in self._checkpoints if one["name"] in kept][-MOST_CHECKPOINTS:]
        if time.monotonic() - self._published_s >= PUBLISH_S:
            self._publish("running")

    def ended(self, error: BaseException | None) -> None:
        self._publish("finished" if error is None else "failed", "" if error is None else repr(error)[:1000])

    def _publish(self, state: str, error: str = "") -> None:
        self._published_s = time.monotonic()
        shown = {
            "state": state,
            "error": error,
            "backend": self._backend,
            "path": self._path,
            "seconds": time.time() - self._began_s,
            "workers": self._workers,
            "restarts": max(0, self._generations - 1),
            "reports": self._reports,
            "last": self._last,
            "curves": {key: curve.points for key, curve in self._curves.items()},
            "checkpoints": self._checkpoints,
        }
        with contextlib.suppress(weft.exceptions.WeftError, ValueError):  # a busy node: the next one comes soon
            board.publish(PAGE, self._name, shown)


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else str(value)[:_LONGEST_VALUE]
