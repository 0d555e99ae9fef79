"""One line at the terminal while a trainer runs; nothing in a pipe.

my_run: 4 workers, report 12, loss=0.53, 8.3 s
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

__all__ = ["ProgressLine"]

REDRAW_S = 0.2
MOST_METRICS = 4


class ProgressLine:
    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stderr
        self._shown = self._out.isatty()
        self._name = name
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._text = ""

    def update(self, workers: int, reports: int, metrics: Mapping[str, Any]) -> None:
        numbers = [f"{key}={value:.4g}" for key, value in metrics.items() if isinstance(value, int | float)]
        parts = [f"{workers} workers", f"report {reports}", *numbers[:MOST_METRICS]]
        self._text = f"{self._name}: {', '.join(parts)}"
        if time.monotonic() - self._drawn_at > REDRAW_S:
            self._draw()

    def close(self) -> None:
        self._draw()
        if self._shown and self._text:
            self._out.write("\n")
            self._out.flush()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        if self._shown and self._text:
            self._out.write(f"\r\x1b[K{self._text}, {self._drawn_at - self._began:.1f} s")
            self._out.flush()
