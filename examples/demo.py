"""A tour of the engine in a few seconds: `make demo`, or `python examples/demo.py`."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import weft


@contextmanager
def chapter(title: str) -> Iterator[None]:
    print(f"\n{title}")
    began = time.perf_counter()
    yield
    print(f"    took {(time.perf_counter() - began) * 1e3:,.1f} ms")


def hits(samples: int, seed: int) -> int:
    """How many of so many random points of the unit square lie in the quarter circle."""
    draw = random.Random(seed).random
    return sum(draw() ** 2 + draw() ** 2 < 1.0 for _ in range(samples))


remote_hits = weft.remote(hits)


@weft.remote
class Counter:
    """State that lives in a process of its own; its calls run one after another."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int = 1) -> int:
        self.total += amount
        return self.total


@weft.remote
def add(left: int, right: int) -> int:
    return left + right


@weft.remote
def sum_of_part(array: np.ndarray, part: int, parts: int) -> float:
    """The array is read where it lies in shared memory; no process has a copy of its own."""
    return float(np.array_split(array, parts)[part].sum())


@weft.remote
def fibonacci(n: int) -> int:
    """Tasks that submit tasks and wait for them; a task that waits lends its CPU to others."""
    if n < 2:
        return n
    return sum(weft.get([fibonacci.remote(n - 1), fibonacci.remote(n - 2)]))


@weft.remote(max_retries=2)
def dies_once(attempts: weft.actor.ActorHandle) -> str:
    attempt = weft.get(attempts.add.remote())
    if attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"attempt {attempt} in process {os.getpid()} came through"


def parallel_tasks() -> None:
    parts, samples = 16, 400_000
    began = time.perf_counter()
    here = hits(samples, seed=0)
    alone_s = (time.perf_counter() - began) * parts
    began = time.perf_counter()
    inside = sum(weft.get([remote_hits.remote(samples, seed) for seed in range(parts)]))
    together_s = time.perf_counter() - began
    assert 0 < here < samples
    print(f"    pi is about {4 * inside / (parts * samples):.4f}")
    print(f"    {parts} tasks in {together_s:.2f} s; one after another they would take about {alone_s:.2f} s")


def many_small_tasks() -> None:
    count = 10_000
    began = time.perf_counter()
    weft.get([add.remote(i, i) for i in range(count)])
    print(f"    {count:,} tasks, {count / (time.perf_counter() - began):,.0f} a second")


def an_actor() -> None:
    counter = Counter.remote()
    weft.get([counter.add.remote() for _ in range(1_000)])
    print(f"    after 1,000 calls and one more the counter is at {weft.get(counter.add.remote())}")


def tree_reduce() -> None:
    row = [add.remote(i, 0) for i in range(128)]
    while len(row) > 1:
        row = [add.remote(left, right) for left, right in zip(row[::2], row[1::2], strict=True)]
    total = weft.get(row[0])
    assert total == sum(range(128))
    print(f"    0 + 1 + … + 127 = {total}, in 255 tasks that pass refs to each other")


def shared_array() -> None:
    array = np.ones(100 * 2**20 // 8)
    began = time.perf_counter()
    ref = weft.put(array)
    put_s = time.perf_counter() - began
    began = time.perf_counter()
    view = weft.get(ref)
    get_s = time.perf_counter() - began
    assert not view.flags.writeable
    print(f"    put of 100 MiB: {put_s * 1e3:.1f} ms; get of it: {get_s * 1e6:.0f} µs, as a read-only view")
    parts = 4
    total = sum(weft.get([sum_of_part.remote(ref, part, parts) for part in range(parts)]))
    assert total == array.sum()
    print(f"    {parts} tasks summed it where it lies: {total:,.0f}")


def nested_tasks() -> None:
    print(f"    fibonacci(10) = {weft.get(fibonacci.remote(10))}, each call a task that waits for two others")


def a_death() -> None:
    attempts = Counter.remote()
    print(f"    {weft.get(dies_once.remote(attempts))}")


def main() -> None:
    with chapter("Starting"):
        weft.init()
        print(f"    {weft.cluster_resources().get('CPU', 0):.0f} CPUs")
    with chapter("Tasks in parallel: estimating pi"):
        parallel_tasks()
    with chapter("Tasks that do next to nothing, many"):
        many_small_tasks()
    with chapter("An actor: a counter with its own process"):
        an_actor()
    with chapter("A tree of tasks"):
        tree_reduce()
    with chapter("One array of 100 MiB, shared by all, copied by none"):
        shared_array()
    with chapter("Tasks within tasks"):
        nested_tasks()
    with chapter("A worker killed in mid-task; the task is tried again"):
        a_death()
    with chapter("Ending"):
        weft.shutdown()


if __name__ == "__main__":
    main()
