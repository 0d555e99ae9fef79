"""How many requests a replica has answered, and how long the last ones took. Pure.

>>> latencies = Latencies()
>>> for took_s in (0.1, 0.2, 0.3):
...     latencies.add(took_s)
>>> figures = latencies.figures()
>>> figures.served, figures.p50_s
(3, 0.2)
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

KEPT = 512
RECENT = 100


@dataclass(frozen=True)
class Figures:
    served: int
    failed: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None

    def row(self) -> dict[str, Any]:
        return asdict(self)


class Latencies:
    """Of the last `KEPT` requests."""

    def __init__(self) -> None:
        self._served = 0
        self.failed = 0
        """Of them, those that the user's code has raised in."""
        self._took_s: deque[float] = deque(maxlen=KEPT)

    def add(self, took_s: float) -> None:
        self._served += 1
        self._took_s.append(took_s)

    @property
    def served(self) -> int:
        return self._served

    def recent_s(self) -> float | None:
        """The 95th percentile of the last few."""
        known = sorted(list(self._took_s)[-RECENT:])
        return known[min(len(known) - 1, int(len(known) * 0.95))] if known else None

    def figures(self) -> Figures:
        known = sorted(self._took_s)
        p50, p95, p99 = (known[min(len(known) - 1, int(len(known) * share))] if known else None for share in _SHARES)
        return Figures(self._served, self.failed, p50, p95, p99)


_SHARES = (0.5, 0.95, 0.99)
