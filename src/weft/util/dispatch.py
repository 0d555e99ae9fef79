"""Jobs that wait for a free lane. Under the pools and executors of this package.

A lane runs its jobs one after the other: a pool's worker, or one of the places of an executor. Jobs move on whenever
one is settled, by the first that notices: the core's callback thread, or any thread that waits for a result here,
which waits in the engine and thereby lends its CPUs.

A lane that runs jobs in order may be given more than one, as many as it is expected to finish within a millisecond, so
that short jobs do not wait for a thread of ours in between. When one takes longer after all while another lane is
free, a waiter calls back what has not started.

1. DIS-1: every job that was added is settled once, with a value or an error, unless it was withdrawn.
2. DIS-2: a job is settled under the lock, so a waiter that looks under it misses nothing.
3. DIS-3: no code of the user's runs under the lock but for pickling a job's arguments and unpickling its value; what
   may block runs on the dispatcher's own thread, started at the first need.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import weft
from weft import _native
from weft.exceptions import ActorError, TaskCancelledError

__all__ = ["Dispatcher", "Job", "Lane", "Pace"]

QUEUED_S = 0.001
"""So much work is given to a lane at a time."""
MOST_QUEUED = 64
_CALL_BACK_S = 0.003
"""A lane without progress for so long must share what it has not started."""
_IDLE_S = 1.0
"""A thread for callbacks ends when there are none for so long."""
_TICK_S = 0.02
"""A waiter with nothing under way looks again so often: another thread is about to say more."""


class Pace:
    """How long jobs of one kind take. Starts pessimistic, and a slow job counts at once."""

    __slots__ = ("job_s",)

    def __init__(self) -> None:
        self.job_s = QUEUED_S

    def note(self, job_s: float) -> None:
        self.job_s = job_s if job_s > self.job_s else (self.job_s + job_s) / 2

    def depth(self) -> int:
        """How many a lane may have."""
        return max(1, min(MOST_QUEUED, int(QUEUED_S / (self.job_s + 1e-9))))


class Job:
    """What is to be run, and who is told of the outcome."""

    __slots__ = ()
    pace: Pace | None = None
    """None: never queued behind another."""

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Under the lock: keep what came of it."""

    def announce(self) -> None:
        """Afterwards, on the thread that settled it, without the lock: tell whoever listens."""


