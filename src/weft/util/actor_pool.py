"""A fixed set of actors that share a stream of calls: whoever is idle takes the next.

>>> @weft.remote
... class Doubler:
...     def double(self, value):
...         return 2 * value
>>> pool = ActorPool([Doubler.remote(), Doubler.remote()])
>>> list(pool.map(lambda actor, value: actor.double.remote(value), [1, 2, 3]))
[2, 4, 6]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import weft

__all__ = ["ActorPool"]

Submit = Callable[[Any, Any], Any]


class ActorPool:
    """Not thread-safe. `submit` takes a function of (actor, value) that returns a ref, or a list of them.

    >>> @weft.remote
    ... class Doubler:
    ...     def double(self, value): return 2 * value
    >>> pool = ActorPool([Doubler.remote(), Doubler.remote()])
    >>> list(pool.map(lambda actor, value: actor.double.remote(value), [1, 2, 3]))
    [2, 4, 6]
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        if isinstance(actors, str) or not isinstance(actors, Iterable):
            raise TypeError(f"actors must be a list of actor handles, but got {actors!r}")
        self._idle_actors: list[Any] = list(actors)
        for actor in self._idle_actors:
            if not isinstance(actor, weft.ActorHandle):
                raise TypeError(f"actors must be a list of actor handles, but got {actor!r} among them")
        self._running: dict[Any, tuple[int, Any, Any]] = {}
        """ref -> (place in the order, actor, what its call returned: the ref, or the refs that it is the first of)"""
        self._refs: dict[int, Any] = {}
        """place in the order -> ref, of what is running or done and not yet returned"""
        self._pending_submits: deque[tuple[Submit, Any, int]] = deque()
        self._submitted = 0
        self._returned = 0

    # ---- many ----

    def map(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the values. Everything is submitted now; what earlier calls left is dropped."""
        self._drop_results()
        for value in values:
            self.submit(fn, value)
        return self._results(self.get_next)

    def map_unordered(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Results as they come."""
        self._drop_results()
        for value in values:
            self.submit(fn, value)
        return self._results(self.get_next_unordered)

    def _results(self, next_one: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield next_one()

    def _drop_results(self) -> None:
        while self.has_next():
            try:
                self.get_next_unordered(timeout=0, ignore_if_timedout=True)
            except TimeoutError:
                continue

    # ---- one ----

    def submit(self, fn: Submit, value: Any) -> None:
        """Run it on the actor that became idle last, or on the first that becomes idle."""
        place = self._submitted
        self._submitted += 1
        if self._idle_actors:
            self._start(fn, value, place, self._idle_actors.pop())
        else:
            self._pending_submits.append((fn, value, place))

    def has_next(self) -> bool:
        """Whether a result is still to come."""
        return bool(self._running or self._pending_submits)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in order of submission. TimeoutError when it takes longer.

        `ignore_if_timedout` gives that result up, so that the next call returns the one after it."""
        if not self.has_next():
            raise StopIteration("No more results to get")
        if self._returned not in self._refs:
            self._skip_returned()
        place = self._returned
        ref = self._refs[place]
        ready, _ = weft.wait([ref], num_returns=1, timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError("Timed out waiting for result")
        self._returned += 1
        return self._take(ref, bool(ready))

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Whichever result is ready first. TimeoutError when none is in time."""
        if not self.has_next():
            raise StopIteration("No more results to get")
        ready, _ = weft.wait(list(self._running), num_returns=1, timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError("Timed out waiting for result")
        return self._take(ready[0] if ready else next(iter(self._running)), bool(ready))

    def _take(self, ref: Any, is_ready: bool) -> Any:
        place, actor, returned = self._running.pop(ref)
        self._refs.pop(place, None)
        alive = True
        try:
            if not is_ready:
                raise TimeoutError("Timed out waiting for result. The task has been ignored.")
            return weft.get(returned)
        except weft.exceptions.ActorDiedError:
            alive = False
            raise
        finally:
            if alive:
                self._give_back(actor)
            self._skip_returned()

    def _skip_returned(self) -> None:
        """Unordered results leave holes in the order."""
        waiting = self._pending_submits[0][2] if self._pending_submits else self._submitted
        while self._returned < min(self._submitted, waiting) and self._returned not in self._refs:
            self._returned += 1

    def _start(self, fn: Submit, value: Any, place: int, actor: Any) -> None:
        returned = fn(actor, value)
        ref = returned[0] if isinstance(returned, list) else returned
        self._running[ref] = (place, actor, returned)
        self._refs[place] = ref

    def _give_back(self, actor: Any) -> None:
        if self._pending_submits:
            fn, value, place = self._pending_submits.popleft()
            self._start(fn, value, place, actor)
        else:
            self._idle_actors.append(actor)

    # ---- members ----

    def has_free(self) -> bool:
        """Whether an actor is idle and nothing waits for it."""
        return bool(self._idle_actors) and not self._pending_submits

    def pop_idle(self) -> Any | None:
        """Take an idle actor out of the pool; None when there is none."""
        return self._idle_actors.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Add an actor; ValueError when it is in the pool already."""
        if actor in self._idle_actors or any(busy == actor for _, busy, _ in self._running.values()):
            raise ValueError("Actor already belongs to current ActorPool")
        self._give_back(actor)
