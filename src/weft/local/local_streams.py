"""Generators of a local session. A task's or a serial actor's runs when its next item is asked for, on the asker's
thread; a concurrent actor's runs by itself, a window ahead of what is taken.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.calls.generator import ObjectRefGenerator
from weft.engine.process.session import context_state
from weft.engine.wire.kinds import ErrorCode
from weft.exceptions import GetTimeoutError

if TYPE_CHECKING:
    from weft.local.local_tasks import Run


class PulledGenerator(ObjectRefGenerator):
    """Runs as far as it is asked to. `completed()` runs it to its end."""

    __slots__ = ("_ahead", "_failed", "_items", "_make", "_run")

    def __init__(self, ref: ObjectRef[Any], run: Run, make: Callable[[], Iterable[Any]] | None) -> None:
        """Without `make` the task has failed before it ran: `ref` has the error."""
        super().__init__(ref)
        self._run = run
        self._make = make
        self._items: Iterator[Any] | None = None
        self._ahead: deque[ObjectRef[Any]] = deque()
        self._failed = make is None

    def _take(self, timeout_s: float) -> ObjectRef[Any] | None:
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        if self._ahead:
            return self._ahead.popleft()
        if self._failed:
            self._failed, self._ended = False, True
            return self._generator_ref
        item = self._pull()
        self._ended = item is None
        return item

    def _pull(self) -> ObjectRef[Any] | None:
        """Run the generator to its next `yield`."""
        if self._make is None:
            return None
        try:
            with self._run.entered():
                if self._items is None:
                    self._items = iter(self._make())
                return _native.put_result(next(self._items))
        except StopIteration:
            self._end(b"")
            return None
        except BaseException as error:
            last = _native.put_error(self._run.error_value(error))
            self._end(b"")
            return last

    def _end(self, error: bytes) -> None:
        self._make = self._items = None
        _native.keep_promise(self._generator_ref, None, error)

    def completed(self) -> ObjectRef[Any]:
        while (item := self._pull()) is not None:
            self._ahead.append(item)
        return self._generator_ref

    def _on_item(self, callback: Callable[[], None]) -> None:
        callback()

    def cancel(self, force: bool = False, recursive: bool = True) -> None:
        """What was not asked for will not be; whoever goes on is told."""
        if self._make is not None:
            self._stop()
            self._end(_native.error_value(ErrorCode.CANCELLED, f"generator {self._run.name} was cancelled"))
            self._failed = True

    def close(self) -> None:
        self._ended, self._peeked, self._failed = True, None, False
        self._ahead.clear()
        if self._make is not None:
            self._stop()
            self._end(b"")

    def _stop(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:
            with self._run.entered():
                close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class Stream:
    """Items that a concurrent actor's call has made and nobody has taken."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._changed = threading.Condition()
        self._items: deque[ObjectRef[Any]] = deque()
        self._callbacks: list[Callable[[], None]] = []
        self.is_over = False
        self.is_closed = False

    def add(self, item: ObjectRef[Any]) -> int:
        """1 when more may come, 0 when the consumer must catch up, -1 when it wants no more."""
        with self._changed:
            if not self.is_closed:
                self._items.append(item)
        self._tell()
        return self.room()

    def room(self) -> int:
        return -1 if self.is_closed else int(len(self._items) < self._window)

    def end(self) -> None:
        self.is_over = True
        self._tell()

    def close(self) -> None:
        self.is_closed = True
        self._items.clear()
        self._tell()

    def take(self, timeout_s: float) -> ObjectRef[Any] | None:
        """The next item, None at the end; GetTimeoutError."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: self._items or self.is_over or self.is_closed, None if timeout_s < 0 else timeout_s
            )
            if not arrived:
                raise GetTimeoutError(f"no item came within {timeout_s:g} s")
            return self._items.popleft() if self._items else None

    def on_item(self, callback: Callable[[], None]) -> None:
        with self._changed:
            if not (self._items or self.is_over or self.is_closed):
                self._callbacks.append(callback)
                return
        callback()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class PushedGenerator(ObjectRefGenerator):
    """The consumer's end of a `Stream`."""

    __slots__ = ("_stream",)

    def __init__(self, ref: ObjectRef[Any], stream: Stream) -> None:
        super().__init__(ref)
        self._stream = stream

    def _take(self, timeout_s: float) -> ObjectRef[Any] | None:
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        item = None if self._ended else self._stream.take(timeout_s)
        self._ended = item is None
        return item

    def _on_item(self, callback: Callable[[], None]) -> None:
        self._stream.on_item(callback)

    def cancel(self, force: bool = False, recursive: bool = True) -> None:
        local = context_state.state.local
        if local is not None:
            local.cancel(self._generator_ref, force)

    def close(self) -> None:
        self._ended, self._peeked = True, None
        self._stream.close()

    def __del__(self) -> None:
        self._stream.close()
