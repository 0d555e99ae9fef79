"""What a front has answered: how many requests by route and status, how long they took. Pure.

Written as Prometheus reads it at `/-/metrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts of durations between fixed bounds.

    >>> histogram = Histogram()
    >>> for duration_s in (0.003, 0.003, 0.3): histogram.record(duration_s)
    >>> histogram.quantile(0.5), histogram.quantile(0.99), histogram.count
    (0.005, 0.5, 3)
    """

    __slots__ = ("count", "counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum_s = 0.0

    def record(self, duration_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.count += 1
        self.sum_s += duration_s

    def quantile(self, share: float) -> float:
        """The bound below which so large a share lies; 0 when nothing was recorded, infinity past the last bound."""
        seen = 0
        for bound, count in zip((*BOUNDS_S, float("inf")), self.counts, strict=True):
            seen += count
            if seen and seen >= share * self.count:
                return bound
        return 0.0


class Traffic:
    """By route; an empty one stands for requests that had none."""

    def __init__(self) -> None:
        self._durations: dict[str, Histogram] = {}
        self._statuses: dict[tuple[str, int], int] = {}

    def record(self, route: str, status: int, duration_s: float) -> None:
        histogram = self._durations.get(route)
        if histogram is None:
            histogram = self._durations[route] = Histogram()
        histogram.record(duration_s)
        key = (route, status)
        self._statuses[key] = self._statuses.get(key, 0) + 1

    def count(self, route: str, status: int) -> None:
        key = (route, status)
        self._statuses[key] = self._statuses.get(key, 0) + 1

    def summary(self) -> dict[str, dict[str, float]]:
        """By route: how many, and the bounds that half and 99 of 100 stayed under."""
        return {
            route: {"requests": one.count, "p50_s": one.quantile(0.5), "p99_s": one.quantile(0.99)}
            for route, one in self._durations.items()
        }

    def text(self, gauges: Iterable[tuple[str, str, float]] = ()) -> str:
        """For Prometheus; gauges are (name, deployment, value)."""
        lines = ["# TYPE weft_serve_requests_total counter"]
        lines += [
            f'weft_serve_requests_total{{route="{_quoted(route)}",status="{status}"}} {count}'
            for (route, status), count in sorted(self._statuses.items())
        ]
        lines.append("# TYPE weft_serve_request_seconds histogram")
        for route, histogram in sorted(self._durations.items()):
            lines += _histogram_lines(_quoted(route), histogram)
        named: dict[str, list[str]] = {}
        for name, deployment, value in gauges:
            named.setdefault(name, []).append(f'{name}{{deployment="{_quoted(deployment)}"}} {value:g}')
        for name, values in named.items():
            lines += [f"# TYPE {name} gauge", *values]
        return "\n".join(lines) + "\n"


def _histogram_lines(route: str, histogram: Histogram) -> list[str]:
    name, lines, seen = "weft_serve_request_seconds", [], 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), histogram.counts, strict=True):
        seen += count
        lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {seen}')
    lines.append(f'{name}_sum{{route="{route}"}} {histogram.sum_s:g}')
    lines.append(f'{name}_count{{route="{route}"}} {histogram.count}')
    return lines


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
