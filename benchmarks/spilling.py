"""How long a fresh task waits for its lease while the node spills, against a node at rest and one that only copies.

    python benchmarks/spilling.py            2 GiB through an arena of 512 MiB
    python benchmarks/spilling.py --gib 8

A worker puts objects and drops them, or keeps them, so that what it put before goes to disk. Meanwhile the driver runs
empty tasks, one after the other, each of a shape that no worker is leased for: each asks the node daemon for a lease.
Prints the latencies in milliseconds and what was spilled. Not a test: disks and machines differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.engine.process.session import rpc

MIB = 1 << 20
REST_S = 3.0


@weft.remote(num_cpus=0)
def fill(gib: int, object_bytes: int, keep: bool) -> list[Any]:
    block = np.ones(object_bytes, dtype=np.uint8)
    refs = []
    for _ in range((gib << 30) // object_bytes):
        refs.append(weft.put(block))
        if not keep:
            refs.clear()
    return refs


@weft.remote
def nothing() -> None:
    pass


def is_ready(ref: Any) -> Callable[[], bool]:
    return lambda: bool(weft.wait([ref], timeout=0)[0])


def measure(shapes: itertools.count[int], until: Callable[[], bool]) -> list[float]:
    """Milliseconds from each submission to its result."""
    spent = []
    while not until():
        began = time.perf_counter()
        weft.get(nothing.options(num_cpus=next(shapes) / 10_000).remote())
        spent.append((time.perf_counter() - began) * 1000)
    return spent


def summary(spent: list[float]) -> dict[str, float]:
    ordered = sorted(spent)
    return {
        "tasks": len(ordered),
        "median_ms": round(statistics.median(ordered), 2),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)], 2),
        "max_ms": round(ordered[-1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=2, help="that are put while tasks run")
    parser.add_argument("--arena-mib", type=int, default=512)
    parser.add_argument("--object-mib", type=int, default=128)
    options = parser.parse_args()
    weft.init(num_cpus=2, object_store_memory=options.arena_mib * MIB)
    try:
        shapes = itertools.count(1)
        warm_until = time.perf_counter() + 1.0
        measure(shapes, lambda: time.perf_counter() > warm_until)
        rest_until = time.perf_counter() + REST_S
        at_rest = measure(shapes, lambda: time.perf_counter() > rest_until)
        copying = measure(shapes, is_ready(fill.remote(4 * options.gib, options.object_mib * MIB, keep=False)))
        began = time.perf_counter()
        filling = fill.remote(options.gib, options.object_mib * MIB, keep=True)
        spilling = measure(shapes, is_ready(filling))
        spent_s = time.perf_counter() - began
        spilled = rpc.request("statistics")["spilled_objects"] * options.object_mib
    finally:
        weft.shutdown()
    result = {"at rest": summary(at_rest), "while putting": summary(copying), "while spilling": summary(spilling)}
    result["spilled"] = {"mib": spilled, "seconds": round(spent_s, 2)}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
