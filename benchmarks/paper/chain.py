"""Figure 10a: what a client of the control store sees while a replica of its chain dies and another joins.

A chain of two replicas, keys of 25 bytes, values of 512, one request under way at a time, as in the paper.
"""

from __future__ import annotations

import time
from typing import Any

from reproduction import Outcome, Row, run

VALUE = b"x" * 512


def watch(store: Any, seconds: float, kill_at_s: float) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(when, seconds) of each write and each read; on the way a replica is killed and a new one added."""
    from weft.engine.state.chain_rows import Put

    writes, reads, index, killed = [], [], 0, False
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        if not killed and now > kill_at_s:
            killed = True
            store.servers.pop(store.wait_whole(2).tail.server).kill()
            store.add_server()
        key = b"key-%021d" % (index % 1000)
        index += 1
        started = time.perf_counter()
        store.client.write([Put("kv", key, VALUE)])
        written = time.perf_counter()
        assert store.client.read([("kv", key)]) == [VALUE]
        writes.append((started - began, written - started))
        reads.append((written - began, time.perf_counter() - written))
    store.wait_whole(2)
    return writes, reads


def worst(points: list[tuple[float, float]], bins: int = 120) -> list[tuple[float, float]]:
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

    rounds, length, kill_at = (1, 3.0, 1.0) if short else (10, 10.0, 4.2)
    longest: list[float] = []
    for _ in range(rounds):
        store = Store(2)
        writes, reads = watch(store, length, kill_at)
        store.close()
        longest.append(max(seconds for _, seconds in writes + reads) * 1e3)
    ordered = sorted(longest)
    return Outcome(
        "Figure 10a",
        "Control store: a chain is put together again",
        [
            Row(
                "longest that a client waited",
                "under 30 ms",
                f"{ordered[len(ordered) // 2]:.0f} ms (median of {rounds} deaths), {ordered[-1]:.0f} ms at most",
            )
        ],
        "the paper: replicas on machines of their own; here: client, replicas and the killer share one "
        "machine's cores. "
        "The replica dies by SIGKILL; starting the new replica's process is part of the wait.",
        chart.lines(
            {"writes": worst(writes), "reads": worst(reads)},
            "Slowest call of each moment (last round)",
            "seconds",
            "milliseconds",
            log_y=True,
            marks={"killed": kill_at},
        ),
    )


if __name__ == "__main__":
    run("chain", measure)
