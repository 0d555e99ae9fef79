"""What a pool's calls return: results to wait for, and iterators over results.

A result is ready after its callback has run, so `result.wait()` and then reading what the callback wrote is safe.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from multiprocessing import TimeoutError
from typing import Any, Protocol

from weft.util.dispatch import Dispatcher, Job, Pace
from weft.util.multiprocessing.worker import Failed, chunks_of
from weft.util.portable_function import Packed

__all__ = ["ApplyResult", "AsyncResult", "Chunk", "IMapIterator", "IMapUnorderedIterator", "MapResult"]

Callback = Callable[[Any], object]


class Call:
    """What all chunks of a call have in common."""

    __slots__ = ("kind", "pace", "packed")

    def __init__(self, packed: Packed, kind: int, pace: Pace | None) -> None:
        self.packed = packed
        self.kind = kind
        self.pace = pace


class Owner(Protocol):
    def chunk_settled(self, chunk: Chunk) -> None: ...
    def chunk_announced(self) -> None: ...


LEAST_AHEAD = 64
"""An imap over an iterator reads so many chunks ahead of what was taken from it, or eight a worker if that is more."""


class Chunk(Job):
    """Some calls that one worker makes at a time; `owner` is a result or an iterator."""

    __slots__ = ("call", "is_settled", "items", "owner", "value")

    def __init__(self, call: Call, items: Any, owner: Owner) -> None:
        self.call = call
        self.items = items
        self.owner = owner
        self.is_settled = False
        self.value: Any = None

    @property
    def pace(self) -> Pace | None:  # type: ignore[override]
        return self.call.pace

    def settle(self, value: Any, error: BaseException | None) -> None:
        self.value = value if error is None else Failed(error)
        self.is_settled = True
        self.items = None
        self.owner.chunk_settled(self)

    def announce(self) -> None:
        self.owner.chunk_announced()


class ApplyResult:
    """Of one call. `get` raises what the call raised."""

    def __init__(self, dispatcher: Dispatcher, callback: Callback | None, error_callback: Callback | None) -> None:
        self._dispatcher = dispatcher
        self._callback = callback
        self._error_callback = error_callback
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_complete = False
        self._is_told = False
        self._is_ready = threading.Event() if callback or error_callback else None

    def ready(self) -> bool:
        return self._is_complete and (self._is_ready is None or self._is_ready.is_set())

    def successful(self) -> bool:
        """Whether nothing was raised; ValueError while it is not ready."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._is_complete:
            self._dispatcher.wait(lambda: self._is_complete, timeout)
        if self._is_complete and self._is_ready is not None:
            self._is_ready.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def get(self, timeout: float | None = None) -> Any:
        """The value; multiprocessing.TimeoutError when it takes longer."""
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def chunk_settled(self, chunk: Chunk) -> None:
        if isinstance(chunk.value, Failed):
            self._error = chunk.value.error
        else:
            self._value = chunk.value
        self._is_complete = True

    def chunk_announced(self) -> None:
        """Run the callback, if there is one, on the dispatcher's thread."""
        if self._is_complete and self._is_ready is not None and not self._is_told:
            self._is_told = True
            self._dispatcher.later(self._call_back)

    def _call_back(self) -> None:
        assert self._is_ready is not None
        try:
            if self._error is None and self._callback is not None:
                self._callback(self._value)
            elif self._error is not None and self._error_callback is not None:
                self._error_callback(self._error)
        except Exception:
            traceback.print_exc()
        finally:
            self._callback = self._error_callback = None
            self._is_ready.set()


AsyncResult = ApplyResult


