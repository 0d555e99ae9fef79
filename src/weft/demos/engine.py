"""A tour of the engine in a few seconds: `weft demo engine`."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np

import weft
from weft.demos import Options
from weft.demos.story import chapter, say, session


def hits(samples: int, seed: int) -> int:
    """How many of so many random points of the unit square lie in the quarter circle."""
    draw = random.Random(seed).random
    return sum(draw() ** 2 + draw() ** 2 < 1.0 for _ in range(samples))


remote_hits = weft.remote(hits)


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
def dies_once(attempts: weft.actor.ActorHandle[Counter]) -> str:
    attempt = weft.get(attempts.add.remote())
    if attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"attempt {attempt} in process {os.getpid()} came through"


def parallel_tasks(samples: int) -> None:
    parts = 16
    began = time.perf_counter()
    here = hits(samples, seed=0)
    alone_s = (time.perf_counter() - began) * parts
    began = time.perf_counter()
    inside = sum(weft.get([remote_hits.remote(samples, seed) for seed in range(parts)]))
    together_s = time.perf_counter() - began
    assert 0 < here < samples
    say(f"pi is about {4 * inside / (parts * samples):.4f}")
    say(f"{parts} tasks in {together_s:.2f} s; one after another they would take about {alone_s:.2f} s")


def many_small_tasks() -> None:
    count = 10_000
    began = time.perf_counter()
    weft.get([add.remote(i, i) for i in range(count)])
    say(f"{count:,} tasks, {count / (time.perf_counter() - began):,.0f} a second")


def an_actor() -> None:
    counter = weft.remote(Counter).remote()
    weft.get([counter.add.remote() for _ in range(1_000)])
    say(f"after 1,000 calls and one more the counter is at {weft.get(counter.add.remote())}")


def tree_reduce() -> None:
    row = [add.remote(i, 0) for i in range(128)]
    while len(row) > 1:
        row = [add.remote(left, right) for left, right in zip(row[::2], row[1::2], strict=True)]
    total = weft.get(row[0])
    assert total == sum(range(128))
    say(f"0 + 1 + … + 127 = {total}, in 255 tasks that pass refs to each other")


def shared_array() -> None:
    array = np.ones(100 * 2**20 // 8)
    began = time.perf_counter()
    ref = weft.put(array)
    put_s = time.perf_counter() - began
    began = time.perf_counter()
    view = weft.get(ref)
    get_s = time.perf_counter() - began
    assert not view.flags.writeable
    say(f"put of 100 MiB: {put_s * 1e3:.1f} ms; get of it: {get_s * 1e6:.0f} µs, as a read-only view")
    parts = 4
    total = sum(weft.get([sum_of_part.remote(ref, part, parts) for part in range(parts)]))
    assert total == array.sum()
    say(f"{parts} tasks summed it where it lies: {total:,.0f}")


def nested_tasks() -> None:
    say(f"fibonacci(10) = {weft.get(fibonacci.remote(10))}, each call a task that waits for two others")


def a_death() -> None:
    attempts = weft.remote(Counter).remote()
    say(f"{weft.get(dies_once.remote(attempts))}")


def main(options: Options) -> None:
    with session():
        with chapter("Tasks in parallel: estimating pi"):
            parallel_tasks(20_000 if options.short else 400_000)
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
