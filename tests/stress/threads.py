"""Sixty-four threads in one driver: they submit, get, wait, cancel and put, and the session ends while they are at it.
Every value that a thread is given is the one that it asked for, or it is told why not.

python tests/stress/threads.py [SECONDS [SESSIONS]]   (also under a sanitizer, see tests/sanitized.py)
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import weft
from weft import _native
from weft.engine.process.session import attached
from weft.exceptions import TaskCancelledError, WeftError

THREADS = 64
HANG_S = 300.0
LARGE = 100_000
"""Bytes: such a value lies in the arena."""


@weft.remote(num_cpus=0.1)
def echo(value: Any) -> Any:
    return value


@weft.remote(num_cpus=0.1)
def add(array: Any, number: int) -> Any:
    return array + number


@weft.remote(num_cpus=0.1, num_returns="streaming")
def count(start: int) -> Iterator[int]:
    yield from range(start, start + 5)


@weft.remote(num_cpus=0.1, max_concurrency=4)
class Keeper:
    def keep(self, value: Any) -> Any:
        return value


class Ended(Exception):
    """The session did, and this thread's part of it with it."""


class Work:
    """What one thread does, with what it holds from one act to the next."""

    def __init__(self, number: int, keeper: Any, shared: list[Any]) -> None:
        self.random = random.Random(number)
        self.keeper = keeper
        self.shared = shared
        self.acts: list[Callable[[], None]] = [
            self.small,
            self.large,
            self.wait,
            self.cancel,
            self.nested,
            self.actor,
            self.stream,
            self.share,
        ]

    def act(self) -> None:
        try:
            self.random.choice(self.acts)()
        except (RuntimeError, WeftError) as error:
            if _native.is_attached() and not str(error).startswith("weft was shut down"):
                raise
            raise Ended from None

    def number(self) -> int:
        return self.random.randrange(1 << 30)

    def small(self) -> None:
        numbers = [self.number() for _ in range(5)]
        refs = [weft.put(number) if number % 2 else echo.remote(number) for number in numbers]
        assert weft.get(refs) == numbers

    def large(self) -> None:
        number = self.random.randrange(100)
        array = weft.get(weft.put(np.full(LARGE, number, np.uint8)))
        more = weft.get(add.remote(array, 1))
        assert (array == number).all()
        assert (more == number + 1).all()

    def wait(self) -> None:
        numbers = {echo.remote(number): number for number in (self.number() for _ in range(4))}
        rest = list(numbers)
        while rest:
            ready, rest = weft.wait(rest, num_returns=self.random.randint(1, len(rest)), timeout=60)
            assert weft.get(ready) == [numbers[ref] for ref in ready]

    def cancel(self) -> None:
        number = self.number()
        first = echo.remote(number)
        second = echo.remote(first)
        weft.cancel(second)
        with contextlib.suppress(TaskCancelledError):
            assert weft.get(second) == number
        assert weft.get(first) == number

    def nested(self) -> None:
        number = self.number()
        [inner] = weft.get(weft.put([weft.put((number, "text"))]))
        assert weft.get(inner) == (number, "text")

    def actor(self) -> None:
        number = self.number()
        assert weft.get(self.keeper.keep.remote([number])) == [number]

    def stream(self) -> None:
        start = self.number()
        got = [weft.get(item) for item in count.remote(start)]
        assert got == list(range(start, start + 5))

    def share(self) -> None:
        """All put into one list and take out of it, while others get what is in it."""
        number = self.number()
        self.shared.append(weft.put(("shared", number)))
        for kind, found in weft.get(self.shared):
            assert kind == "shared"
            assert isinstance(found, int)
        if len(self.shared) > 20:
            self.shared.clear()


def _no_other_session() -> None:
    """A call after the end would begin a session by itself, and then another."""
    if not _native.is_attached():
        raise RuntimeError("weft was shut down")


def one_session(number: int, seconds: float) -> int:
    """How many acts there were."""
    weft.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    keeper: Any = Keeper.remote()
    shared: list[Any] = []
    failures: list[str] = []
    acts = [0] * THREADS
    stop = threading.Event()

    def run(index: int) -> None:
        work = Work(number * THREADS + index, keeper, shared)
        try:
            while not stop.is_set():
                work.act()
                acts[index] += 1
        except Ended:
            pass
        except BaseException:
            failures.append(traceback.format_exc())
            stop.set()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    weft.shutdown()  # while they are at it
    deadline = time.monotonic() + HANG_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in threads)
    if failures or stuck:
        print(*failures, f"{stuck} threads hang", sep="\n", file=sys.stderr, flush=True)
        sys.exit(1)
    return sum(acts)


def main(seconds: float = 10.0, sessions: int = 3) -> None:
    attached.ensure = _no_other_session
    made = [one_session(number, seconds / sessions) for number in range(sessions)]
    print(f"{sum(made)} acts in {sessions} sessions")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((float, int), sys.argv[1:], strict=False)))
