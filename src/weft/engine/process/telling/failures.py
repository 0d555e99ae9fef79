"""Tells the node daemon what tasks raised here, for people who look at the cluster and not at the driver.

Runs on the thread that fails. At most `MOST_A_SECOND` are told; the next one says how many were not. With each goes
what it was called with, for `weft replay`, if that can be recorded; else the reason.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

from weft.engine.process.calls import calls_made, current, errors
from weft.engine.process.session import context_state, rpc
from weft.engine.process.telling import tracing
from weft.engine.wire.messages import Request
from weft.replay import recorded_inputs
from weft.replay.recorded_inputs import SMALL_BYTES, CannotRecord, Inputs

MOST_A_SECOND = 5
LONGEST_TEXT = 16 << 10
LARGE_REST = 20
"""After large inputs, so many times as long as they took none are recorded."""
ANSWER_S = 10.0
_second = 0
_told = 0
_untold = 0
_rests_until_s = 0.0
_kept = threading.local()


def keep_inputs(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What is about to be told of: a task's function, an actor's definition or a method's name, and its arguments."""
    _kept.inputs = (what, args, kwargs)


def tell(error: BaseException, name: str) -> None:
    """Never raises: the task's own answer must not suffer."""
    global _second, _told, _untold
    kept = getattr(_kept, "inputs", None)
    _kept.inputs = None
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
        inputs, why_not = _packed(kept, task)
        row = {
            "task_id": task.hex(),
            "name": name,
            "attempt": attempt,
            "actor_id": actor.hex(),
            "error_type": type(error).__name__,
            "traceback": text if len(text) <= LONGEST_TEXT else f"…{text[-LONGEST_TEXT:]}",
            "untold": _untold,
            "inputs": inputs,
            "can_be_replayed": not why_not,
            "why_not": why_not,
        }
        rpc.send(Request(0, "task_failed", row))
        _told, _untold = _told + 1, 0


def _packed(kept: tuple[Any, tuple[Any, ...], dict[str, Any]] | None, task: bytes) -> tuple[bytes, str]:
    """(the inputs, or nothing when they are large and the node has opened their file; why there are none)."""
    global _rests_until_s
    if kept is None:
        return b"", "it was cancelled, or its arguments were gone when it failed"
    began_s = time.monotonic()
    try:
        with recorded_inputs.write(_with_answers(_described(*kept, task), task)) as file:
            if file.tell() <= SMALL_BYTES:
                file.seek(0)
                return file.read(), ""
            if began_s < _rests_until_s:
                raise CannotRecord("its inputs are large, and others of its worker were recorded a moment before")
            file.flush()
            path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
            rpc.request("task_inputs", timeout_s=ANSWER_S, task_id=task.hex(), path=path)
            now_s = time.monotonic()
            _rests_until_s = now_s + LARGE_REST * (now_s - began_s)
            return b"", ""
    except Exception as error:
        return b"", str(error) or type(error).__name__


def _with_answers(inputs: Inputs, task: bytes) -> Inputs:
    """With what actors answered to it, where that was recorded."""
    state = context_state.state
    inputs.is_recorded = state.records_calls
    if not state.records_calls:
        return inputs
    if inputs.method and state.history is not None:
        inputs.answers, inputs.answers_made, inputs.answers_before = state.history.answers(task)
    notes = calls_made.take(task)
    if notes is not None and not inputs.answers:
        inputs.answers = recorded_inputs.dumps(notes)
    return inputs


def _described(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], task: bytes) -> Inputs:
    if isinstance(what, str):
        return _call(what.partition(":")[0], args, kwargs, task)
    if isinstance(what, tracing.TracedFunction):
        return Inputs(args[1:], kwargs, what.__wrapped__)
    definition = context_state.state.actor_definition
    return Inputs(args, kwargs, what.cls if definition is not None and what is definition else what)


def _call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any], task: bytes) -> Inputs:
    """Of an actor: with all calls before it where they were recorded, else with the state that it has now."""
    state = context_state.state
    kwargs = {name: value for name, value in kwargs.items() if name != tracing.CARRIER}
    definition, history = state.actor_definition, state.history
    if history is not None and (found := history.until(task)) is not None:
        note = "calls that ran at the same time run one after another" if definition.is_concurrent else ""
        made, kept, calls = found
        return Inputs(args, kwargs, None, method, history.cls, made, kept, calls, note)
    from weft.engine.process.actors.recorded_calls import save_state

    kept = recorded_inputs.dumps(save_state(state.actor_instance))
    note = "it begins with the state that it had when the call had failed; WEFT_RECORD_CALLS=1 records all calls"
    return Inputs(args, kwargs, None, method, definition.cls, None, kept, [], note)
