"""Tells the node daemon what tasks raised here, for people who look at the cluster and not at the driver.

Runs on the thread that fails. At most `MOST_A_SECOND` are told; the next one says how many were not.
"""

from __future__ import annotations

import contextlib
import time

from weft.engine.process import current, errors, rpc
from weft.engine.wire.messages import Request

MOST_A_SECOND = 5
LONGEST_TEXT = 16 << 10
_second = 0
_told = 0
_untold = 0


def tell(error: BaseException, name: str) -> None:
    """Never raises: the task's own answer must not suffer."""
    global _second, _told, _untold
    if isinstance(error, SystemExit):
        return
    now = int(time.monotonic())
    if now != _second:
        _second, _told = now, 0
    if _told >= MOST_A_SECOND:
        _untold += 1
        return
    with contextlib.suppress(Exception):
        text = errors.format_remote(error)
        task, attempt, _, actor = current.task()
        row = {
            "task_id": task.hex(),
            "name": name,
            "attempt": attempt,
            "actor_id": actor.hex(),
            "error_type": type(error).__name__,
            "traceback": text if len(text) <= LONGEST_TEXT else f"…{text[-LONGEST_TEXT:]}",
            "untold": _untold,
        }
        rpc.send(Request(0, "task_failed", row))
        _told, _untold = _told + 1, 0
