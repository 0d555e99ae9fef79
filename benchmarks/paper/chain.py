"""Figure 10a: what a client of the control store sees while a replica of its chain dies and another joins.

A chain of two replicas, keys of 25 bytes, values of 512, one request under way at a time, as in the paper.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from reproduction import Outcome, Row, run

VALUE = b"x" * 512
Points = list[tuple[float, float]]


def watch(store: Any, seconds: float, kill_at_s: float) -> tuple[Points, Points]:
    """(when, seconds) of each write and each read; on the way a replica is killed and a new one added."""
    from weft.store.state.chain_rows import Put

    tail, joining = store.wait_whole(2).tail.server, None
    writes, reads, index = [], [], 0
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        if joining is None and now > kill_at_s:
            store.servers.pop(tail).kill()
            joining = store.start_server()
        key = b"key-%021d" % (index % 1000)
        index += 1
        started = time.perf_counter()
        store.client.write([Put("kv", key, VALUE)])
        written = time.perf_counter()
        assert store.client.read([("kv", key)]) == [VALUE]
        writes.append((started - began, written - started))
        reads.append((written - began, time.perf_counter() - written))
    store.take(joining)
    store.wait_whole(2)
    return writes, reads


def worst(points: Points, bins: int = 120) -> Points:
    """The slowest of each slice of time, in milliseconds."""
    end = points[-1][0]
    slowest: dict[int, float] = {}
    for when, seconds in points:
        place = int(when / end * bins)
        slowest[place] = max(slowest.get(place, 0.0), seconds * 1e3)
    return [(place / bins * end, value) for place, value in sorted(slowest.items())]


def measure(short: bool) -> Outcome:
    from control import Store

    from weft.demos import chart

    rounds, length, kill_at = (1, 3.0, 1.0) if short else (7, 5.0, 2.0)
    longest: list[float] = []
    for _ in range(rounds):
        store = Store(2)
        try:
            writes, reads = watch(store, length, kill_at)
        finally:
            store.close()
        longest.append(max(seconds for _, seconds in writes + reads) * 1e3)
    waited = f"{statistics.median(longest):.0f} ms (median of {rounds} deaths), {max(longest):.0f} ms at most"
    return Outcome(
        "Figure 10a",
        "Control store: a chain is put together again",
        [Row("longest that a client waited", "under 30 ms", waited)],
        "the paper: replicas on machines of their own; here: client, replicas and the killer share one machine's "
        "cores, and the process of the new replica starts on them at the same time. The replica dies by SIGKILL.",
        [
            chart.lines(
                {"writes": worst(writes), "reads": worst(reads)},
                "Slowest call of each moment (last round)",
                "seconds",
                "milliseconds",
                log_y=True,
                marks={"killed": kill_at},
            )
        ],
    )


if __name__ == "__main__":
    run("chain", measure)
