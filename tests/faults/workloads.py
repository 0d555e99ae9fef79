"""Programs for the random kills: python workloads.py NAME SEED SECONDS.

Each checks every value that it gets. It prints "done" and exits 0, or prints the name of the Weft error that ended it
and exits 3. A wrong value, and any other exception, is a traceback and exit status 1.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.exceptions import WeftError

LARGE = 10 << 20


@weft.remote
def square(x: int) -> int:
    return x * x


@weft.remote
def nested(depth: int, x: int) -> int:
    if depth == 0:
        return x
    return sum(weft.get([nested.remote(depth - 1, x), nested.remote(depth - 1, x + 1)]))


def nested_sum(depth: int, x: int) -> int:
    return x if depth == 0 else nested_sum(depth - 1, x) + nested_sum(depth - 1, x + 1)


@weft.remote
def filled(seed: int, size: int) -> Any:
    return np.full(size, seed % 251, dtype=np.uint8)


@weft.remote
def total(array: Any) -> int:
    return int(array.sum(dtype=np.int64))


@weft.remote
def puts(count: int) -> list[Any]:
    return [weft.put(np.full(300_000, number, dtype=np.uint8)) for number in range(count)]


@weft.remote
class Account:
    def __init__(self) -> None:
        self.sum = 0

    def add(self, amount: int) -> int:
        self.sum += amount
        return self.sum

    def give(self, value: int) -> list[Any]:
        return [weft.put(np.full(500_000, value, dtype=np.uint8))]


def tasks(rng: random.Random) -> None:
    count = rng.choice([1, 10, 1000])
    assert weft.get([square.remote(i) for i in range(count)]) == [i * i for i in range(count)]


def nested_tasks(rng: random.Random) -> None:
    depth, x = rng.randrange(1, 5), rng.randrange(100)
    assert weft.get(nested.remote(depth, x)) == nested_sum(depth, x)


def actors(rng: random.Random) -> None:
    accounts = [Account.remote() for _ in range(rng.randrange(1, 4))]
    for account in accounts:
        assert weft.get([account.add.remote(1) for _ in range(100)]) == list(range(1, 101))
    for number, account in enumerate(accounts):
        [ref] = weft.get(account.give.remote(number))
        assert weft.get(total.remote(ref)) == number * 500_000


def large_objects(rng: random.Random) -> None:
    seeds = [rng.randrange(1000) for _ in range(4)]
    arrays = [filled.remote(seed, LARGE) for seed in seeds]
    sums = [total.remote(array) for array in arrays]
    own = weft.put(np.full(LARGE, 7, dtype=np.uint8))
    assert weft.get(sums) == [seed % 251 * LARGE for seed in seeds]
    assert weft.get(total.remote(own)) == 7 * LARGE


def returned_refs(rng: random.Random) -> None:
    count = rng.randrange(1, 20)
    refs = weft.get(puts.remote(count))
    sums = [total.remote(ref) for ref in refs]
    assert [int(weft.get(ref)[-1]) for ref in refs] == list(range(count))
    assert weft.get(sums) == [number * 300_000 for number in range(count)]


WORKLOADS: dict[str, Callable[[random.Random], None]] = {
    work.__name__: work for work in (tasks, nested_tasks, actors, large_objects, returned_refs)
}


def main(name: str, seed: str, seconds: str) -> int:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    rng = random.Random(int(seed))
    deadline = time.monotonic() + float(seconds)
    try:
        weft.init(num_cpus=2, object_store_memory=512 << 20)
        print("ready", flush=True)
        while time.monotonic() < deadline:
            WORKLOADS[name](rng)
    except WeftError as error:
        print(type(error).__name__, flush=True)
        print(error, file=sys.stderr)
        return 3
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