class MapResult(ApplyResult):
    """Of many calls, a list. It is complete when all chunks are; the first error counts."""

    def __init__(self, dispatcher: Dispatcher, callback: Callback | None, error_callback: Callback | None) -> None:
        super().__init__(dispatcher, callback, error_callback)
        self._chunks: list[Chunk] = []
        self._unsettled = 0

    def make_chunks(self, call: Call, items: Sequence[Any], size: int) -> list[Chunk]:
        self._chunks = [Chunk(call, part, self) for part in chunks_of(items, size)]
        self._unsettled = len(self._chunks)
        if not self._chunks:
            self._finish()
            self.chunk_announced()
        return self._chunks

    def chunk_settled(self, chunk: Chunk) -> None:
        if isinstance(chunk.value, Failed) and self._error is None:
            self._error = chunk.value.error
        self._unsettled -= 1
        if not self._unsettled:
            self._finish()

    def _finish(self) -> None:
        if self._error is None:
            self._value = list(chain.from_iterable(chunk.value for chunk in self._chunks))
        self._chunks = []
        self._is_complete = True


class IMapIterator:
    """Results in order. `next(timeout)` raises what that one call raised, and the one after it can be had still.

    Over an iterator it reads ahead so far and no further: an endless one is fine."""

    def __init__(self, dispatcher: Dispatcher, call: Call, source: Any, size: int, lanes: int) -> None:
        self._dispatcher = dispatcher
        self._call = call
        self._size = size
        self._current: Iterator[Any] = iter(())
        self._open: deque[Chunk] = deque()
        """Chunks not yet taken: all of them in order, or those settled when order does not matter."""
        self._untaken = 0
        self._ahead = max(LEAST_AHEAD, 8 * lanes)
        self._source: Iterator[Any] | None = iter(source)
        self._pulling = threading.RLock()
        if type(source) in (list, tuple, range):
            self._source = None
            self._add([self._make_chunk(part) for part in chunks_of(source, size)])
        else:
            self.pull()

    def __iter__(self) -> IMapIterator:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result; multiprocessing.TimeoutError when it takes longer."""
        while True:
            for value in self._current:
                if isinstance(value, Failed):
                    raise value.error
                return value
            if self._source is not None:
                self.pull()
            if not self._untaken:
                raise StopIteration
            if not self._has_next() and not self._dispatcher.wait(self._has_next, timeout):
                raise TimeoutError
            with self._dispatcher.lock:
                chunk = self._open.popleft()
                self._untaken -= 1
            self._current = iter([chunk.value] if isinstance(chunk.value, Failed) else chunk.value)

    # ---- reading ahead ----

    def pull(self, everything: bool = False) -> None:
        """Read on in the source; all of it where the pool is about to end."""
        with self._pulling:
            while self._source is not None and (everything or self._untaken < self._ahead):
                try:
                    part = list(islice(self._source, self._size))
                except Exception as error:
                    self._source = None
                    self._add_failed(error)
                    return
                if not part:
                    self._source = None
                    return
                self._add([self._make_chunk(part)])

    @property
    def is_exhausted(self) -> bool:
        return self._source is None

    def _make_chunk(self, part: Sequence[Any]) -> Chunk:
        return Chunk(self._call, part, self)

    def _add(self, chunks: list[Chunk]) -> None:
        with self._dispatcher.lock:
            self._untaken += len(chunks)
            self._expect(chunks)
        self._dispatcher.add(chunks)

    def _add_failed(self, error: Exception) -> None:
        """The source raised: so does the place where its next item would have been."""
        chunk = self._make_chunk(())
        with self._dispatcher.lock:
            self._untaken += 1
            self._expect([chunk])
            chunk.settle(None, error)

    # ---- in order, or not ----

    def _expect(self, chunks: list[Chunk]) -> None:
        self._open.extend(chunks)

    def _has_next(self) -> bool:
        return self._open[0].is_settled

    def chunk_settled(self, chunk: Chunk) -> None:
        """In order there is nothing to do: the chunk has its place."""

    def chunk_announced(self) -> None:
        """Whoever waits looks by itself."""


class IMapUnorderedIterator(IMapIterator):
    """Results as they come."""

    def _expect(self, chunks: list[Chunk]) -> None:
        """A chunk gets its place when it is settled."""

    def _has_next(self) -> bool:
        return bool(self._open)

    def chunk_settled(self, chunk: Chunk) -> None:
        self._open.append(chunk)
