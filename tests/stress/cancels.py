"""Calls that would never end are cancelled at random moments: queued, on their way, about to run, asleep, computing,
in a `get` of a child, on an actor's loop or thread. Each caller is told so; none runs on, none is forgotten.

python tests/stress/cancels.py [ROUNDS [SEED]]
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import weft
from weft.exceptions import TaskCancelledError

HANG_S = 60.0
AT_ONCE = 12
LONGEST_DELAY_S = 0.02


@weft.remote(num_cpus=0.1)
def sleep() -> None:
    time.sleep(1000)


@weft.remote(num_cpus=0.1)
def sleep_often() -> None:
    while True:
        time.sleep(0.0001)


@weft.remote(num_cpus=0.1)
def compute() -> None:
    while True:
        sum(range(1000))


@weft.remote(num_cpus=0.1)
def outer(depth: int) -> None:
    weft.get(sleep.remote() if depth == 0 else outer.remote(depth - 1))


@weft.remote(num_cpus=0.1, num_returns="streaming")
def endless() -> Iterator[int]:
    while True:
        yield 1


@weft.remote(num_cpus=0.1)
class Sleeper:
    async def sleep(self) -> None:
        await asyncio.sleep(1000)

    async def waits(self) -> None:
        await sleep.remote()


@weft.remote(num_cpus=0.1, max_concurrency=20)
class Looker:
    def look(self) -> None:
        while not weft.get_runtime_context().is_canceled():
            time.sleep(0.001)


def run(rounds: int, seed: int) -> Counter[str]:
    """How many of each were lost, and how many there were."""
    choose = random.Random(seed)
    count: Counter[str] = Counter()
    lookers: Any = Looker.remote()
    for number in range(rounds):
        sleeper: Any = Sleeper.options(max_concurrency=AT_ONCE // 2).remote()
        kinds: dict[str, Callable[[], Any]] = {
            "sleep": sleep.remote,
            "sleep_often": sleep_often.remote,
            "compute": compute.remote,
            "outer": lambda: outer.remote(choose.randrange(3)),
            "coroutine": sleeper.sleep.remote,
            "coroutine with a child": sleeper.waits.remote,
            "thread": lookers.look.remote,
            "stream": endless.remote,
        }
        made = [(kind, kinds[kind]()) for kind in choose.choices(list(kinds), k=AT_ONCE)]
        choose.shuffle(made)
        for _, ref in made:
            if choose.random() < 0.5:
                time.sleep(choose.random() * LONGEST_DELAY_S)
            weft.cancel(ref)
        for kind, ref in made:
            count["all"] += 1
            try:
                weft.get(ref.completed() if kind == "stream" else ref, timeout=HANG_S)
            except TaskCancelledError:
                continue
            except weft.exceptions.WeftError as error:
                print(f"round {number}: {kind}: {type(error).__name__}: {error}", flush=True)
            count[kind] += 1
    return count


if __name__ == "__main__":
    weft.init(num_cpus=2, log_to_driver=False)
    lost = run(int(sys.argv[1]) if len(sys.argv) > 1 else 30, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(dict(lost))
    weft.shutdown()
    sys.exit(len(lost) != 1)