class Lane:
    """Runs jobs one after the other, in order when `is_ordered`."""

    __slots__ = ("is_called_back", "is_watched", "progressed_s", "queued")
    is_ordered = False

    def __init__(self) -> None:
        self.queued: dict[Any, Job] = {}
        """By ref, in order of submission."""
        self.progressed_s = 0.0
        self.is_called_back = False
        self.is_watched = True
        """Whether the core will call when the last of them is done; else a pumping thread looks after it."""

    def start(self, job: Any) -> Any:
        """Submit it; the ref of its outcome."""
        raise NotImplementedError

    def ended(self, error: BaseException | None) -> None:
        """One of its jobs is settled."""

    def mark(self) -> Any:
        """The ref whose end is worth waking up for: the only one, or the one that leaves half of the work."""
        if len(self.queued) == 1 or self.is_called_back:
            return next(iter(self.queued))
        return list(self.queued)[len(self.queued) // 2]


class Dispatcher:
    """Hands jobs to lanes in order. Thread-safe."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self.lock = threading.RLock()
        self._idle: list[Lane] = list(lanes)
        self._lanes = len(self._idle)
        self._waiting: deque[Job] = deque()
        self._busy: dict[Lane, None] = {}
        self._pumping: dict[int, int] = {}
        """Threads that look after what they fill themselves, by id: how often they have entered."""
        self._abandoned: BaseException | None = None
        self._untold: deque[Job] = deque()
        """Settled, and nobody has been told yet."""
        self._errands = _Errands()

    # ---- jobs in ----

    def add(self, jobs: Iterable[Job]) -> None:
        with self.lock:
            self._waiting.extend(jobs)
            self._feed()
        self._tell()

    def withdraw(self, job: Job) -> bool:
        """Take back a job that no lane has; False when one has."""
        with self.lock:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
            return True

    def abandon(self, error: BaseException) -> None:
        """Settle all that no lane has with this error, also what comes back from lanes."""
        with self.lock:
            self._abandoned = error
            jobs, self._waiting = self._waiting, deque()
            for job in jobs:
                self._settle(job, None, error)
        self._tell()

    def _feed(self) -> None:
        while self._waiting and self._idle:
            self._fill(self._idle.pop())  # the one that ran last: it may still be awake

    def _fill(self, lane: Lane) -> None:
        """Give a lane what it can take; afterwards it is idle or busy."""
        started, ref = time.perf_counter(), None
        share = -(-len(self._waiting) // self._lanes)
        while self._waiting and len(lane.queued) < self._depth(lane, share):
            job = self._waiting.popleft()
            try:
                ref = lane.start(job)
            except Exception as error:  # its arguments cannot be pickled, or the session is over
                self._settle(job, None, error)
                continue
            lane.queued[ref] = job
        if not lane.queued:
            self._busy.pop(lane, None)
            self._idle.append(lane)
            return
        if lane not in self._busy:
            self._busy[lane] = None
            lane.progressed_s = started
        if ref is not None:
            lane.is_watched = threading.get_ident() not in self._pumping
            if lane.is_watched:
                _native.on_ready(ref, partial(self._look, lane))

    def _depth(self, lane: Lane, share: int) -> int:
        pace = self._waiting[0].pace
        if pace is None or not lane.is_ordered or lane.is_called_back:
            return 1
        return min(pace.depth(), share)

    # ---- outcomes ----

    def _look(self, lane: Lane) -> None:
        """Settle what a lane has finished, and give it more; all there is, when the session has ended."""
        with self.lock:
            try:
                self._collect(lane)
            except RuntimeError as error:  # its refs are of no use any more
                self._end(lane, error)
        self._tell()

    def _end(self, lane: Lane, error: RuntimeError) -> None:
        jobs, lane.queued = [*lane.queued.values(), *self._waiting], {}
        self._waiting.clear()
        for job in jobs:
            self._settle(job, None, error)
        self._busy.pop(lane, None)
        self._idle.append(lane)

    def _collect(self, lane: Lane) -> None:
        done = []
        for ref in lane.queued:
            if ref.is_ready():
                done.append(ref)
            elif not lane.is_called_back:
                break
        if not done:
            return
        now = time.perf_counter()
        pace = lane.queued[done[0]].pace
        if pace is not None:
            pace.note((now - lane.progressed_s) / len(done))
        lane.progressed_s = now
        unstarted: list[Job] = []
        for ref in done:
            if ref in lane.queued:
                unstarted += self._take(lane, ref)
        self._return(unstarted)
        if not lane.queued:
            lane.is_called_back = False
        self._fill(lane)
        self._feed()

    def _take(self, lane: Lane, ref: Any) -> list[Job]:
        """Settle what the ref stands for; the jobs that turn out not to have been started."""
        job = lane.queued.pop(ref)
        value, failure = None, None
        try:
            value = weft.get(ref)
        except BaseException as error:
            failure = error
        if lane.is_called_back and isinstance(failure, TaskCancelledError):
            return [job]
        unstarted: list[Job] = []
        if isinstance(failure, ActorError):  # it runs in order, so what comes after this one was not started
            unstarted, lane.queued = list(lane.queued.values()), {}
        lane.ended(failure)
        self._settle(job, value, failure)
        return unstarted

    def _return(self, jobs: Sequence[Job]) -> None:
        if self._abandoned is None:
            self._waiting.extendleft(reversed(jobs))
            return
        for job in jobs:
            self._settle(job, None, self._abandoned)

    def _settle(self, job: Job, value: Any, error: BaseException | None) -> None:
        job.settle(value, error)
        self._untold.append(job)

    def _tell(self) -> None:
        while self._untold:
            try:
                job = self._untold.popleft()
            except IndexError:
                return
            job.announce()

    # ---- waiting ----

    @contextmanager
    def pumping(self) -> Iterator[None]:
        """This thread is about to wait for what it adds, so the core's callback thread need not be woken for it."""
        me = threading.get_ident()
        with self.lock:
            self._pumping[me] = self._pumping.get(me, 0) + 1
        try:
            yield
        finally:
            with self.lock:
                self._pumping[me] -= 1
                if not self._pumping[me]:
                    del self._pumping[me]
                    self._watch()

    def _watch(self) -> None:
        for lane in self._busy:
            if not lane.is_watched:
                lane.is_watched = True
                _native.on_ready(next(reversed(lane.queued)), partial(self._look, lane))

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Until `is_done()`, which is asked under the lock, or for so long; whether it is."""
        with self.pumping():
            return self._wait(is_done, None if timeout_s is None else time.monotonic() + timeout_s)

    def _wait(self, is_done: Callable[[], bool], deadline: float | None) -> bool:
        while True:
            with self.lock:
                for lane in list(self._busy):
                    self._collect(lane)
                done = is_done()
                marks = [] if done else [lane.mark() for lane in self._busy]
                may_call_back = any(len(lane.queued) > 1 for lane in self._busy)
            self._tell()
            left = None if deadline is None else deadline - time.monotonic()
            if done or (left is not None and left <= 0):
                return done
            if not marks:
                time.sleep(_TICK_S if left is None else min(_TICK_S, left))
                continue
            nap = min(left or _CALL_BACK_S, _CALL_BACK_S) if may_call_back else left
            ready, _ = weft.wait(marks, num_returns=1, timeout=nap)
            if not ready and may_call_back:
                self._call_back()

    def _call_back(self) -> None:
        """Lanes are free while jobs wait behind a long one: fetch those."""
        with self.lock:
            if self._waiting or not self._idle:
                return
            now = time.perf_counter()
            for lane in self._busy:
                if len(lane.queued) > 1 and not lane.is_called_back and now - lane.progressed_s > _CALL_BACK_S:
                    lane.is_called_back = True
                    behind = list(lane.queued)[1:]
                    for ref in behind:
                        weft.cancel(ref)
                    _native.on_ready(behind[0], partial(self._look, lane))

    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self._busy

    # ---- what may block ----

    def later(self, errand: Callable[[], None]) -> None:
        """Run it on the dispatcher's thread, after those given before it. What it raises is printed."""
        self._errands.add(errand)

    def stop(self, wait: bool = True) -> None:
        """End the dispatcher's thread after what it was given, and wait for that. More to run starts another."""
        self._errands.stop(wait)


class _Errands:
    """Calls made one after the other on a thread, which starts at the first and ends when there are none for a while:
    nobody need say that there will be no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, errand: Callable[[], None]) -> None:
        with self._lock:
            self._queue.put(errand)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weft-callbacks", daemon=True)
                self._thread.start()

    def stop(self, wait: bool) -> None:
        with self._lock:
            thread = self._thread
            if thread is not None:
                self._queue.put(None)
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            try:
                errand = self._queue.get(timeout=_IDLE_S)
            except queue.Empty:
                errand = None
            if errand is None:
                with self._lock:
                    is_over = self._queue.empty()
                    if is_over:
                        self._thread = None
                continue
            try:
                errand()
            except Exception:
                traceback.print_exc()
            del errand
