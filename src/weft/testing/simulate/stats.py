"""What is counted while a simulation runs: tasks, latencies, balance."""

from __future__ import annotations

import math


class Latencies:
    """A histogram with buckets of a tenth of their size."""

    _GROWTH = math.log(1.1)

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def add(self, seconds: float, count: int) -> None:
        bucket = int(math.log(max(seconds, 1e-9)) / self._GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += count

    def percentile(self, share: float) -> float:
        left = share * self.count
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return math.exp((bucket + 0.5) * self._GROWTH)
        return 0.0


class Stats:
    """Counters of a whole cluster."""

    def __init__(self) -> None:
        self.submitted = 0
        self.done = 0
        self.failed = 0
        self.waits = 0
        """Programs that wait for something now."""
        self.objects_lost = 0
        self.relayed = 0
        """Records between processes of one node that had no ring."""
        self.latencies = Latencies()

    def finished(self, latency_s: float, count: int, failed: bool) -> None:
        self.done += count
        if failed:
            self.failed += count
        else:
            self.latencies.add(latency_s, count)
