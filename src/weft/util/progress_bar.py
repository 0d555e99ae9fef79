"""A bar on stderr while many refs become ready.

>>> @weft.remote
... def double(x):
...     return 2 * x
>>> [value for value in progress([double.remote(i) for i in range(3)])]
[0, 2, 4]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import weft

__all__ = ["progress"]

WIDTH = 30
REDRAW_S = 0.1


def progress(
    refs: Iterable[Any],
    *,
    label: str = "",
    ordered: bool = True,
    total: int | None = None,
    file: TextIO | None = None,
    force: bool = False,
) -> Iterator[Any]:
    """The values of the refs, in order or, unless `ordered`, as they come, while a bar shows how many are ready.

    Quiet where `file` (stderr) is no terminal, unless `force`. `refs` may be a generator task's stream; then `total`
    can say how many there will be. What a task raised is raised when its turn comes.

    >>> double = weft.remote(lambda x: 2 * x)
    >>> list(progress([double.remote(x) for x in range(3)], label="doubling"))
    [0, 2, 4]
    """
    known = None if hasattr(refs, "completed") else list(refs)
    shown = file or sys.stderr
    bar = _Bar(label, len(known) if known is not None else total, shown, force or shown.isatty())
    if known is None:
        return _stream(refs, bar)
    return _in_order(known, bar) if ordered else _as_they_come(known, bar)


def _in_order(refs: list[Any], bar: _Bar) -> Iterator[Any]:
    pending = refs
    try:
        for ref in refs:
            while not ref.is_ready():
                bar.done = len(refs) - len(pending)
                bar.draw()
                _, pending = _wait(pending, ref)
            bar.done = max(bar.done, len(refs) - len(pending))
            bar.draw()
            yield weft.get(ref)
        bar.done = len(refs)
    finally:
        bar.close()


def _wait(pending: list[Any], wanted: Any) -> tuple[list[Any], list[Any]]:
    """A redraw's time, or less when the wanted ref is ready earlier; what is ready of all."""
    weft.wait([wanted], timeout=REDRAW_S, fetch_local=False)
    return weft.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)


def _as_they_come(pending: list[Any], bar: _Bar) -> Iterator[Any]:
    total = len(pending)
    try:
        while pending:
            ready, pending = weft.wait(pending, num_returns=1, timeout=REDRAW_S, fetch_local=False)
            if ready:
                more, pending = weft.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
                ready += more
            bar.done = total - len(pending)
            bar.draw()
            for ref in ready:
                yield weft.get(ref)
    finally:
        bar.close()


def _stream(refs: Iterable[Any], bar: _Bar) -> Iterator[Any]:
    try:
        for ref in refs:
            bar.done += 1
            bar.draw()
            yield weft.get(ref)
    finally:
        bar.close()


class _Bar:
    """label  45%|█████████░░░░| 45/100 [00:03<00:04, 13.9/s]"""

    def __init__(self, label: str, total: int | None, file: TextIO, is_shown: bool) -> None:
        self.done = 0
        self._label = f"{label}: " if label else ""
        self._total = total
        self._file = file
        self._is_shown = is_shown
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._length = 0

    def draw(self) -> None:
        if self._is_shown and time.monotonic() - self._drawn_s >= REDRAW_S:
            self._write()

    def close(self) -> None:
        """Leave the last state on its line."""
        if self._is_shown:
            self._write()
            self._file.write("\n")
            self._file.flush()
            self._is_shown = False

    def _write(self) -> None:
        self._drawn_s = time.monotonic()
        line = self._label + self._text(self._drawn_s - self._began_s)
        self._file.write("\r" + line.ljust(self._length))
        self._file.flush()
        self._length = len(line)

    def _text(self, elapsed_s: float) -> str:
        rate = self.done / elapsed_s if elapsed_s > 0 else 0.0
        if self._total is None:
            return f"{self.done} [{_clock(elapsed_s)}, {rate:.1f}/s]"
        part = self.done / self._total if self._total else 1.0
        filled = int(part * WIDTH)
        left = _clock((self._total - self.done) / rate) if rate else "?"
        bar = "█" * filled + "░" * (WIDTH - filled)
        return f"{part:4.0%}|{bar}| {self.done}/{self._total} [{_clock(elapsed_s)}<{left}, {rate:.1f}/s]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
