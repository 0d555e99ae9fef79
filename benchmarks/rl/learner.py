"""Is IMPALA's learner ever idle while samples wait? Measured from outside, update by update.

    python benchmarks/rl/learner.py --seconds 20 --workers 2

What is counted, for each update:

there     a whole batch of fragments lies in the driver's queue
taken     the driver takes it out, to stack it and to hand it to JAX
begun     JAX has it
ended     a thread that waits for nothing else sees its result

The learner is *idle* from an update's end to the next one's begin. That has three parts: *without samples*, before the
next batch was there, so that workers are what training waits for; *with samples*, from there until the batch is taken,
in which the driver did something else; *handing over*, from there until it is begun, which is the update's own cost.
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
    """Notes the four times of each update."""

    def build(self) -> None:
        super().build()
        self._queue = Noted(self.config.fragments_per_update)
        self.updates: list[list[float]] = []  # [there, taken, begun, ended]
        self._to_watch: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        update = self._update

        def noted(learner: Any, batch: Any) -> Any:
            given = update(learner, batch)
            self.updates[-1][2] = time.perf_counter()
            return given

        self._update = noted

    def _begin(self) -> Any:
        assert isinstance(self._queue, Noted)
        self.updates.append([self._queue.since, time.perf_counter(), 0.0, 0.0])
        begun = super()._begin()
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
            self.updates[index][3] = time.perf_counter()


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
    print(f"{len(updates) / seconds:,.0f} updates/s, {result['timesteps_total']:,} steps; {report(updates, seconds)}")


def report(updates: list[list[float]], seconds: float) -> str:
    parts = {"without samples": 0.0, "with samples": 0.0, "handing over": 0.0}
    late = 0
    for (_, _, _, ended), (there, taken, begun, _) in itertools.pairwise(updates):
        times = [ended, *(max(ended, time) for time in (there, taken, begun))]
        spans = [after - before for before, after in itertools.pairwise(times)]
        parts = {name: total + span for (name, total), span in zip(parts.items(), spans, strict=True)}
        late += spans[1] > 0
    each = ", ".join(
        f"{name} {total / seconds:.2%} ({total / len(updates) * 1e6:.0f} µs an update)" for name, total in parts.items()
    )
    return (
        f"idle {sum(parts.values()) / seconds:.1%}: {each}; {late / len(updates):.0%} of the updates were taken after "
        "the last had ended though their batch was there"
    )


if __name__ == "__main__":
    main()
