"""A training on the dashboard's page: its workers, metrics and checkpoints. Runs in the process that calls `fit`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weft.library.board import Board, Curve, plain

__all__ = ["TrainBoard"]

MOST_METRICS = 24
MOST_CHECKPOINTS = 50


class TrainBoard:
    """Publishes now and then, and at the end."""

    def __init__(self, name: str, backend: str, path: str) -> None:
        self._board = Board("train", name)
        self._backend, self._path = backend, path
        self._began_s = time.time()
        self._workers: list[dict[str, Any]] = []
        self._curves: dict[str, Curve] = {}
        self._checkpoints: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self._reports = self._generations = 0

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
                self._curves.setdefault(key, Curve()).add(self._reports, float(value))
        self._last = {key: plain(value) for key, value in list(metrics.items())[:MOST_METRICS]}
        if checkpoint is not None:
            self._checkpoints.append({"name": checkpoint, "time_s": time.time(), "report": self._reports})
        self._checkpoints = [one for one in self._checkpoints if one["name"] in kept][-MOST_CHECKPOINTS:]
        if self._board.is_due():
            self._publish("running")

    def ended(self, error: BaseException | None) -> None:
        self._publish("finished" if error is None else "failed", "" if error is None else repr(error)[:1000])

    def _publish(self, state: str, error: str = "") -> None:
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
        self._board.show(shown)
