"""A bar of how much is done and how long the rest will take, where `status_line` finds somebody who sees it.

label:  45%|█████████████░░░░░░░░░░░░░░░░░| 45/100 [00:03<00:04, 13.9/s]
"""

from __future__ import annotations

import time
from typing import TextIO

from weft.terminal import status_line
from weft.terminal.status_line import Line

WIDTH = 30
REDRAW_S = 0.1
AFTER_S = 1.0
"""What takes less shows no bar that was not asked for."""


class Bar:
    """Of one run. `done` may be set; `redraw_s` is how long to wait at most until `draw` is called again."""

    def __init__(
        self, label: str, total: int | None, is_shown: bool, file: TextIO | None = None, after_s: float = 0.0
    ) -> None:
        self.done = 0
        self.redraw_s = REDRAW_S if is_shown else -1.0
        self._total = total
        self._line = Line(file, label)
        self._is_shown = is_shown
        self._began_s = time.monotonic()
        self._after_s = after_s
        self._next_s = self._began_s + after_s

    @classmethod
    def for_user(cls, asked: bool | str | None, total: int | None, is_worker: bool) -> Bar:
        """`asked`: True or a label for a bar at once, None for one when it takes long, False for none. Workers show
        none."""
        is_shown = asked is not False and status_line.is_wanted() and not is_worker
        return cls(asked if isinstance(asked, str) else "", total, is_shown, after_s=AFTER_S if asked is None else 0.0)

    def add(self, count: int) -> None:
        self.done += count
        if self._is_shown:
            self.draw()

    def draw(self, more: int = 0) -> None:
        """Draw it, if it was not drawn just now. `more` are done too, but not taken yet."""
        now_s = time.monotonic()
        if self._is_shown and now_s >= self._next_s:
            self._next_s = now_s + REDRAW_S
            self._line.show(self._text(now_s - self._began_s, self.done + more))

    def close(self) -> None:
        """Leave the last state on its line, unless it took too short for a bar."""
        if self._is_shown and time.monotonic() - self._began_s >= self._after_s:
            self._next_s = 0.0
            self.draw()
            self._line.leave()
        self._is_shown = False

    def _text(self, elapsed_s: float, done: int) -> str:
        rate = done / elapsed_s if elapsed_s > 0 else 0.0
        if self._total is None:
            return f"{done:,} [{_clock(elapsed_s)}, {rate:,.1f}/s]"
        part = done / self._total if self._total else 1.0
        filled = int(part * WIDTH)
        left = _clock((self._total - done) / rate) if rate else "?"
        bar = "█" * filled + "░" * (WIDTH - filled)
        return f"{part:4.0%}|{bar}| {done}/{self._total} [{_clock(elapsed_s)}<{left}, {rate:.1f}/s]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
