"""One call of an actor that takes several at once, and running it on the thread that has it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.engine.process.calls import current
from weft.engine.process.calls.errors import ActorExit
from weft.engine.process.worker import lifecycle

if TYPE_CHECKING:
    from weft.engine.process.actors.concurrency import ConcurrentCalls

ROOM_POLL_S = 0.001
"""How often a generator that is a window ahead of its consumer looks whether it may go on."""


class Call:
    """One call: what to run, and the native call to answer."""

    __slots__ = (
        "args", "group", "has_begun", "has_resigned", "is_cancelled", "kwargs", "method", "name", "native", "streams",
        "task", "thread",
    )  # fmt: skip

    def __init__(
        self,
        native: Any,
        name: str,
        method: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        task: current.Task | None,
    ) -> None:
        self.native = native
        self.name = name
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.streams: bool = native.streams()
        self.is_cancelled = False
        self.has_begun = False
        """Of a coroutine: whether its first step was taken."""
        self.has_resigned = False
        self.task = task or _native.current_task()
        self.group: Any = None
        self.thread = 0
        """That runs it; 0 while it waits for one."""


def run_here(call: Call, calls: ConcurrentCalls) -> None:
    """Run a plain method on this thread."""
    value: Any = None
    try:
        if calls.is_leaving:
            raise ActorExit(lifecycle.EXIT_TEXT)
        if not call.is_cancelled:
            value = call.method(*call.args, **call.kwargs)
            if call.streams:
                stream_here(call, value)
                value = None
    except BaseException as error:
        calls.ended(call, None, error)
    else:
        calls.ended(call, value, None)


def bound_method(instance: Any, name: str) -> Any:
    """Of the class, bound; an attribute of the instance with the same name does not hide it. As the core finds it."""
    cls = type(instance)
    found: Any = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return found.__get__(instance, cls) if hasattr(found, "__get__") else getattr(instance, name)


def stream_here(call: Call, items: Iterable[Any]) -> None:
    """Send a generator's items as the consumer takes them; close it when nobody reads on."""
    for item in items:
        room = call.native.item(item)
        while room == 0 and not call.is_cancelled:
            time.sleep(ROOM_POLL_S)
            room = call.native.room()
        if room < 0 or call.is_cancelled:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            return
