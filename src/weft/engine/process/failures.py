"""Tells the node daemon what tasks raised here, for people who look at the cluster and not at the driver.

Runs on the thread that fails. At most `MOST_A_SECOND` are told; the next one says how many were not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

import cloudpickle

from weft.engine.process import current, errors, rpc
from weft.engine.wire.messages import Request

MOST_A_SECOND = 5
LONGEST_TEXT = 16 << 10
MOST_INPUT_BYTES = 1 << 20
_second = 0
_told = 0
_untold = 0
_inputs: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None


def keep_inputs(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the task that is about to be told of was called with."""
    global _inputs
    _inputs = (function, args, kwargs)


def tell(error: BaseException, name: str) -> None:
    """Never raises: the task's own answer must not suffer."""
    global _second, _told, _untold, _inputs
    inputs, _inputs = _inputs, None
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
            "inputs": _packed(inputs),
        }
        rpc.send(Request(0, "task_failed", row))
        _told, _untold = _told + 1, 0


def _packed(inputs: tuple[Any, tuple[Any, ...], dict[str, Any]] | None) -> bytes:
    """The inputs and where modules are found; empty when there are none, or they are large or can not be pickled."""
    if inputs is None:
        return b""
    try:
        # In two steps: who unpacks the inputs must know before where their modules are.
        packed: bytes = cloudpickle.dumps((sys.path, os.getcwd(), cloudpickle.dumps(inputs)))
    except Exception:
        return b""
    return packed if len(packed) <= MOST_INPUT_BYTES else b""
