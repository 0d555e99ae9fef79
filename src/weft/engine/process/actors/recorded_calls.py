"""Runs the calls of an actor with exact state (`checkpoint=`): in order, each written down before it is answered.

One thread makes the actor, or restores it and runs the recorded calls again, and then runs what comes. All that has
come meanwhile is one batch: its calls are run, the log is written with one request, the answers are sent. When the log
cannot be written, or a newer incarnation has it, this process ends: what it holds beyond the log never happened.

`state.actor_log` decides; `construct` and `submit` run on the worker's main thread, the rest on this group's own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.process.actors.call import Call, bound_method
from weft.engine.process.actors.checkpoints import CheckpointPolicy
from weft.engine.process.objects import kept_refs
from weft.engine.process.session import context_state, rpc
from weft.engine.process.worker import lifecycle
from weft.engine.state.actor_log import Batch, CallLog, Checkpoint, RecordedCall
from weft.exceptions import ObjectLostError
from weft.values import serialize

if TYPE_CHECKING:
    from weft.engine.process.actors.actor_definition import ActorDefinition
    from weft.engine.process.actors.concurrency import ConcurrentCalls

MOST_CALLS = 256
MOST_S = 0.005
"""A batch is written after so many calls, or after so long."""
_UNRECORDED = ("__ray_ready__", "__ray_terminate__")
_NO_OUTCOME = b""


class RecordedGroup:
    """The one group of such an actor."""

    def __init__(self, definition: ActorDefinition, calls: ConcurrentCalls) -> None:
        self._definition = definition
        self._calls = calls
        policy = definition.checkpoint or CheckpointPolicy()
        self._log = CallLog(policy.every_calls, policy.every_bytes)
        self._epoch = 0
        self._instance: Any = None
        self._incoming: SimpleQueue[Call | None] = SimpleQueue()
        self._failed: set[bytes] = set()
        """Calls whose callers have heard from this incarnation that they failed."""
        self._refs: kept_refs.Refs = {}
        """What the log names, and what the calls name that are not written yet."""
        self._written: Collection[bytes] = ()
        """What the log names."""
        self._warned = False
        self._thread: threading.Thread | None = None

    def construct(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made: Future[Any] = Future()
        task = _native.current_task()
        self._thread = threading.Thread(
            target=self._run, args=(made, task, cls, args, kwargs), name="weft-recorded", daemon=True
        )
        self._thread.start()
        return made.result()

    def submit(self, call: Call) -> None:
        self._incoming.put(call)

    def cancel(self, call: Call) -> None:
        """Its mark is seen when its turn comes."""

    def stop(self) -> None:
        self._incoming.put(None)

    def hindered_by(self, call: Call, waiting: Collection[int]) -> list[int]:
        """All calls wait for the one thread."""
        thread = self._thread.ident or 0 if self._thread is not None else 0
        return [thread] if thread in waiting else []

    # ---- on the group's own thread ----

    def _run(self, made: Future[Any], task: Any, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            _native.set_current_task(task[0], task[2])
            made.set_result(self._make(cls, args, kwargs))
        except BaseException as error:
            made.set_exception(error)
            return
        del made, args, kwargs
        while (call := self._incoming.get()) is not None:
            self._run_batch(call)

    def _make(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        epoch, checkpoint, rows, named = rpc.request("actor_log_open", actor=context_state.state.actor_id)
        self._epoch = epoch
        if checkpoint is None:
            self._written = frozenset(named)  # by one that did not live to write its first state
            self._instance = cls(*args, **kwargs)
            self._write(self._first_state())
            return self._instance
        self._refs = kept_refs.restore(named)
        self._written = frozenset(self._refs)
        kept = msgspec.msgpack.decode(checkpoint, type=Checkpoint)
        recorded = [msgspec.msgpack.decode(row, type=RecordedCall) for row in rows]
        self._instance = context_state.state.actor_instance = restore_state(
            cls, kept_refs.loads(kept.state, self._refs)
        )
        for call in recorded:
            self._replay(call)
        self._log.restored(kept, recorded)
        return self._instance

    def _replay(self, call: RecordedCall) -> None:
        """For its effect on the state alone: what came of it was answered, or will be from the log."""
        args, kwargs = kept_refs.loads(call.arguments, self._refs)
        _native.set_current_task(call.task, call.method)
        try:
            bound_method(self._instance, call.method)(*args, **kwargs)
        except Exception:  # as it did the first time
            return

    def _run_batch(self, first: Call) -> None:
        done: list[tuple[Call, Any, BaseException | None]] = []
        call: Call | None = first
        until = time.monotonic() + MOST_S
        while call is not None:
            call.thread = threading.get_ident()
            done.append((call, *self._run_one(call)))
            call = None
            if len(done) < MOST_CALLS and time.monotonic() < until:
                try:
                    call = self._incoming.get_nowait()
                except Empty:
                    break
        self._write(self._state() if self._log.wants_checkpoint else None)
        for one, value, error in done:
            if error is not None:
                self._failed.add(one.task[0])
            self._calls.ended(one, value, error)

    def _run_one(self, call: Call) -> tuple[Any, BaseException | None]:
        """(value, error); what was run is in the log's next batch."""
        task, attempt, name = call.task[:3]
        if call.is_cancelled:
            return None, None
        if call.streams:
            return None, TypeError(f"{name} is a generator, and an actor with checkpoint= cannot stream: return a list")
        if attempt and task in self._failed:
            self._failed.discard(task)
            self._log.forget(task)
        elif attempt and (found := self._log.find(task)) is not None:
            return _answer(name, found.outcome)
        try:
            arguments, refs = kept_refs.dumps((call.args, call.kwargs))
        except Exception as error:
            return None, TypeError(f"the arguments of {name} cannot be recorded: {error}")
        value: Any = None
        failure: BaseException | None = None
        _native.set_current_task(task, name)
        try:
            value = call.method(*call.args, **call.kwargs)
        except BaseException as error:
            failure = error
        if call.name not in _UNRECORDED and not isinstance(failure, SystemExit):
            self._refs.update(refs)
            self._log.ran(RecordedCall(task, call.name, arguments, _outcome(value, failure)))
        return value, failure

    def _first_state(self) -> tuple[bytes, kept_refs.Refs]:
        try:
            return kept_refs.dumps(save_state(self._instance))
        except Exception as error:
            text = f"the state of {type(self._instance).__name__} cannot be kept, as checkpoint= asks: {error}"
            raise TypeError(text) from error

    def _state(self) -> tuple[bytes, kept_refs.Refs] | None:
        """None when it cannot be pickled now; the log goes on without a checkpoint."""
        try:
            return kept_refs.dumps(save_state(self._instance))
        except Exception as error:
            if not self._warned:
                self._warned = True
                print(f"weft: no checkpoint of {self._instance!r}: {error}; its log grows", file=sys.stderr, flush=True)
            return None

    def _write(self, state: tuple[bytes, kept_refs.Refs] | None) -> None:
        if state is not None:
            self._refs = state[1]
        batch = self._log.take(None if state is None else state[0])
        if not batch.calls and batch.checkpoint is None:
            return
        try:
            if self._refs.keys() != self._written:
                self._keep({named: ref for named, ref in self._refs.items() if named not in self._written})
                self._written = frozenset(self._refs)
                batch = msgspec.structs.replace(batch, refs=list(self._written))
            rpc.request("actor_log_append", **self._of_log(batch))
        except Exception as error:
            print(f"weft: an actor with exact state ends, its log cannot be written: {error}", file=sys.stderr)
            lifecycle.end_now(1)

    def _keep(self, new: kept_refs.Refs) -> None:
        """The log names them first: what this process asks owners to hold and then does not live to write is let go
        with that."""
        if new:
            named = rpc.begin("actor_log_append", **self._of_log(Batch([], refs=[*self._written, *new])))
            kept_refs.keep(new.values())
            named()

    def _of_log(self, batch: Batch) -> dict[str, Any]:
        return {
            "actor": context_state.state.actor_id,
            "epoch": self._epoch,
            "batch": msgspec.msgpack.encode(batch),
        }


def _outcome(value: Any, failure: BaseException | None) -> bytes:
    try:
        return serialize.dumps_without_refs((failure is None, value if failure is None else failure))
    except Exception:  # it holds refs, or cannot be pickled: then it can be answered only once
        return _NO_OUTCOME


def _answer(name: str, outcome: bytes | None) -> tuple[Any, BaseException | None]:
    if not outcome:
        text = f"{name} took effect before its actor died, but what it returned is not known any more"
        return None, ObjectLostError(call_site=text)
    is_value, kept = serialize.loads(outcome)
    return (kept, None) if is_value else (None, kept)


def save_state(instance: Any) -> Any:
    """As pickle would: `__getstate__` where there is one, else the attributes."""
    save = getattr(instance, "__getstate__", None)
    return save() if save is not None else instance.__dict__


def restore_state(cls: Any, state: Any) -> Any:
    instance = cls.__new__(cls)
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
        return instance
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    instance.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(instance, name, value)
    return instance
