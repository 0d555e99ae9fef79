"""Figure 8a: tasks placed by where their input lies, beside tasks placed without a look at it.

Two nodes; each task takes one object that lies on one of them. A driver that has no CPUs of its own submits them one at
a time. Without locality a task is sent to a node drawn at random.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from reproduction import Outcome, Row, run

COUNTS = {100_000: 250, 1 << 20: 250, 10_000_000: 100, 100_000_000: 40}
"""Tasks of each size of input."""
SHORT_COUNTS = {100_000: 6, 10_000_000: 6}


def latencies(side: Any, size: int, count: int, aware: bool) -> list[float]:
    """Seconds of each task, from its submission to its result; every input is a new object."""
    weft, draw = side.rt, random.Random(size)

    @weft.remote
    def make(count: int) -> Any:
        import numpy

        return numpy.ones(count, numpy.uint8)

    @weft.remote
    def length(array: Any) -> int:
        return len(array)

    weft.get([length.options(**side.on(node)).remote(b"x") for node in (0, 1)])
    taken = []
    for _ in range(count):
        there = {**side.on(draw.randrange(2)), "num_cpus": 0}  # it must not hold the CPU that its reader needs
        ref = make.options(**there).remote(size)
        weft.wait([ref], fetch_local=False)
        task = length if aware else length.options(**side.on(draw.randrange(2)))
        began = time.perf_counter()
        assert weft.get(task.remote(ref), timeout=120) == size
        taken.append(time.perf_counter() - began)
    return taken


def measure(short: bool) -> Outcome:
    from cluster import Side
    from weft.demos import chart

    side, counts = Side("weft"), SHORT_COUNTS if short else COUNTS
    means: dict[str, list[tuple[float, float]]] = {"by locality": [], "at random": []}
    with side.cluster(2):
        for size, count in counts.items():
            for name, aware in (("by locality", True), ("at random", False)):
                means[name].append((size, statistics.fmean(latencies(side, size, count, aware))))
    rows = []
    for (size, near), (_, drawn) in zip(means["by locality"], means["at random"], strict=True):
        paper = "at random 10 to 100 times slower" if size >= 10_000_000 else "curve only"
        ours = f"{near * 1e3:.2f} ms by locality, {drawn * 1e3:.2f} ms at random: {drawn / near:.1f} times slower"
        rows.append(Row(f"inputs of {size / 1e6:.3g} MB", paper, ours))
    shown = {name: [(size, seconds * 1e3) for size, seconds in points] for name, points in means.items()}
    return Outcome(
        "Figure 8a",
        "Locality-aware placement",
        rows,
        "the paper: two machines and their network, 1,000 tasks; here: two node daemons of one machine, linked over "
        f"loopback, {min(counts.values())} to {max(counts.values())} tasks one at a time. Half of the tasks placed at "
        "random find their input where they are. Weft looks where inputs of 1 MiB and more are.",
        [chart.lines(shown, "Mean time of a task", "bytes of its input", "milliseconds", log_x=True, log_y=True)],
    )


if __name__ == "__main__":
    run("locality", measure)
