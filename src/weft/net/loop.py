"""The daemon's event loop: descriptors, timers, signals. One thread, nothing else.

Not asyncio: its import alone costs a third of the time in which a node should be up, and the daemon only ever reacts.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import select
import signal
import sys
import time
from collections.abc import Callable

REST_S = 0.1
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
COMPLAIN_S = 10.0
_READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Timer:
    """A call in the future that can be called off."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Calls back when a descriptor is readable or closed, a time has come, or a signal."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._events: dict[int, int] = {}
        self._new: set[int] = set()
        """Descriptors watched since the last poll: what it said of such a number was said of another descriptor."""
        self._writers: dict[int, Callable[[], None]] = {}
        self._resting: dict[int, Callable[[], None]] = {}
        """Not watched for a moment."""
        self._complains_at = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._is_stopped = False
        self._signals: dict[int, Callable[[], None]] = {}
        self._wakeup: tuple[int, int] | None = None

    def watch(self, fd: int, callback: Callable[[], None], events: int = _READABLE) -> None:
        """Call back whenever the descriptor is readable or its other end is gone.

        Files of the kernel that are always readable say by EPOLLPRI that they have changed."""
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback
        self._events[fd] = events
        self._new.add(fd)

    def unwatch(self, fd: int) -> None:
        """Must come before the descriptor is closed. Nothing happens when it is not watched."""
        self._resting.pop(fd, None)
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            self._writers.pop(fd, None)
            del self._events[fd]

    def rest(self, fd: int) -> None:
        """Do not call back for a moment: what is needed for it, mostly a descriptor, is not to be had."""
        callback = self._callbacks.get(fd)
        if callback is not None and fd not in self._writers:
            self._epoll.modify(fd, 0)
            self._resting[fd] = callback
            self.call_later(REST_S, lambda: self._watch_again(fd, callback))

    def _watch_again(self, fd: int, callback: Callable[[], None]) -> None:
        if self._resting.get(fd) is callback:
            del self._resting[fd]
            self._epoll.modify(fd, self._events[fd])

    def want_write(self, fd: int, callback: Callable[[], None] | None) -> None:
        """Also call back whenever the watched descriptor takes more; None: no longer."""
        if callback is None:
            self._writers.pop(fd, None)
        else:
            self._writers[fd] = callback
        self._resting.pop(fd, None)
        self._epoll.modify(fd, _READABLE | (0 if callback is None else select.EPOLLOUT))

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """ValueError when the delay is no number: no other timer's turn would come behind it."""
        if delay_s != delay_s:
            raise ValueError("a delay must be a number of seconds, but got nan")
        timer = Timer(call)
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._numbers), timer))
        return timer

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call back in the loop, not in the handler."""
        if self._wakeup is None:
            self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
            self.watch(self._wakeup[0], self._read_signals)
        self._signals[number] = callback
        signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Until `stop`. A process that is out of descriptors goes on without what wanted one, and tries that again."""
        while not self._is_stopped:
            self.run_once(self._wait_s())
        self._is_stopped = False

    def run_once(self, wait_s: float) -> None:
        """One round: what is ready within `wait_s` (without limit when negative), and the timers that are due."""
        self._new.clear()
        for fd, what in self._epoll.poll(wait_s):
            if fd in self._new:
                continue
            if what & select.EPOLLOUT and (writer := self._writers.get(fd)) is not None:
                writer()
            callback = self._callbacks.get(fd)
            if callback is not None and what & _READABLE:  # not unwatched by one before it
                try:
                    callback()
                except (OSError, ImportError) as error:
                    self._bear(error)
                    self.rest(fd)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            call = heapq.heappop(self._timers)[2].call
            if call is not None:
                try:
                    call()
                except (OSError, ImportError) as error:
                    self._bear(error)
                    self.call_later(REST_S, call)

    def _bear(self, error: OSError | ImportError) -> None:
        """Only that no descriptor is left; raises everything else."""
        if isinstance(error, ImportError):  # a module that cannot be opened is said not to be there
            if not _is_out_of_descriptors():
                raise error
        elif error.errno not in OUT_OF_DESCRIPTORS:
            raise error
        if (now := time.monotonic()) >= self._complains_at:
            self._complains_at = now + COMPLAIN_S
            text = f"weft: no descriptor is left ({error}): what needs one waits. Raise the limit (ulimit -n)."
            print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Ends `run`, also one that has not begun: whoever launched a node may leave while it starts."""
        self._is_stopped = True

    def close(self) -> None:
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for fd in self._wakeup:
                os.close(fd)
            self._wakeup = None
        self._epoll.close()

    def _wait_s(self) -> float:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1

    def _read_signals(self) -> None:
        assert self._wakeup is not None
        for number in os.read(self._wakeup[0], 64):
            if number in self._signals:
                self._signals[number]()


def _is_out_of_descriptors() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in OUT_OF_DESCRIPTORS
    return False
