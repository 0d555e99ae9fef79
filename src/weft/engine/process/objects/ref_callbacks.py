"""The part of a future's interface that a ref has: `asyncio.wait(refs)` needs it, and callbacks are handy without.

A callback that is added on a thread with a running event loop is called there, else on the core's callback thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.objects import refs
from weft.exceptions import GetTimeoutError

_Key = tuple[bytes, Callable[[ObjectRef[Any]], object]]


class _Callback:
    """One that was added and not called yet, as long as it stands in the table."""

    __slots__ = ("callback", "context", "loop", "ref")

    def __init__(
        self, ref: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], object], context: Context | None
    ) -> None:
        import asyncio

        self.ref, self.callback, self.context = ref, callback, context
        self.loop = asyncio._get_running_loop()

    @property
    def key(self) -> _Key:
        return self.ref.binary(), self.callback

    def __call__(self) -> None:
        same = _added.get(self.key, [])
        if self not in same:
            return  # it was removed
        same.remove(self)
        if not same:
            _added.pop(self.key, None)
        if self.loop is not None:
            self.loop.call_soon(self.callback, self.ref, context=self.context)
        else:
            (self.context or Context()).run(self.callback, self.ref)


_added: dict[_Key, list[_Callback]] = {}


def add_done_callback(
    self: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], object], *, context: Context | None = None
) -> None:
    """Have `callback(ref)` called once a value or an error is there."""
    added = _Callback(self, callback, context)
    _added.setdefault(added.key, []).append(added)
    if added.loop is not None:
        refs.call_on_loop(self, added.loop, added)
    else:
        _native.on_ready(self, added)


def remove_done_callback(self: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], object]) -> int:
    """How many were taken back before they were called."""
    return len(_added.pop((self.binary(), callback), ()))


def exception(self: ObjectRef[Any], timeout: float | None = None) -> BaseException | None:
    """What `weft.get` would raise; a timeout is raised."""
    from weft.engine.process.api import get  # not needed by every worker

    try:
        get(self, timeout=timeout)
    except GetTimeoutError:
        raise
    except Exception as error:
        return error
    return None


def result(self: ObjectRef[Any], timeout: float | None = None) -> Any:
    """As `weft.get`."""
    from weft.engine.process.api import get

    return get(self, timeout=timeout)


def install() -> None:
    """Put all that a ref can do on the native class; again is harmless."""
    refs.install()
    for method in (result, exception, add_done_callback, remove_done_callback):
        setattr(ObjectRef, method.__name__, method)
