"""A concurrency group of an actor without coroutines: a pool of threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.engine.process.actors.call import Call, run_here

if TYPE_CHECKING:
    from weft.engine.process.actors.concurrency import ConcurrentCalls

_EACH_ONCE = 32


class ThreadGroup:
    """Up to `limit` threads, kept so that thread-local data lasts.

    The longest idle one takes the next call. A small group first uses each of its threads once, so that as many
    calls as the limit allows run on as many threads; a large one starts a thread only when all are busy."""

    def __init__(self, name: str, limit: int, calls: ConcurrentCalls) -> None:
        self._name = name
        self._limit = limit
        self._calls = calls
        self._lock = threading.Lock()
        self._threads = 0
        self._busy: set[int] = set()
        """The threads that run a call now."""
        self._idle: deque[SimpleQueue[Call | None]] = deque()
        """Each idle thread's own queue."""
        self._waiting: deque[Call] = deque()
        self._is_stopped = False

    def construct(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return cls(*args, **kwargs)

    def submit(self, call: Call) -> None:
        with self._lock:
            may_start = self._threads < self._limit
            if self._idle and not (may_start and self._limit <= _EACH_ONCE):
                self._idle.popleft().put(call)
            elif may_start:
                self._threads += 1
                name = f"weft-{self._name.strip('_')}-{self._threads}"
                threading.Thread(target=self._run, args=(call,), name=name, daemon=True).start()
            else:
                self._waiting.append(call)

    def cancel(self, call: Call) -> None:
        """Its thread sees the mark before it starts the call, or after."""

    def hindered_by(self, call: Call, waiting: Collection[int]) -> list[int]:
        """The threads of which one must go on before the call can; none when it can by itself."""
        if call.thread:
            return [call.thread] if call.thread in waiting else []
        with self._lock:
            busy = list(self._busy)
            is_full = call in self._waiting and self._threads == self._limit == len(busy)
        return busy if is_full and all(thread in waiting for thread in busy) else []

    def stop(self) -> None:
        """End the threads, each after the call that it runs."""
        with self._lock:
            self._is_stopped = True
            self._waiting.clear()
            idle, self._idle = self._idle, deque()
        for thread in idle:
            thread.put(None)

    def _run(self, first: Call) -> None:
        mine: SimpleQueue[Call | None] = SimpleQueue()
        call: Call | None = first
        del first
        while call is not None:
            _native.set_current_task(call.task[0], call.task[2])
            call.thread = threading.get_ident()
            self._busy.add(call.thread)
            run_here(call, self._calls)
            with self._lock:
                self._busy.discard(call.thread)
                following = self._waiting.popleft() if self._waiting else None
                if following is None and not self._is_stopped:
                    self._idle.append(mine)
                elif following is None:
                    return
            del call  # or its arguments live until the next one
            call = mine.get() if following is None else following
            del following
