"""Is IMPALA's learner ever idle while samples wait? Measured from outside, update by update.

    python benchmarks/rl/learner.py --seconds 20 --workers 2

An update begins when the driver hands it to JAX and ends when a thread that waits for nothing else sees its result. The
learner is idle from an update's end to the next one's begin; *with samples* is the part of that in which a whole batch
of fragments lay in the driver's queue, *without* the rest, in which workers are what training waits for.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import queue
import threading
import time
from typing import Any

import jax

from weft.rl.algorithms.impala import Impala


class Noted(collections.deque[Any]):
    """The learner's queue, which knows since when it has held a batch."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batch = batch
        self.since = 0.0

    def append(self, fragment: Any) -> None:
        super().append(fragment)
        if len(self) == self._batch:
            self.since = time.perf_counter()

    def popleft(self) -> Any:
        fragment = super().popleft()
        if len(self) >= self._batch:
            self.since = time.perf_counter()  # the next batch is there already
        return fragment


class Measured(Impala):
    """Notes when each update begins and ends, and since when its batch was there."""

    def build(self) -> None:
        super().build()
        self._queue = Noted(self.config.fragments_per_update)
        self.updates: list[list[float]] = []  # [batch there since, begin, end]
        self._to_watch: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _begin(self) -> Any:
        assert isinstance(self._queue, Noted)
        since = self._queue.since
        begun = super()._begin()
        self.updates.append([since, time.perf_counter(), 0.0])
        self._to_watch.put((len(self.updates) - 1, begun[0].weights))
        return begun

    def stop(self) -> None:
        self._to_watch.put(None)
        self._watcher.join()
        super().stop()

    def _watch(self) -> None:
        while (watched := self._to_watch.get()) is not None:
            index, weights = watched
            jax.block_until_ready(weights)
            self.updates[index][2] = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64, help="units of both layers; more make the learner slower")
    options = parser.parse_args()
    hidden = (options.hidden, options.hidden)
    with Measured(env="CartPole-v1", workers=options.workers, hidden=hidden, seed=1) as algorithm:
        algorithm.train()  # compiles
        first = len(algorithm.updates)
        began = time.perf_counter()
        while time.perf_counter() - began < options.seconds:
            result = algorithm.train()
        seconds = time.perf_counter() - began
    updates = algorithm.updates[first:]
    idle = with_samples = 0.0
    late = 0
    for (_, _, ended), (since, next_began, _) in itertools.pairwise(updates):
        idle += max(0.0, next_began - ended)
        waited = max(0.0, next_began - max(ended, since))
        with_samples += waited
        late += waited > 0
    count = len(updates)
    print(
        f"{count / seconds:,.0f} updates/s, {result['timesteps_total']:,} steps; idle {idle / seconds:.1%} ; "
        f"with samples {with_samples / seconds:.2%} ({with_samples / count * 1e6:.0f} µs an update; {late / count:.0%} "
        f"of the updates began after the last had ended though their batch was there)"
    )


if __name__ == "__main__":
    main()
