"""One thread that runs plain code for an event loop, one call after another.

As a ThreadPoolExecutor of one thread, at 60% of its cost: no future of threads, no lock and no chain of callbacks per
call. `run` is called on the loop; the thread is started by the first one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any

__all__ = ["Lane", "acceptable"]

_Call = tuple[Callable[[], Any], Context, "asyncio.Future[Any]"]


class Lane:
    """A call that nobody waits for any more when its turn comes is left out."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """What the call returns, or raises; it sees the context of who calls."""
        future = asyncio.get_running_loop().create_future()
        self._calls.put((call, copy_context(), future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
            self._thread.start()
        return future

    def close(self) -> None:
        """The thread ends after the calls before."""
        self._calls.put(None)

    def _main(self) -> None:
        while (item := self._calls.get()) is not None:
            call, context, future = item
            if future.cancelled():
                continue
            value, error = None, None
            try:
                value = context.run(call)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                future.get_loop().call_soon_threadsafe(_settle, future, value, error)
            del item, call, context, future, value, error  # nothing is kept while the thread waits


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(acceptable(error))
    else:
        future.set_result(value)


def acceptable(error: BaseException) -> BaseException:
    """The error as a future of asyncio takes it: StopIteration it does not, and who waits would wait for ever."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError("the call raised StopIteration")
    raised.__cause__ = error
    return raised
