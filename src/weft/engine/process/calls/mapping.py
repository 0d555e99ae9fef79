"""What `weft.map` returns: a function over many items, in parallel, as an iterator.

Items go to tasks in chunks. Their size follows how long the items take: one at first, then as many as fill `CHUNK_S`.
At most `AHEAD` chunks per CPU are read ahead of what was taken, so the input may be endless and the consumer slow.

1. MAP-1: in order, results are those of the builtin `map`; what the function or the input raises is raised in its turn,
   after the results of the items before it.
2. MAP-2: when the iterator ends, by its end, an error, `close()` or because it was dropped, no chunk of it goes on.

Runs on the thread that iterates.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from weft import _native
from weft.engine.process.calls import errors
from weft.engine.process.calls.chunk_task import Outcome, has_refs
from weft.engine.process.calls.generator import cancel_task
from weft.engine.process.session import attached, cluster, context_state
from weft.exceptions import TaskError
from weft.terminal.bar import Bar

R = TypeVar("R")

CHUNK_S = 0.05
"""A chunk is meant to take so long: much longer than its way to a worker and back."""
GROWTH = 8
"""A chunk has at most so many times the items of one that was measured: the next items may be slower."""
MOST_ITEMS = 1 << 16
AHEAD = 4
LONGEST_SHOWN = 200


def check(iterables: tuple[Iterable[Any], ...], order: Any, chunk: Any) -> None:
    """Of what `weft.map` was given beside the function; TypeError and ValueError say what is wrong."""
    if not iterables:
        raise TypeError("weft.map() needs a function and at least one iterable: weft.map(f, items)")
    for items in iterables:
        if not (hasattr(items, "__iter__") or hasattr(items, "__getitem__") or callable(items)):
            raise TypeError(f"weft.map(f, items) goes through items, such as a list; not iterable is {items!r}")
    if order is not True and order is not False:
        raise TypeError(f"order must be True (as the items are) or False (as the results come), but got {order!r}")
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int)):
        raise TypeError(f"chunk must be a number of items or None, but got {chunk!r}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, but got {chunk}")


class Results(Generic[R]):
    """What `map` returns: an iterator, once. `close()`, or the end of a `with`, ends what is under way."""

    def __init__(
        self, name: str, task: Any, source: Source, order: bool, chunk: int | None, progress: bool | str | None
    ) -> None:
        self._name = name
        self._source = source
        self._values = _results(name, task, source, order, chunk, progress)

    def __iter__(self) -> Iterator[R]:
        """The generator itself: a loop over a million results goes through no method of ours."""
        return self._values  # type: ignore[no-any-return]

    def __next__(self) -> R:
        return next(self._values)  # type: ignore[no-any-return]

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(f"what weft.map() gives comes one after another, so [{index!r}] does not work: list(...) first")

    def close(self) -> None:
        """End what is under way; there are no more results."""
        self._values.close()

    def __enter__(self) -> Results[R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        many = "items" if self._source.total is None else f"{self._source.total:,} items"
        return f"<weft.map({self._name}, {many}): an iterator; list(...) or a loop takes the results>"


class _Chunk:
    """Items that a task was given, and its ref."""

    __slots__ = ("count", "first", "items", "ref", "submit_s")

    def __init__(self, first: int, items: Sequence[Any]) -> None:
        self.first = first
        self.items = items
        self.count = len(items)
        self.ref: Any = None
        self.submit_s = 0.0


class Source:
    """The input: read in chunks, in order."""

    def __init__(self, iterables: tuple[Iterable[Any], ...]) -> None:
        sizes = [len(entry) for entry in iterables if isinstance(entry, Sized)]
        self.total = min(sizes) if len(sizes) == len(iterables) else None
        self.spreads = len(iterables) > 1
        self.read = 0
        self.error: BaseException | None = None
        """What reading it raised."""
        self._sliced: Any = iterables[0] if len(iterables) == 1 and _can_slice(iterables[0]) else None
        self._items: Iterator[Any] = zip(*iterables) if self.spreads else iter(iterables[0])  # noqa: B905

    def take(self, size: int) -> _Chunk | None:
        """The next so many items, or fewer at the end; None after it, and after an error."""
        if self.error is not None:
            return None
        items: Sequence[Any]
        if self._sliced is not None:
            items = self._sliced[self.read : self.read + size]
        else:
            items = []
            try:
                items.extend(itertools.islice(self._items, size))  # what was read before an error stays in the list
            except Exception as error:
                self.error = error
        if not len(items):
            return None
        chunk = _Chunk(self.read, items)
        self.read += len(items)
        return chunk


def _can_slice(items: Any) -> bool:
    """Whether slices have the same items; an array's are views."""
    kind = type(items)
    return kind in (list, tuple, range) or (kind.__module__ == "numpy" and kind.__name__ == "ndarray")


