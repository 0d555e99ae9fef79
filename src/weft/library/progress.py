"""One line at a terminal or in a notebook while a run goes on; nothing in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from weft.library.pace import Pace
from weft.util.progress_bar import StatusLine, is_wanted

__all__ = ["ProgressLine", "said_meanwhile"]

REDRAW_S = 0.2


class ProgressLine:
    """`my_run: 4 workers, report 12, loss=0.53, 8.3 s`: the name, what was told last, how long it takes."""

    def __init__(self, name: str, out: TextIO | None = None, *, is_shown: bool = True) -> None:
        self._line = StatusLine(out, name) if is_shown and is_wanted(out) else None
        self._pace = Pace(REDRAW_S)
        self._began_s = time.monotonic()
        self._text = ""

    def tell(self, text: str) -> None:
        self._text = text
        if self._line is not None and self._pace.is_due():
            self._draw(self._line)

    def close(self) -> None:
        """Leave what was told last."""
        if self._line is not None and self._text:
            self._draw(self._line)
            self._line.leave()

    def _draw(self, line: StatusLine) -> None:
        line.show(f"{self._text}, {time.monotonic() - self._began_s:.1f} s")


@contextmanager
def said_meanwhile(name: str, text: str, is_shown: bool) -> Iterator[None]:
    """Say it while the block runs; nothing of it is left."""
    if not is_shown or not is_wanted():
        yield
        return
    line = StatusLine(name=name)
    line.show(text)
    try:
        yield
    finally:
        line.wipe()
