"""Which task the calling code belongs to.

On a thread that runs one task at a time the native core knows. On an event loop, where coroutines of many calls take
turns, a context variable does: asyncio hands it on to every task that a call creates. The core is told nothing
there, so that children's ids come from its one process-wide counter.
"""

from __future__ import annotations

from contextvars import ContextVar

from weft import _native

Task = tuple[bytes, int, str, bytes]
"""(id, attempt, name, actor id or empty), as `_native.current_task` gives it."""

on_loop: ContextVar[Task | None] = ContextVar("weft_task", default=None)


def task() -> Task:
    """Of the calling thread or coroutine. The name is empty outside a task."""
    return on_loop.get() or _native.current_task()


def name() -> str:
    """Never raises: it runs inside print()."""
    try:
        return task()[2]
    except Exception:
        return ""
