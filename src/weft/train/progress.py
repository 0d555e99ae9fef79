"""One line at a terminal or in a notebook while a trainer runs; nothing in a pipe.

my_run: 4 workers, report 12, loss=0.53, 8.3 s
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TextIO

from weft.util.progress_bar import StatusLine, is_wanted

__all__ = ["ProgressLine"]

REDRAW_S = 0.2
MOST_METRICS = 4


class ProgressLine:
    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self._line = StatusLine(out, name) if is_wanted(out) else None
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._text = ""

    def update(self, workers: int, reports: int, metrics: Mapping[str, Any]) -> None:
        numbers = [f"{key}={value:.4g}" for key, value in metrics.items() if isinstance(value, int | float)]
        self._text = ", ".join([f"{workers} workers", f"report {reports}", *numbers[:MOST_METRICS]])
        if time.monotonic() - self._drawn_at > REDRAW_S:
            self._draw()

    def close(self) -> None:
        self._draw()
        if self._line is not None:
            self._line.leave()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        if self._line is not None and self._text:
            self._line.show(f"{self._text}, {self._drawn_at - self._began:.1f} s")
