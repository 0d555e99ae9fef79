"""Why links were not made, for the log: a few a second in full, the rest counted, so that no stranger can fill it."""

from __future__ import annotations

import sys

from weft.net.loop import Loop
from weft.net.shown import printable

IN_FULL = 10
PERIOD_S = 1.0
_LONGEST = 1000


class FailureLog:
    """Runs in the loop's thread."""

    def __init__(self, loop: Loop, who: str = "") -> None:
        """`who` says it, where it is not the node daemon."""
        self._loop = loop
        self._who = who
        self._said = 0
        self._unsaid = 0
        self._last = ""

    def say(self, reason: str) -> None:
        if self._said == 0:
            self._loop.call_later(PERIOD_S, self._next_period)
        self._said += 1
        if self._said <= IN_FULL:
            self._print(f"a link was not made: {reason}")
        else:
            self._unsaid += 1
            self._last = reason

    def _next_period(self) -> None:
        if self._unsaid:
            self._print(f"{self._unsaid} more links were not made; the last: {self._last}")
        self._said = self._unsaid = 0

    def _print(self, text: str) -> None:
        print(f"weft: {self._who}{printable(text, _LONGEST)}", file=sys.stderr, flush=True)
