"""One of many drivers on one node: python stress_driver.py ADDRESS SEED SECONDS.

Every value that it gets is checked. Somebody kills workers meanwhile: plain tasks must come through, what an actor or
a worker owned may be lost with a named error. At the end it must hold nothing any more; then it prints one JSON line.
"""

from __future__ import annotations

import collections
import faulthandler
import gc
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import _native
from weft.exceptions import ActorError, ObjectLostError, WorkerCrashedError

HANG_S = 60.0
MIB = 1 << 20
LOST = (ActorError, ObjectLostError, WorkerCrashedError)
"""What a kill may do to values of actors and to refs that a worker made."""


@weft.remote(max_retries=-1)
def square(x: int) -> int:
    return x * x


@weft.remote(max_retries=-1)
def slow(x: int, seconds: float) -> int:
    time.sleep(seconds)
    return x


@weft.remote(max_retries=-1)
def tree(depth: int, width: int) -> int:
    return 1 if depth == 0 else sum(weft.get([tree.remote(depth - 1, width) for _ in range(width)]))


@weft.remote(max_retries=-1)
def fill(value: int, size: int) -> Any:
    return np.full(size, value, dtype=np.uint8)


@weft.remote(max_retries=-1)
def total(array: Any) -> int:
    return int(array.sum(dtype=np.int64))


@weft.remote(max_retries=-1)
def total_of(refs: list[Any]) -> int:
    return sum(int(value.sum(dtype=np.int64)) for value in weft.get(refs))


@weft.remote(max_retries=-1)
def make_refs(count: int, size: int) -> list[Any]:
    return [weft.put(np.full(size, number, dtype=np.uint8)) for number in range(count)]


@weft.remote(max_retries=-1)
def fail(x: int) -> None:
    raise KeyError(x)


@weft.remote
class Ledger:
    def __init__(self) -> None:
        self.entries: list[int] = []
        self.kept: list[Any] = []

    def add(self, x: int) -> int:
        self.entries.append(x)
        return len(self.entries)

    def keep(self, refs: list[Any]) -> int:
        self.kept = refs
        return int(weft.get(refs[0])[0])

    def lend(self) -> list[Any]:
        return self.kept


def many_tasks(rng: random.Random) -> None:
    count = rng.choice([1, 10, 100, 2000])
    assert weft.get([square.remote(x) for x in range(count)], timeout=HANG_S) == [x * x for x in range(count)]


def chain(rng: random.Random) -> None:
    ref: Any = 1
    for _ in range(rng.randrange(1, 30)):
        ref = slow.remote(ref, 0)
    assert weft.get(ref, timeout=HANG_S) == 1


def mixed_durations(rng: random.Random) -> None:
    refs = [slow.remote(x, rng.choice([0, 0, 0.001, 0.01])) for x in range(30)]
    ready, rest = weft.wait(refs, num_returns=10, timeout=HANG_S)
    assert len(ready) >= 10 and len(ready) + len(rest) == 30
    assert weft.get(refs, timeout=HANG_S) == list(range(30))


def nested(rng: random.Random) -> None:
    depth, width = rng.choice([(1, 20), (2, 5), (3, 3), (6, 1)])
    assert weft.get(tree.remote(depth, width), timeout=HANG_S) == width**depth


def failures(rng: random.Random) -> None:
    try:
        weft.get(square.remote(fail.remote(7)), timeout=HANG_S)
    except KeyError:
        return
    raise AssertionError("the error was lost")


def large_results(rng: random.Random) -> None:
    size, values = rng.randrange(1, 51) * MIB, [rng.randrange(251) for _ in range(2)]
    arrays = [fill.remote(value, size) for value in values]
    assert weft.get([total.remote(array) for array in arrays], timeout=HANG_S) == [value * size for value in values]
    view = weft.get(arrays.pop(), timeout=HANG_S)
    assert view[0] == view[-1] == values[1]


def large_arguments(rng: random.Random) -> None:
    size, value = rng.randrange(1, 20) * MIB, rng.randrange(251)
    array = np.full(size, value, dtype=np.uint8)
    ref = weft.put(array)
    sums = [total.remote(array), total.remote(ref), total_of.remote([ref, ref])]
    del ref
    assert weft.get(sums, timeout=HANG_S) == [value * size, value * size, 2 * value * size]


def threads_at_once(rng: random.Random) -> None:
    results: list[int] = []

    def work() -> None:
        results.append(sum(weft.get([square.remote(x) for x in range(100)], timeout=HANG_S)))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [sum(x * x for x in range(100))] * 3


def returned_refs(rng: random.Random) -> None:
    refs = weft.get(make_refs.remote(5, MIB), timeout=HANG_S)
    assert weft.get(total_of.remote(refs), timeout=HANG_S) == 10 * MIB
    assert [int(view[-1]) for view in weft.get(refs, timeout=HANG_S)] == list(range(5))


def actors(rng: random.Random) -> None:
    ledgers = [Ledger.remote() for _ in range(rng.randrange(1, 4))]
    for ledger in ledgers:
        assert weft.get([ledger.add.remote(x) for x in range(50)], timeout=HANG_S) == list(range(1, 51))
    ref = weft.put(np.full(2 * MIB, 9, dtype=np.uint8))
    assert weft.get([ledger.keep.remote([ref]) for ledger in ledgers], timeout=HANG_S) == [9] * len(ledgers)
    del ref
    [lent] = weft.get(ledgers[0].lend.remote(), timeout=HANG_S)
    assert weft.get(total.remote(lent), timeout=HANG_S) == 9 * 2 * MIB


def restarted_actor(rng: random.Random) -> None:
    ledger = Ledger.options(max_restarts=-1, max_task_retries=-1).remote()
    counts = weft.get([ledger.add.remote(x) for x in range(100)], timeout=HANG_S)
    assert all(0 < count <= 100 for count in counts)


CERTAIN: list[Callable[[random.Random], None]] = [
    many_tasks,
    chain,
    mixed_durations,
    nested,
    failures,
    large_results,
    large_arguments,
    threads_at_once,
    restarted_actor,
]
UNCERTAIN: list[Callable[[random.Random], None]] = [returned_refs, actors]


def held() -> dict[str, int]:
    statistics = _native.statistics()
    return {name: statistics[name] for name in ("objects_owned", "objects_borrowed", "pending_tasks")}


def footprint() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def main(address: str, seed: str, seconds: str) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    rng = random.Random(int(seed))
    deadline = time.monotonic() + float(seconds)
    weft.init(address=address)
    many_tasks(rng)
    before = footprint()
    done: collections.Counter[str] = collections.Counter()
    while time.monotonic() < deadline:
        work = rng.choice(CERTAIN + UNCERTAIN)
        try:
            work(rng)
            done[work.__name__] += 1
        except LOST:
            if work in CERTAIN:
                raise
            done["lost"] += 1
    gc.collect()
    limit = time.monotonic() + HANG_S
    while (any(held().values()) or footprint() > before) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not any(held().values()), (held(), _native.held_objects(20))
    assert footprint() <= before, (before, footprint())
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
