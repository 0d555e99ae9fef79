"""What `isna` of 5 million rows × 19 columns is bound by: reading memory, or making memory for the result?

    python benchmarks/pandas_limits.py [--rows 5000000] [--rounds 9]

NumPy's `isnan` over the same numbers: into memory that is there already, and into new memory, which the kernel has to
find and clear page by page; in one process, and in two that take half each. No engine can be faster on two cores than
two processes with memory that is there. The best of the rounds, by the clock.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pandas_turns


def made(rows: int) -> tuple[Any, Any]:
    """Numbers, and a place for what is made of them."""
    values = np.random.default_rng(0).normal(size=(pandas_turns.COLUMNS, rows))
    return values, np.zeros(values.shape, bool)


def one(values: Any, place: Any) -> float:
    start = time.perf_counter()
    np.isnan(values, out=place)
    return time.perf_counter() - start


def _serve(pipe: Connection, rows: int) -> None:
    values, place = made(rows)
    while True:
        pipe.send(None)
        is_new = pipe.recv()
        if is_new is None:
            return
        one(values, None if is_new else place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    pairs = [multiprocessing.Pipe() for _ in range(2)]
    halves = [multiprocessing.Process(target=_serve, args=(theirs, options.rows // 2)) for _, theirs in pairs]
    for half in halves:
        half.start()
    pipes = [ours for ours, _ in pairs]

    def both(is_new: bool) -> float:
        start = time.perf_counter()
        for pipe in pipes:
            pipe.send(is_new)
        for pipe in pipes:
            pipe.recv()
        return time.perf_counter() - start

    for pipe in pipes:
        pipe.recv()
    values, place = made(options.rows)
    print("| isnan | one process, ms | two processes, ms |\n|---|---|---|")
    for name, is_new in (("into memory that is there", False), ("into new memory", True)):
        turns = [(one(values, None if is_new else place), both(is_new)) for _ in range(options.rounds)]
        print(f"| {name} | {min(turn[0] for turn in turns) * 1e3:.0f} | {min(turn[1] for turn in turns) * 1e3:.0f} |")
    for pipe in pipes:
        pipe.send(None)
    for half in halves:
        half.join()


if __name__ == "__main__":
    main()
