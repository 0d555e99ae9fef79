"""Lines on stderr while a dataset runs: of each stage its tasks, rows, rows per second and bytes, and what waits."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from weft.data.statistics import Statistics
from weft.library.pace import Pace

TOLD_EVERY_S = 0.5
_file: TextIO | None = None


def show_progress(enabled: bool = True, *, file: TextIO | None = None) -> None:
    """From now on tell in this process what datasets do while they run, on `file` (stderr), twice a second.

    >>> data.show_progress()
    """
    global _file
    _file = (file or sys.stderr) if enabled else None


class Progress:
    """Of one execution."""

    def __init__(self) -> None:
        self._pace = Pace(TOLD_EVERY_S, after_s=TOLD_EVERY_S)

    def tell(self, statistics: Statistics) -> None:
        if _file is not None and self._pace.is_due():
            _file.write("".join(f"{line}\n" for line in lines(statistics, time.perf_counter())))
            _file.flush()


def lines(statistics: Statistics, now: float) -> list[str]:
    took = max(1e-9, now - statistics.begun)
    made = [
        f"{name[:60]}: {stage.tasks} tasks, {stage.rows:,} rows, {stage.rows / took:,.0f} rows/s, "
        f"{stage.size_bytes / 2**20:,.0f} MiB"
        for name, stage in statistics.stages.items()
    ]
    made.append(
        f"{took:.1f} s; {statistics.running} tasks under way, {statistics.held_bytes / 2**20:,.0f} MiB wait to be taken"
    )
    return made
