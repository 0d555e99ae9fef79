"""One line at a terminal or in a notebook while an algorithm compiles and learns; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.util.progress_bar import StatusLine, is_wanted


class ProgressLine:
    """How far `learn` is."""

    def __init__(self, name: str, total: int, shows_progress: bool) -> None:
        self._total = total
        self._line = StatusLine(name=name) if shows_progress and is_wanted() else None

    def progress(self, steps: int, reward: float) -> None:
        share = min(1.0, steps / self._total) if self._total else 1.0
        if self._line is not None:
            self._line.show(f"{share:4.0%} of {self._total:,} steps, mean reward {reward:.4g}")

    def close(self) -> None:
        if self._line is not None:
            self._line.leave()


@contextmanager
def compiling(name: str, is_first: bool) -> Iterator[None]:
    """Say that the first iteration compiles, and nothing afterwards."""
    if not is_first or not is_wanted():
        yield
        return
    line = StatusLine(name=name)
    line.show("compiling the first update…")
    try:
        yield
    finally:
        line.wipe()
