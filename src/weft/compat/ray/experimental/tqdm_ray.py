"""`ray.experimental.tqdm_ray` of Ray 2.60: progress of what tasks and actors do, shown by the driver.

In a driver it is a bar on stderr. In a worker it is a line of output, at most one per `flush_interval_s`, which the
driver prints as it does all that workers print.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from weft.engine.process.session.context_state import state
from weft.terminal.bar import Bar
from weft.terminal.status_line import is_wanted

__all__ = ["instance", "safe_print", "tqdm"]

safe_print = print


class tqdm:
    """Counts what is done of `total`, or of the iterable.

    >>> list(tqdm([1, 2, 3], desc="counting"))
    [1, 2, 3]
    """

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float | None = None,
    ) -> None:
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        self.total = total
        self.n = 0
        self._iterable = iterable
        self._desc = desc or ""
        self._interval_s = 1.0 if flush_interval_s is None else flush_interval_s
        self._shown_s = time.monotonic()
        self._shown = -1
        self._bar = None if state.is_worker else Bar(self._desc, total, is_wanted())

    def set_description(self, desc: str) -> None:
        """What stands before the count, in the next line."""
        self._desc = desc
        self.refresh()

    def update(self, n: int = 1) -> None:
        """So many more are done."""
        self.n += n
        self.refresh()

    def refresh(self) -> None:
        """Show it, unless it was shown just now."""
        if self._bar is not None:
            self._bar.done = self.n
            self._bar.draw()
        elif time.monotonic() - self._shown_s >= self._interval_s:
            self._print()

    def close(self) -> None:
        """Show how far it has come."""
        if self._bar is not None:
            self._bar.done = self.n
            self._bar.close()
        elif self._shown != self.n:
            self._print()

    def _print(self) -> None:
        self._shown_s, self._shown = time.monotonic(), self.n
        of = "" if self.total is None else f"/{self.total}"
        print(f"{self._desc or 'progress'}: {self.n}{of}", flush=True)

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise ValueError("No iterable provided")
        for item in self._iterable:
            yield item
            self.update()
        self.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Bars:
    """All bars of this process, for programs that hide them while they print: Weft does that by itself."""

    def hide_bars(self) -> None:
        """Without effect."""

    def unhide_bars(self) -> None:
        """Without effect."""


_bars = _Bars()


def instance() -> _Bars:
    """The bars of this process."""
    return _bars
