"""What fault tolerance costs when nothing fails: python benchmarks/fault_tolerance.py [--rounds 101].

Side by side in one process, in turns: the same tasks with retries (so that their lineage is looked after and, for
values in the arena, kept) and with max_retries=0; a plain actor beside one with checkpoint=. The best of many short
rounds, and the median of the pairs' ratios: a busy machine disturbs both sides of a pair alike. What the ledger costs a
ref that is lent is not measured: there is no way to switch it off.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

TASKS = 3_000
LARGE = 100
CALLS = 1_000


@weft.remote
def nothing() -> None: ...


@weft.remote
def large() -> Any:
    return np.zeros(100_000, dtype=np.uint8)


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value


def rate(count: int, work: Callable[[int], None]) -> float:
    began = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - began)


def measure(
    title: str, count: int, without: Callable[[int], None], with_it: Callable[[int], None], rounds: int
) -> None:
    rates: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(rounds):
        order = [("without", without), ("with", with_it)]
        for name, work in order if number % 2 else reversed(order):
            rates[name].append(rate(count, work))
    best = {name: max(values) for name, values in rates.items()}
    pairs = statistics.median(with_ / without for with_, without in zip(rates["with"], rates["without"], strict=True))
    print(
        f"| {title} | {best['without']:,.0f} | {best['with']:,.0f} | {best['with'] / best['without'] - 1:+.1%} "
        f"| {pairs - 1:+.1%} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=101)
    rounds = parser.parse_args().rounds
    weft.init(num_cpus=2, log_to_driver=False)
    plain, exact = weft.remote(Counter).remote(), weft.remote(checkpoint=100)(Counter).remote()
    once, once_large = nothing.options(max_retries=0), large.options(max_retries=0)
    weft.get([plain.add.remote(), exact.add.remote(), *(nothing.remote() for _ in range(5000))])

    def tasks(function: Any) -> Callable[[int], None]:
        return lambda count: weft.get([function.remote() for _ in range(count)]) and None

    print("| | without, per second | with | best | median of pairs |\n|---|---|---|---|---|")
    measure("tasks_async (no result)", TASKS, tasks(once), tasks(nothing), rounds)
    measure("tasks with results of 100 kB", LARGE, tasks(once_large), tasks(large), rounds)
    measure(
        "calls of an actor, beside one with checkpoint=100", CALLS, tasks(_Call(plain)), tasks(_Call(exact)), rounds
    )
    weft.shutdown()


class _Call:
    def __init__(self, actor: Any) -> None:
        self.remote = actor.add.remote


if __name__ == "__main__":
    main()
