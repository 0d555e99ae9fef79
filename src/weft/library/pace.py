"""How often something is told that changes all the time."""

from __future__ import annotations

import time

__all__ = ["Pace"]


class Pace:
    """Due at most once in `every_s`, for the first time after `after_s`.

    >>> pace = Pace(every_s=60)
    >>> pace.is_due(), pace.is_due()
    (True, False)
    """

    def __init__(self, every_s: float, after_s: float = 0.0) -> None:
        self._every_s = every_s
        self._next_s = time.monotonic() + after_s

    def is_due(self) -> bool:
        """Whether it is time; when it is, the next time is set."""
        if time.monotonic() < self._next_s:
            return False
        self.restart()
        return True

    def restart(self) -> None:
        """As if it had been due now."""
        self._next_s = time.monotonic() + self._every_s
