"""What this process tells of its long waits, for who looks for deadlocks (`engine/state/deadlock.py`).

Runs on the callback thread, and only after some wait on the node has lasted for a second. Told is what can be stuck;
what is left out counts as something that goes on: a thread that computes, a wait with a timeout, a coroutine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from typing import Any

from weft import _native
from weft.engine.process.session import context_state

MOST_TASKS = 10_000
Row = dict[str, Any]
"""The fields of a `deadlock.Waiting`."""


def rows(me: str, asked: list[bytes]) -> list[Row]:
    """Of this process, by its name in the cluster; `asked` are objects that others want and this one may own."""
    state = context_state.state
    waits, hindrances = _native.long_waits(asked)
    out = [_object(me, *one) for one in hindrances]
    waiting: dict[int, Row] = {}
    for number, thread, began_s, name, objects in waits:
        who = f"{name or ('a thread' if state.is_worker else 'the driver')} (pid {os.getpid()})"
        key = f"wait:{me}:{number}"
        on = [f"object:{one.hex()}" for one in objects]
        # One that waits for too many things to be told waits for what is unknown.
        out.append({"key": key, "on": on or ["unknown"], "text": f"{who} waits", "began_s": began_s})
        waiting[thread] = _row(_thread(me, thread), [key])
    out += waiting.values()
    calls = state.calls
    if calls is not None:
        out += _concurrent(me, calls, waiting)
    elif state.is_worker:
        out += _serial(me, waiting)
    if _is_quiet(waiting):
        out.append(_row(f"process:{me}", [_thread(me, thread) for thread in waiting]))
    return out


def _row(key: str, on: list[str], needed: int = 1, text: str = "") -> Row:
    return {"key": key, "on": on, "needed": needed, "text": text}


def _thread(me: str, thread: int) -> str:
    return f"thread:{me}:{thread}"


def _object(me: str, identity: bytes, kind: str, what: list[bytes], shape: int, task: str) -> Row:
    key = f"object:{identity.hex()}"
    if kind == "t":
        return _row(key, [f"task:{what[0].hex()}"], text=f"for {task}")
    if kind == "o":
        on = [f"object:{one.hex()}" for one in what]
        return _row(key, on, len(on), f"for {task}, which needs an argument that is not there")
    if kind == "a":
        return _row(key, [f"actor:{what[0].hex()}"], text=f"for {task}, whose actor is not up")
    return _row(key, [f"shape:{me}:{shape}"], text=f"for {task}, which waits for resources")


def _serial(me: str, waiting: dict[int, Row]) -> Iterator[Row]:
    """What a worker's one main thread has before it."""
    main = threading.main_thread().ident
    if main not in waiting:
        return
    running, queued = _native.waiting_tasks(MOST_TASKS)
    yield _row(f"main:{me}", [_thread(me, main)])
    if running:
        yield _row(f"task:{running.hex()}", [_thread(me, main)], text=f"which runs in pid {os.getpid()}")
    for task in queued:
        text = f"which is queued in pid {os.getpid()} behind the call that waits there"
        yield _row(f"task:{task.hex()}", [_thread(me, main)], text=text)


def _concurrent(me: str, calls: Any, waiting: dict[int, Row]) -> Iterator[Row]:
    """A call on a thread of its own; one that waits for such a thread; all that share an event loop's."""
    for task, threads in calls.waiting_on(waiting):
        text = f"which runs or is queued in pid {os.getpid()}"
        yield _row(f"task:{task.hex()}", [_thread(me, thread) for thread in threads], text=text)


def _is_quiet(waiting: Collection[int]) -> bool:
    """Whether nothing is done here unless a wait ends or something is sent: no other thread of the user's runs."""
    state = context_state.state
    if state.calls is not None:
        return False
    main = threading.main_thread()
    known = {main.ident, threading.get_ident(), *waiting}
    if any(thread.ident not in known for thread in threading.enumerate()):
        return False
    return main.ident in waiting or (state.is_worker and not _native.waiting_tasks(1)[0])
