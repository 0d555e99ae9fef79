"""`weft.map` beside `multiprocessing.Pool.map` and `ProcessPoolExecutor.map` over a million numbers.

    python benchmarks/mapping.py
    python benchmarks/mapping.py --count 100000 --rounds 7

Workers are up before the clock starts. The contenders take turns in one run and a figure is the median of the rounds,
so that a machine that is busy with other things slows all of them down. `ProcessPoolExecutor` sends each number on its
own unless it is told a chunk size, as `weft.map` need not be: it is shown both ways, the slow one on fewer numbers (*).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import weft

CHUNK = 10_000
FEWER = 50


def double(x: int) -> int:
    return 2 * x


def seconds(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="numbers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpus", type=int, default=2)
    asked = parser.parse_args()
    numbers = list(range(asked.count))
    fewer = numbers[: max(1, asked.count // FEWER)]
    with (
        get_context("spawn").Pool(asked.cpus) as pool,
        ProcessPoolExecutor(asked.cpus, get_context("spawn")) as executor,
        weft.init(num_cpus=asked.cpus),
    ):
        runs: dict[str, tuple[Callable[[], list[int]], int]] = {
            "weft.map": (lambda: list(weft.map(double, numbers)), asked.count),
            "weft.map, order=False": (lambda: list(weft.map(double, numbers, order=False)), asked.count),
            "multiprocessing.Pool.map": (lambda: pool.map(double, numbers), asked.count),
            f"ProcessPoolExecutor.map, chunksize={CHUNK}": (
                lambda: list(executor.map(double, numbers, chunksize=CHUNK)),
                asked.count,
            ),
            "ProcessPoolExecutor.map *": (lambda: list(executor.map(double, fewer)), len(fewer)),
        }
        for run, _ in runs.values():
            run()
        took: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(asked.rounds):
            for name, (run, count) in runs.items():
                took[name].append(seconds(run) / count)
    ours = statistics.median(took["weft.map"])
    print(f"{asked.count:,} numbers, {asked.cpus} CPUs, median of {asked.rounds} rounds")
    for name, figures in took.items():
        item_s = statistics.median(figures)
        print(f"{name:48} {item_s * 1e9:9,.0f} ns a number  {item_s / ours:8.2f} times weft.map's time")


if __name__ == "__main__":
    main()
