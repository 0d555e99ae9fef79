"""A line at the terminal while a driver waits long: how much is done, what runs, what waits and why.

Drawn where `status_line` finds somebody who would see it, only for a wait that has lasted `AFTER_S`, and wiped when
the wait is over. The waiting thread draws it itself, between two pieces of its wait.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.session import context_state
from weft.exceptions import GetTimeoutError
from weft.terminal.status_line import Line

T = TypeVar("T")
AFTER_S = 2.0
EVERY_S = 0.5
ASK_S = 1.0
"""How long the daemon may take to say what waits."""


def get(wait: Callable[[Any, float], T], refs: Any, timeout_s: float) -> T:
    """`wait(refs, timeout_s)`, in pieces once it takes long. What it raises, it raises."""
    began_s = time.monotonic()
    deadline_s = None if timeout_s < 0 else began_s + timeout_s
    line = Line()
    piece_s = AFTER_S
    try:
        while True:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            is_last = left_s is not None and left_s <= piece_s
            try:
                return wait(refs, max(0.0, left_s) if is_last and left_s is not None else piece_s)
            except GetTimeoutError as error:
                if all(ref.is_ready() for ref in _listed(refs)):
                    raise  # a task raised it
                if is_last:  # which knows only of the last piece
                    raise GetTimeoutError(re.sub(r"waited \S+ s", f"waited {timeout_s:g} s", str(error))) from None
                line.show(describe(refs, time.monotonic() - began_s))
                piece_s = EVERY_S
    finally:
        line.wipe()


def wait(
    refs: Any, num_returns: int, timeout_s: float = -1.0, due_ns: int = 0, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """`_native.wait`, in pieces once it takes long in a driver."""
    if context_state.state.is_worker:
        return _native.wait(refs, num_returns, timeout_s, due_ns, fetch_local)
    began_s = time.monotonic()
    line = Line()
    piece_s = AFTER_S
    try:
        while True:
            left_s = float("inf") if timeout_s < 0 else began_s + timeout_s - time.monotonic()
            given_s = max(0.0, min(left_s, piece_s))
            found = _native.wait(refs, num_returns, given_s, due_ns, fetch_local)
            if len(found[0]) >= num_returns or left_s <= piece_s:
                return found
            line.show(describe(refs, time.monotonic() - began_s, num_returns))
            piece_s = EVERY_S
    finally:
        line.wipe()


def _listed(refs: Any) -> Sequence[ObjectRef[Any]]:
    return [refs] if isinstance(refs, ObjectRef) else refs


def describe(refs: Any, spent_s: float, num_returns: int | None = None) -> str:
    """`12 of 40 done, 4 run, 24 pending (waits for a worker: 0 of 4 CPU free), 8 s`"""
    wanted = _listed(refs)
    done = sum(ref.is_ready() for ref in wanted)
    counts: dict[str, int] = {}
    shape = -1
    for row in _native.submitted_tasks(10_000):
        counts[row["state"]] = counts.get(row["state"], 0) + 1
        if row["state"] == "PENDING_NODE_ASSIGNMENT" and shape < 0:
            shape = row["shape"]
    running = counts.get("RUNNING", 0)
    pending = len(wanted) - done
    words = [f"{done} of {len(wanted)} done", f"{running} run", f"{pending} pending"]
    if num_returns is not None and num_returns < len(wanted):
        words[0] += f" ({num_returns} wanted)"
    if why := _why(counts, shape):
        words[-1] += f" ({why})"
    return f"{', '.join(words)}, {spent_s:.0f} s"


def _why(counts: dict[str, int], shape: int) -> str:
    """`shape` is what the first of those needs that wait for a worker."""
    if waiting := counts.get("PENDING_NODE_ASSIGNMENT", 0):
        return f"{waiting} wait for a worker{_never(shape) or _free()}"
    if waiting := counts.get("PENDING_ARGS_AVAIL", 0):
        return f"{waiting} wait for arguments"
    return ""


def _never(shape: int) -> str:
    """What is asked for, if no node can ever give it; else nothing."""
    from weft.engine.process.session import rpc

    try:
        _, never = rpc.request("why_pending", timeout_s=ASK_S, shape=shape)
    except Exception:
        return ""
    return f": one asks for {never}, which no node can ever hold as the cluster is" if never else ""


def _free() -> str:
    """What of the CPUs is free; nothing when the daemon is too busy to say."""
    from weft.engine.process.session import rpc

    try:
        free = rpc.request("available_resources", timeout_s=ASK_S).get("CPU", 0.0)
        total = rpc.request("cluster_resources", timeout_s=ASK_S).get("CPU", 0.0)
    except Exception:
        return ""
    return f": {free:g} of {total:g} CPU free"
