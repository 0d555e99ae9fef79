"""What a dataset does while it runs, on the dashboard's page: its operators, rows a second, memory.

Only of executions that take longer than `AFTER_S`; the page keeps the last `MOST_SHOWN` of a process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import deque
from typing import Any

import weft
from weft.data.statistics import Statistics
from weft.util import board

PAGE = "data"
AFTER_S = 1.0
PUBLISH_S = 2.0
MOST_SHOWN = 8
_numbers = itertools.count(1)
_shown: deque[str] = deque()
"""The boards of this process, oldest first."""


class DataBoard:
    """Of one execution."""

    def __init__(self, budget_bytes: int = 0) -> None:
        self._budget_bytes = budget_bytes
        self._next_s = time.perf_counter() + AFTER_S
        self._name = ""
        self._rate, self._held = board.Curve(), board.Curve()
        self._last = (0.0, 0)

    def tell(self, statistics: Statistics) -> None:
        """Called often: publishes once in `PUBLISH_S`."""
        now = time.perf_counter()
        if now < self._next_s:
            return
        self._next_s = now + PUBLISH_S
        self._publish(statistics, now, "running")

    def end(self, statistics: Statistics) -> None:
        if self._name:
            self._publish(statistics, time.perf_counter(), "finished")

    def _publish(self, statistics: Statistics, now: float, state: str) -> None:
        took = max(1e-9, now - statistics.begun)
        rows = list(statistics.stages.values())[-1].rows if statistics.stages else 0
        before_s, before_rows = self._last
        self._last = (took, rows)
        self._rate.add(took, max(0, rows - before_rows) / max(took - before_s, 1e-9))
        self._held.add(took, float(statistics.held_bytes))
        with contextlib.suppress(weft.exceptions.WeftError, ValueError):  # a busy node: the next one comes soon
            if not self._name:
                self._name = f"dataset {next(_numbers)} (pid {os.getpid()})"
                make_room(self._name)
            board.publish(PAGE, self._name, self._described(statistics, took, state))

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


def make_room(name: str) -> None:
    """For one board more; the oldest go."""
    _shown.append(name)
    while len(_shown) > MOST_SHOWN:
        board.withdraw(PAGE, _shown.popleft())
