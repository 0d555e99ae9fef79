"""Parallel maps over many items, and iterators that are spread over shards.

`map` and `map_unordered` run one task an item, with a bound on what is under way. A `ParallelIterator` is a number of
shards, each a generator that one task runs; what is chained onto it runs there too, and results stream back as they
are taken, at most a window ahead.

>>> list(map(lambda x: 2 * x, range(3)))
[0, 2, 4]
>>> sorted(from_range(4, num_shards=2).for_each(lambda x: x * x).gather_sync())
[0, 1, 4, 9]
"""

from __future__ import annotations

import builtins
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, islice, pairwise
from typing import Any

import weft
from weft.util.mapping import as_completed
from weft.util.mapping import map_unordered as _map_unordered

__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "as_completed",
    "from_items",
    "from_iterators",
    "from_range",
    "map",
    "map_unordered",
]

IN_FLIGHT = 100
Stage = Callable[[Iterator[Any]], Iterator[Any]]


# ---- maps ------------------------------------------------------------------------------------------


def map(fn: Callable[..., Any], items: Iterable[Any], *, in_flight: int = IN_FLIGHT) -> Iterator[Any]:
    """`fn` of each item, as tasks; the results in order. `fn` may be a remote function. At most `in_flight` calls are
    under way or done and not taken, so the items may be endless.

    >>> list(map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    if in_flight < 1:
        raise ValueError(f"in_flight must be at least 1, but got {in_flight}")
    return _map(_remote(fn), iter(items), in_flight)


def _map(submit: Any, items: Iterator[Any], in_flight: int) -> Iterator[Any]:
    pending = deque(submit.remote(item) for item in islice(items, in_flight))
    while pending:
        value = weft.get(pending.popleft())
        pending.extend(submit.remote(item) for item in islice(items, 1))
        yield value


def map_unordered(fn: Callable[..., Any], items: Iterable[Any], *, in_flight: int = IN_FLIGHT) -> Iterator[Any]:
    """As `map`, the results as they come.

    >>> sorted(map_unordered(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    if in_flight < 1:
        raise ValueError(f"in_flight must be at least 1, but got {in_flight}")
    return _map_unordered(_remote(fn), items, backpressure_size=in_flight, chunk_size=1)


def _remote(fn: Callable[..., Any]) -> Any:
    return fn if hasattr(fn, "remote") else weft.remote(fn)


# ---- where a parallel iterator comes from ----------------------------------------------------------


def from_items(items: Sequence[Any], num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """The items dealt out to the shards in turn; over and over when `repeat`.

    >>> sorted(from_items(["a", "b", "c"]).for_each(str.upper).gather_sync())
    ['A', 'B', 'C']
    """
    if num_shards < 1:
        raise ValueError(f"num_shards must be at least 1, but got {num_shards}")
    return from_iterators([items[shard::num_shards] for shard in range(num_shards)], repeat, "from_items")


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """0 to n - 1, an unbroken part of it for each shard.

    >>> from_range(6, num_shards=2).for_each(lambda x: x * x).take(4)
    [0, 9, 1, 16]
    """
    if num_shards < 1:
        raise ValueError(f"num_shards must be at least 1, but got {num_shards}")
    bounds = [n * shard // num_shards for shard in range(num_shards + 1)]
    parts = [range(start, end) for start, end in pairwise(bounds)]
    return from_iterators(parts, repeat, "from_range")


def from_iterators(
    generators: Sequence[Iterable[Any] | Callable[[], Iterable[Any]]], repeat: bool = False, name: str | None = None
) -> ParallelIterator:
    """A shard for each: something to iterate over, or a function without arguments that makes it, in the shard."""
    return ParallelIterator([_Shard(source, repeat) for source in generators], name or "from_iterators")


class _Shard:
    """A source and what is done to its items, in order. Travels to the task that runs it."""

    def __init__(self, source: Any, repeat: bool, stages: tuple[Stage, ...] = ()) -> None:
        self.source = source
        self.repeat = repeat
        self.stages = stages

    def then(self, stage: Stage) -> _Shard:
        return _Shard(self.source, self.repeat, (*self.stages, stage))

    def __iter__(self) -> Iterator[Any]:
        items: Iterator[Any] = chain.from_iterable(self._rounds())
        for stage in self.stages:
            items = stage(items)
        return items

    def _rounds(self) -> Iterator[Iterable[Any]]:
        for _ in count() if self.repeat else range(1):
            yield self.source() if callable(self.source) else self.source


def _run_shard(shard: _Shard) -> Iterator[Any]:
    yield from shard


# ---- what can be chained: the same in a shard and in the driver ------------------------------------


class _Chain:
    """Stages that both kinds of iterators have. None of them changes the iterator that it is called on."""

    def _then(self, stage: Stage, name: str) -> Any:
        raise NotImplementedError

    def for_each(self, fn: Callable[[Any], Any]) -> Any:
        """`fn` of each item."""
        return self._then(lambda items: builtins.map(fn, items), "for_each")

    def filter(self, fn: Callable[[Any], bool]) -> Any:
        """The items of which `fn` is true."""
        return self._then(lambda items: builtins.filter(fn, items), "filter")

    def batch(self, n: int) -> Any:
        """Lists of n items; the last may be shorter."""
        if n < 1:
            raise ValueError(f"n must be at least 1, but got {n}")
        return self._then(lambda items: iter(lambda: list(islice(items, n)), []), f"batch({n})")

    def flatten(self) -> Any:
        """The items of the items."""
        return self._then(chain.from_iterable, "flatten")

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> Any:
        """The items of `fn` of each item."""
        return self.for_each(fn).flatten()

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> Any:
        """In a random order, drawn from a buffer of so many items."""
        if shuffle_buffer_size < 1:
            raise ValueError(f"shuffle_buffer_size must be at least 1, but got {shuffle_buffer_size}")
        return self._then(lambda items: _shuffled(items, shuffle_buffer_size, seed), "local_shuffle")


def _shuffled(items: Iterator[Any], size: int, seed: int | None) -> Iterator[Any]:
    draw = random.Random(seed)
    buffer = list(islice(items, size))
    for item in items:
        place = draw.randrange(size)
        buffer[place], item = item, buffer[place]
        yield item
    draw.shuffle(buffer)
    yield from buffer


class ParallelIterator(_Chain):
    """Shards, each of which one task runs once it is gathered. Nothing runs before."""

    def __init__(self, shards: Sequence[_Shard], name: str) -> None:
        self._shards = list(shards)
        self.name = name

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}, {self.num_shards()} shards]"

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a ParallelIterator is iterated over through gather_sync() or gather_async()")

    def _then(self, stage: Stage, name: str) -> ParallelIterator:
        return ParallelIterator([shard.then(stage) for shard in self._shards], f"{self.name}.{name}()")

    def num_shards(self) -> int:
        """How many parts it has."""
        return len(self._shards)

    def union(self, other: ParallelIterator) -> ParallelIterator:
        """The shards of both."""
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"other must be a ParallelIterator, but got {other!r}")
        return ParallelIterator(self._shards + other._shards, f"{self.name} + {other.name}")

    def select_shards(self, shards_to_keep: Iterable[int]) -> ParallelIterator:
        """Of these parts alone."""
        return ParallelIterator([self._shards[index] for index in shards_to_keep], self.name)

    def gather_sync(self) -> LocalIterator:
        """An item of each shard in turn: the same order each time."""
        return LocalIterator(lambda: _in_turn(self._start()), f"{self.name}.gather_sync()")

    def gather_async(self) -> LocalIterator:
        """Items as they come from any shard."""
        return LocalIterator(lambda: _as_they_come(self._start()), f"{self.name}.gather_async()")

    def shards(self) -> list[LocalIterator]:
        """Its parts, each an iterator of this process."""
        return [self.get_shard(index) for index in range(self.num_shards())]

    def get_shard(self, shard_index: int) -> LocalIterator:
        """The items of one shard."""
        return self.select_shards([shard_index]).gather_sync()

    def take(self, n: int) -> list[Any]:
        """The first items, of all parts in turn."""
        return self.gather_sync().take(n)

    def _start(self) -> list[Any]:
        run: Any = weft.remote(_run_shard)
        return [run.remote(shard) for shard in self._shards]


class LocalIterator(_Chain):
    """Items in this process. Each `iter()` of it starts anew."""

    def __init__(self, start: Callable[[], Iterator[Any]], name: str) -> None:
        self._start = start
        self.name = name
        self._running: Iterator[Any] | None = None

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    def __iter__(self) -> Iterator[Any]:
        return self._start()

    def __next__(self) -> Any:
        if self._running is None:
            self._running = self._start()
        return next(self._running)

    def _then(self, stage: Stage, name: str) -> LocalIterator:
        return LocalIterator(lambda: stage(self._start()), f"{self.name}.{name}")

    def take(self, n: int) -> list[Any]:
        """The first n items, or all when there are fewer."""
        return list(islice(self, n))


def _in_turn(streams: list[Any]) -> Iterator[Any]:
    while streams:
        for stream in list(streams):
            try:
                ref = next(stream)
            except StopIteration:
                streams.remove(stream)
            else:
                yield weft.get(ref)


def _as_they_come(streams: list[Any]) -> Iterator[Any]:
    while streams:
        ready: list[Any] = weft.wait(streams, num_returns=1)[0]
        for stream in ready:
            try:
                ref = next(stream)
            except StopIteration:
                streams.remove(stream)
                continue
            streams.append(streams.pop(streams.index(stream)))  # so that a fast one does not hide the others
            yield weft.get(ref)
