"""What a dataset does while it runs, on the dashboard's page: its operators, rows per second, memory.

Only of executions that take longer than `AFTER_S`; the page keeps the last `MOST_SHOWN` of a process.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from typing import Any

from weft.data.statistics import Statistics
from weft.library.board import Board, Curve

PAGE = "data"
AFTER_S = 1.0
MOST_SHOWN = 8
_numbers = itertools.count(1)
_shown: deque[Board] = deque()
"""The boards of this process, oldest first."""


class PassingBoard(Board):
    """Of one of many executions: it is made when it is first shown, and the oldest one goes."""

    def __init__(self, kind: str) -> None:
        super().__init__(PAGE, "", AFTER_S)
        self._kind = kind

    def show(self, shown: Any) -> bool:
        if not self.name:
            self.name = f"{self._kind} {next(_numbers)} (pid {os.getpid()})"
            _shown.append(self)
            while len(_shown) > MOST_SHOWN:
                _shown.popleft().withdraw()
        return super().show(shown)


class DataBoard:
    """Of one execution."""

    def __init__(self, budget_bytes: int = 0) -> None:
        self._budget_bytes = budget_bytes
        self._board = PassingBoard("dataset")
        self._rate, self._held = Curve(), Curve()
        self._last = (0.0, 0)

    def tell(self, statistics: Statistics) -> None:
        """Called often."""
        if self._board.is_due():
            self._publish(statistics, "running")

    def end(self, statistics: Statistics) -> None:
        if self._board.name:
            self._publish(statistics, "finished")

    def _publish(self, statistics: Statistics, state: str) -> None:
        took = max(1e-9, time.perf_counter() - statistics.begun)
        rows = list(statistics.stages.values())[-1].rows if statistics.stages else 0
        before_s, before_rows = self._last
        self._last = (took, rows)
        self._rate.add(took, max(0, rows - before_rows) / max(took - before_s, 1e-9))
        self._held.add(took, float(statistics.held_bytes))
        self._board.show(self._described(statistics, took, state))

    def _described(self, statistics: Statistics, took: float, state: str) -> dict[str, Any]:
        return {
            "state": state,
            "seconds": took,
            "running": statistics.running if state == "running" else 0,
            "held_bytes": statistics.held_bytes,
            "most_held_bytes": statistics.most_held_bytes,
            "budget_bytes": self._budget_bytes,
            "operators": [
                {
                    "name": name[:200],
                    "tasks": stage.tasks,
                    "rows": stage.rows,
                    "size_bytes": stage.size_bytes,
                    "seconds": stage.seconds,
                    "rows_per_s": stage.rows / took,
                }
                for name, stage in statistics.stages.items()
            ],
            "skipped": statistics.skipped,
            "rate": self._rate.points,
            "held": self._held.points,
        }
