"""Virtual time: one queue of calls for the whole simulated cluster, and a loop for each node as its daemon knows it.

Nothing waits: the clock jumps to the next call. Calls of one moment run in the order in which they were made, so a run
depends on its seed alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from weft.net.loop import Timer


class Clock:
    """The cluster's time and all that will happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._made = 0

    def at(self, when: float, call: Callable[..., object], *args: object) -> None:
        self._made += 1
        heapq.heappush(self._queue, (when if when > self.now else self.now, self._made, call, args))

    def after(self, delay_s: float, call: Callable[..., object], *args: object) -> None:
        self._made += 1
        heapq.heappush(self._queue, (self.now + delay_s if delay_s > 0 else self.now, self._made, call, args))

    def run(self, until: float, is_over: Callable[[], bool], most_events: int) -> None:
        """Until that time, or `is_over` (asked at each event), or so many events."""
        queue, pop = self._queue, heapq.heappop
        last = self.events + most_events
        while queue and not is_over():
            if queue[0][0] > until:
                self.now = until
                return
            self.now, _, call, args = pop(queue)
            call(*args)
            self.events += 1
            if self.events >= last:
                return


class NodeLoop:
    """What a daemon has instead of `net.loop.Loop`: timers in virtual time, on a clock that may run wrong."""

    def __init__(self, clock: Clock, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self._clock = clock
        self._rate = rate
        """How fast this node's clock runs."""
        self._offset_s = offset_s
        self.is_stopped = False
        self._held: list[Callable[[], None]] | None = None
        """What comes while the daemon stands still."""

    def now(self) -> float:
        return self._clock.now * self._rate + self._offset_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        self._clock.after(delay_s / self._rate, self._fire, timer)
        return timer

    def _fire(self, timer: Timer) -> None:
        if timer.call is not None and not self.is_stopped:
            self.when_awake(lambda: None if timer.call is None else timer.call())

    def when_awake(self, call: Callable[[], None]) -> None:
        """Now, or when the daemon goes on."""
        if self._held is None:
            call()
        else:
            self._held.append(call)

    def sleep(self) -> None:
        """The process is stopped: its machine, and all others, go on."""
        if self._held is None:
            self._held = []

    def wake(self) -> None:
        held, self._held = self._held or [], None
        for call in held:
            self._clock.after(0.0, self._go_on, call)

    def _go_on(self, call: Callable[[], None]) -> None:
        if not self.is_stopped:
            self.when_awake(call)

    def jump(self, seconds: float) -> None:
        """Its clock leaps forward."""
        self._offset_s += seconds

    def stop(self) -> None:
        self.is_stopped = True