class _Pace:
    """How large the next chunk shall be."""

    def __init__(self, source: Source, chunk: int | None, cpus: int) -> None:
        self._source = source
        self._chunk = chunk
        self._shares = 2 * cpus
        self._size = 1

    def size(self) -> int:
        if self._chunk is not None:
            return self._chunk
        if self._source.total is None:
            return self._size
        left = self._source.total - self._source.read
        return max(1, min(self._size, -(-left // self._shares)))  # the last ones are spread over all CPUs

    def note(self, chunk: _Chunk, took_s: float) -> None:
        """A chunk's time in its worker. Packing it counts too: large items make small chunks."""
        item_s = max(took_s, chunk.submit_s) / chunk.count
        wanted = int(CHUNK_S / item_s) if item_s else MOST_ITEMS
        self._size = max(1, min(wanted, GROWTH * chunk.count, MOST_ITEMS))


def _results(name: str, task: Any, source: Source, order: bool, chunk: int | None, progress: bool | str | None) -> Any:
    """The generator behind `Results`."""
    attached.ensure()
    cpus = max(1, int(cluster.cluster_resources().get("CPU", 1)))
    pace = _Pace(source, chunk, cpus)
    bar = Bar.for_user(progress, source.total, context_state.state.is_worker)
    under_way: deque[_Chunk] = deque()
    try:
        while True:
            while len(under_way) < AHEAD * cpus and (taken := source.take(pace.size())) is not None:
                _submit(task, taken, source.spreads)
                under_way.append(taken)
            if not under_way:
                break
            done = _next_done(under_way, order, bar)
            outcome = _outcome(name, done)
            pace.note(done, outcome.took_s)
            yield from outcome.values
            bar.add(done.count)
            if outcome.error:
                raise _item_error(name, done, len(outcome.values), outcome.error)
        if source.error is not None:
            raise source.error
    finally:
        bar.close()
        _cancel(under_way)


def _submit(task: Any, chunk: _Chunk, spreads: bool) -> None:
    began_s = time.perf_counter()
    chunk.ref = task.remote(chunk.items, has_refs(chunk.items, spreads))
    chunk.submit_s = time.perf_counter() - began_s


def _next_done(under_way: deque[_Chunk], order: bool, bar: Bar) -> _Chunk:
    """Take the chunk whose results come next, when they are there."""
    refs = [under_way[0].ref] if order else [chunk.ref for chunk in under_way]
    while True:
        ready, _ = _native.wait(refs, 1, bar.redraw_s)
        if ready:
            break
        bar.draw(sum(chunk.count for chunk in under_way if chunk.ref.is_ready()))
    place = 0 if order else next(at for at, chunk in enumerate(under_way) if chunk.ref == ready[0])
    found = under_way[place]
    del under_way[place]
    return found


def _outcome(name: str, chunk: _Chunk) -> Outcome:
    try:
        outcome: Outcome = _native.get(chunk.ref)
        return outcome
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"in weft.map({name}), {_named(chunk)}")
        raise


def _item_error(name: str, chunk: _Chunk, place: int, value: bytes) -> BaseException:
    """What the function raised, with the item that it was given."""
    error = errors.load_error(value)
    where = f"in weft.map({name}), {_shown(chunk, place)}"
    if isinstance(error, TaskError):
        error.add_line(where)
    return error


def _named(chunk: _Chunk) -> str:
    if chunk.count == 1:
        return _shown(chunk, 0)
    return f"in a chunk of {chunk.count} items, {chunk.first} to {chunk.first + chunk.count - 1}"


def _shown(chunk: _Chunk, place: int) -> str:
    if place >= chunk.count:
        return _named(chunk)
    try:
        text = repr(chunk.items[place])
    except Exception:
        text = f"a {type(chunk.items[place]).__name__}"
    return f"item {chunk.first + place}: {text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '...'}"


def _cancel(under_way: deque[_Chunk]) -> None:
    """Nobody takes their results any more."""
    while under_way:
        ref = under_way.popleft().ref
        if ref is not None:
            with contextlib.suppress(Exception):  # the session is over: so are they
                cancel_task(ref, False, True)
