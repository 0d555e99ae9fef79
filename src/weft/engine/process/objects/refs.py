"""What a ref can do beside naming a value: be awaited, be a future, show itself. Added to the native class once.

`await ref` and `ref.future()` ask the core for one call when the value is there (`_native.on_ready`); that call comes
on the core's callback thread and hands over to the loop or the future, so that no thread waits for each ref.
"""

from __future__ import annotations

import contextlib
import types
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.objects import ref_mistakes

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

_installed = False


def install() -> None:
    """Put these on the native class; again is harmless. Part of `ref_callbacks.install`."""
    global _installed
    if _installed:
        return
    _installed = True
    cls: Any = ObjectRef
    cls.__await__ = _await
    cls.future = _future
    cls.as_future = _as_future
    cls.done = cls.is_ready
    cls.task_id = _task_id
    cls.job_id = _job_id
    ref_mistakes.install(cls)
    cls.__repr__ = _repr
    cls.__str__ = _repr
    cls._repr_html_ = _html
    if not hasattr(cls, "__class_getitem__"):
        cls.__class_getitem__ = classmethod(types.GenericAlias)


def _await(self: ObjectRef[Any]) -> Generator[Any, None, Any]:
    if not self.is_ready():
        import asyncio

        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        call_on_loop(self, loop, partial(_finish, ready))
        yield from ready
    return _native.get(self)


def _finish(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def call_on_loop(ref: ObjectRef[Any], loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have the loop make the call once the ref is ready."""
    _native.on_ready(ref, partial(_hand_over, loop, call))


_handed: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Callable[[], None]]] = WeakKeyDictionary()
"""What each loop was given and has not looked at: a loop is woken once for all that comes before it does."""


def _hand_over(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """On the callback thread, the only one that adds."""
    calls = _handed.get(loop)
    if calls is None:
        calls = _handed[loop] = deque()
    calls.append(call)
    if len(calls) == 1:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody awaits any more
            loop.call_soon_threadsafe(_make_calls, loop, calls)


def _make_calls(loop: asyncio.AbstractEventLoop, calls: deque[Callable[[], None]]) -> None:
    try:
        while calls:
            calls[0]()
            calls.popleft()  # after the call, so that who adds meanwhile does not wake the loop again
    except BaseException:  # an interrupt: the others must not be lost with it
        loop.call_soon(_make_calls, loop, calls)
        raise


def signal(ask: Callable[[Callable[[], None]], None]) -> asyncio.Future[None]:
    """A future of the running loop that ends, without a value, when the core makes the call that `ask` asks for."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    ask(partial(_hand_over, loop, partial(_finish, ready)))
    return ready


def _as_future(self: ObjectRef[Any], _internal: bool = False) -> asyncio.Future[Any]:
    """An asyncio future of the running loop with the ref's value."""
    import asyncio

    return asyncio.ensure_future(_value(self))


async def _value(ref: ObjectRef[Any]) -> Any:
    return await ref


def _future(self: ObjectRef[Any]) -> concurrent.futures.Future[Any]:
    """A thread-safe future with the ref's value. Cancelling it does not cancel the task."""
    import concurrent.futures

    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def settle() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = _native.get(self)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    _native.on_ready(self, settle)
    return future


def _task_id(self: ObjectRef[Any]) -> Any:
    """Of the task that makes the value."""
    from weft.ids import TaskID

    return TaskID(self.binary()[: TaskID.size()])


def _job_id(self: ObjectRef[Any]) -> Any:
    from weft.engine.process.session import context_state
    from weft.ids import JobID

    return JobID.from_int(context_state.state.job)


def _repr(self: ObjectRef[Any]) -> str:
    return f"ObjectRef({self.hex()})"


def _html(self: ObjectRef[Any]) -> str:
    """For notebooks."""
    if not _native.is_attached():
        return f"<code>{self!r}</code>: its session is over"
    if self.is_ready():
        return f"<code>{self!r}</code>: ready, <code>weft.get(ref)</code> is its value"
    return f"<code>{self!r}</code>: not ready, <code>weft.explain(ref)</code> says why"
