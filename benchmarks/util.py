"""Weft's pool and executor beside the standard library's: 10,000 calls of a function that adds one.

    python benchmarks/util.py
    python benchmarks/util.py --calls 1000 --processes 4 --rounds 3

Both sides map the same function over the same range with the same chunk size; workers are up and the function is known
before the clock starts. A figure is the best of the rounds, which alternate between the two sides. "default" is the
chunk size that a pool chooses by itself; 1 is one task a call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import weft
from weft.util import Executor
from weft.util.multiprocessing import Pool

SHORTEST_S = 1.0
"""Short cases are repeated for so long."""
CHUNK_SIZES = (None, 100, 10, 1)


def add_one(x: int) -> int:
    return x + 1


def seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def best(runs: tuple[Callable[[], Any], Callable[[], Any]], rounds: int) -> tuple[float, float]:
    pairs = []
    began = time.perf_counter()
    while len(pairs) <= rounds or time.perf_counter() - began < SHORTEST_S:
        pairs.append((seconds(runs[0]), seconds(runs[1])))
    return min(first for first, _ in pairs[1:]), min(second for _, second in pairs[1:])


def report(what: str, theirs_s: float, ours_s: float) -> None:
    print(f"{what:34}{theirs_s * 1e3:>12.2f}{ours_s * 1e3:>12.2f}{theirs_s / ours_s:>9.1f}×", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    items = range(args.calls)

    print(f"{args.calls:,} calls, {args.processes} processes: milliseconds")
    print(f"{'':34}{'standard':>12}{'Weft':>12}{'ratio':>10}")
    theirs = multiprocessing.Pool(args.processes)
    weft.init(num_cpus=args.processes)
    ours = Pool(args.processes)
    for size in CHUNK_SIZES:
        runs = (lambda size=size: theirs.map(add_one, items, size)), (lambda size=size: ours.map(add_one, items, size))
        report(f"Pool.map, chunksize {size or 'default'}", *best(runs, args.rounds))
    runs = (lambda: list(theirs.imap_unordered(add_one, items))), (lambda: list(ours.imap_unordered(add_one, items)))
    report("Pool.imap_unordered", *best(runs, args.rounds))
    runs = tuple(lambda pool=pool: [pool.apply(add_one, (1,)) for _ in range(1_000)] for pool in (theirs, ours))  # type: ignore[misc]
    report("Pool.apply, 1,000 in turn", *best(runs, args.rounds))
    runs = tuple(  # type: ignore[misc]
        lambda pool=pool: [result.get() for result in [pool.apply_async(add_one, (i,)) for i in items]]
        for pool in (theirs, ours)
    )
    report("Pool.apply_async", *best(runs, args.rounds))
    theirs.terminate()
    ours.terminate()
    ours.join()

    with ProcessPoolExecutor(args.processes) as their_executor, Executor() as our_executor:
        runs = tuple(  # type: ignore[misc]
            lambda executor=executor: [future.result() for future in [executor.submit(add_one, i) for i in items]]
            for executor in (their_executor, our_executor)
        )
        report("Executor.submit", *best(runs, args.rounds))
    task = weft.remote(add_one)
    spent = min(seconds(lambda: weft.get([task.remote(i) for i in items])) for _ in range(args.rounds))
    print(f"{'the engine, one task a call':34}{'':12}{spent * 1e3:>12.2f}")
    weft.shutdown()


if __name__ == "__main__":
    main()
