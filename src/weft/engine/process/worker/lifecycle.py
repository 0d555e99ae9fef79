"""How a worker process ends: on the daemon's word, by `sys.exit()` in a task, or by `exit_actor()`.

An orderly end runs the actor's `__ray_shutdown__`, the `atexit` functions and flushes the output; `kill()` and
signals run nothing. The core is asked to stop between two calls (`_native.exit_worker`, when it has that), so that
the result of the last call is sent; otherwise the process ends where it stands.

1. LIFE-1: the exit functions run at most once, whichever thread asks first, and never in a fork of the worker.
2. LIFE-2: a fork of the worker answers nothing and does not outlive the task or call that made it (`end_fork`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from typing import Any, NoReturn

from weft import _native
from weft.engine.process.calls import current
from weft.engine.process.calls.errors import ActorExit
from weft.engine.process.session import context_state
from weft.engine.process.worker import output

_once = threading.Lock()
_leaving = False
"""Whether this actor ends by its own wish; the daemon is told last, since it may kill at once."""
_has_resigned = False
"""Whether exit_actor() was called."""
EXIT_TEXT = "The actor ended itself by exit_actor() (INTENDED_USER_EXIT); this call was its last or came too late."


def exit_actor() -> None:
    """End the current actor on purpose: what it has been asked before is finished, nothing is restarted.

    Raises TypeError outside an actor.

    >>> @weft.remote
    ... class Resigns:
    ...     def go(self): weft.actor.exit_actor()
    >>> weft.get(Resigns.remote().go.remote())
    Traceback (most recent call last):
    weft.exceptions.ActorDiedError: ...
    """
    if not context_state.here().actor_id:
        raise TypeError(
            "exit_actor API is called on a non-actor worker: only a method of an actor can end its actor. "
            "Use weft.kill(handle) elsewhere."
        )
    global _has_resigned
    _has_resigned = True
    _native.resign()  # code that catches the error, with a bare `except:`, does not keep the actor
    if (calls := context_state.state.calls) is not None:
        calls.resign(current.task()[0])
    raise ActorExit(EXIT_TEXT)


def is_orderly(error: SystemExit) -> bool:
    """Whether an actor leaves on purpose: by `exit_actor()`, or by `sys.exit()` without an error."""
    return bool(context_state.here().actor_id) and (isinstance(error, ActorExit) or error.code in (None, 0))


def leave(error: SystemExit) -> SystemExit:
    """A task raised SystemExit: the process must end. An actor that leaves on purpose first answers this call, with
    what is returned: the core's own error stands for that of exit_actor(), which the actor's code has caught."""
    if _has_resigned and error.code is None:
        error = ActorExit(EXIT_TEXT)
    if _native.is_fork():
        end_fork(error)
    if is_orderly(error):
        if context_state.state.actor_instance is None:  # its constructor: who hears the answer ends this process
            run_exit_functions()
        leave_for_good()
        return error
    end_now(_status(error))


def _status(error: SystemExit) -> int:
    code = error.code
    return code if isinstance(code, int) else 0 if code is None else 1


def end_fork(error: BaseException | None) -> NoReturn:
    """A fork of this worker has come to the end of the task in which it was made, by this error if there is one.
    The worker itself answers that task, so here is the fork's end (LIFE-2)."""
    status = 1
    try:
        if isinstance(error, SystemExit):
            status = _status(error)
        elif error is not None:
            traceback.print_exception(error)
        else:
            name = current.name() or "a task"
            print(
                f"weft: process {os.getpid()}, a fork that {name} made of its worker, returned from the task and was "
                "ended: only the worker can answer. End such a process by os._exit() or sys.exit(), or start it with "
                "multiprocessing or subprocess.",
                file=sys.stderr,
            )
        output.finish()
    finally:
        os._exit(status & 0xFF)


def leave_for_good() -> None:
    """End an actor by its own wish: it is not restarted."""
    global _leaving
    _leaving = True
    _stop_or_end()


def stop() -> bool:
    """Ask the core to return from run_worker after the call that runs now; False when it cannot be asked."""
    ask = getattr(_native, "exit_worker", None)
    if ask is None:
        return False
    ask()
    return True


def _stop_or_end() -> None:
    if not stop():
        end_now(0)


def exit_process(reason: str, drain: bool, calls: Any) -> None:
    """The daemon's word. Runs on the callback thread."""
    if drain and calls is not None:
        calls.when_idle(_stop_or_end)
    elif not (drain and stop()):
        end_now(0)


def run_exit_functions() -> None:
    """What an orderly end owes: the actor's shutdown hook, `atexit`, the output (LIFE-1)."""
    if _native.is_fork() or not _once.acquire(blocking=False):
        return
    run_shutdown_hook(context_state.state.actor_instance)
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    output.finish()
    if _leaving:
        from weft.engine.process.session import rpc
        from weft.engine.wire.messages import KillActor

        with contextlib.suppress(Exception):
            rpc.send(KillActor(context_state.state.actor_id, no_restart=True))


def run_shutdown_hook(actor: object) -> None:
    """Its `__ray_shutdown__`, if it has one. The actor ends even if that fails, and its author is told why it did."""
    hook = getattr(actor, "__ray_shutdown__", None)
    if callable(hook):
        try:
            hook()
        except Exception:
            traceback.print_exc()


def end_now(status: int) -> NoReturn:
    """Run the exit functions and end the process from any thread."""
    try:
        run_exit_functions()
    finally:
        os._exit(status & 0xFF)
