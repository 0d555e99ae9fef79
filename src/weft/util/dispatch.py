"""Jobs that wait for a free lane. Under the pools and executors of this package.

A lane runs one job at a time: a pool's worker, or one of the places of an executor. So a job never waits behind a long
one while another lane is free. Jobs move on whenever one is settled, by the first that notices: the core's callback
thread, or any thread that waits for a result here, which waits in the engine and thereby lends its CPUs.

1. DIS-1: every job that was added is settled once, by `settle`, with a value or an error.
2. DIS-2: a job's `is_settled` changes under the lock, so a waiter that looks under it misses nothing.
3. DIS-3: no code of the user's runs under the lock, but for pickling a job's arguments; what may block runs on the
   dispatcher's own thread, started at the first need.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import weft
from weft import _native

__all__ = ["Dispatcher", "Job", "Lane"]

_TICK_S = 0.05
"""A waiter with nothing under way looks again so often: another thread is about to say more."""


class Job(Protocol):
    is_settled: bool

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Under the lock: keep what came of it and set `is_settled`."""

    def announce(self) -> None:
        """After the lock is given up, on the thread that settled it: tell whoever listens."""


class Lane(Protocol):
    def start(self, job: Any) -> Any:
        """Submit it; the ref of its outcome."""

    def follow(self, error: BaseException | None) -> Lane:
        """The lane that takes this one's place after a job; mostly itself."""


class Dispatcher:
    """Hands jobs to lanes in order. Thread-safe."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self.lock = threading.RLock()
        self._idle: deque[Lane] = deque(lanes)
        self._waiting: deque[Job] = deque()
        self._running: dict[Any, tuple[Job, Lane]] = {}
        self._settled_early: list[Job] = []
        self._errands: queue.SimpleQueue[Callable[[], None] | None] | None = None
        self._thread: threading.Thread | None = None

    # ---- jobs in ----

    def add(self, jobs: Iterable[Job]) -> None:
        with self.lock:
            self._waiting.extend(jobs)
            self._feed()
        self._announce_early()

    def _feed(self) -> None:
        while self._waiting and self._idle:
            job, lane = self._waiting.popleft(), self._idle.popleft()
            try:
                ref = lane.start(job)
            except Exception as error:  # its arguments can not be pickled, or the session is over
                self._idle.appendleft(lane)
                self._settle_early(job, error)
                continue
            self._running[ref] = (job, lane)
            _native.on_ready(ref, partial(self._ready, ref))

    def abandon(self, error: BaseException) -> None:
        """Settle all that has not started with this error."""
        with self.lock:
            jobs, self._waiting = self._waiting, deque()
            for job in jobs:
                self._settle_early(job, error)
        self._announce_early()

    def withdraw(self, job: Job) -> bool:
        """Take back a job that has not started; False when it has."""
        with self.lock:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
            return True

    # ---- outcomes ----

    def _ready(self, ref: Any) -> None:
        with self.lock:
            entry = self._running.pop(ref, None)
            if entry is None:
                return
            job, lane = entry
            value, failure = None, None
            try:
                value = weft.get(ref)
            except BaseException as error:
                failure = error
            self._idle.append(lane.follow(failure))
            self._feed()
            job.settle(value, failure)
        job.announce()
        self._announce_early()

    def _settle_early(self, job: Job, error: BaseException) -> None:
        job.settle(None, error)
        self._settled_early.append(job)

    def _announce_early(self) -> None:
        while self._settled_early:
            try:
                job = self._settled_early.pop()
            except IndexError:
                return
            job.announce()

    # ---- waiting ----

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Until `is_done()`, which is asked under the lock, or for so long; whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self.lock:
                if is_done():
                    return True
                running = list(self._running)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if running:
                ready, _ = weft.wait(running, num_returns=1, timeout=left)
                for ref in ready:
                    self._ready(ref)
            elif left != 0:
                time.sleep(_TICK_S if left is None else min(_TICK_S, left))
            if left == 0 and not running:
                return False
            if left == 0:
                with self.lock:
                    return is_done()

    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self._running

    # ---- what may block ----

    def later(self, errand: Callable[[], None]) -> None:
        """Run it on the dispatcher's thread, after those given before it. What it raises is printed."""
        with self.lock:
            if self._errands is None:
                self._errands = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=_run_errands, args=(self._errands,), name="weft-callbacks", daemon=True
                )
                self._thread.start()
                weakref.finalize(self, self._errands.put, None).atexit = False
            self._errands.put(errand)

    def stop(self) -> None:
        """End the dispatcher's thread after what it was given, and wait for that."""
        with self.lock:
            thread, errands = self._thread, self._errands
            self._thread = self._errands = None
        if thread is not None and errands is not None:
            errands.put(None)
            if thread is not threading.current_thread():
                thread.join()


def _run_errands(errands: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (errand := errands.get()) is not None:
        try:
            errand()
        except Exception:
            traceback.print_exc()
        del errand
