"""A worker process's life in Python: attach, run, end. Imported by the zygote, so that a fork finds it ready.

The loop itself is native; what it needs of Python is in `host.WorkerHost`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from weft import _native
from weft.engine.process.session import context_state
from weft.engine.process.session.host import WorkerHost
from weft.engine.process.worker import binding as binding  # the zygote's fork has it loaded
from weft.engine.process.worker import lifecycle, output
from weft.engine.wire.messages import BindJob

if TYPE_CHECKING:
    from weft.environments.installed import Installed


class Cancelled(KeyboardInterrupt):
    """Raised inside a task that was cancelled; not an Exception, so that `except Exception` lets it through."""


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """The core's word that the task on this thread was cancelled, repeated until it is taken. A late one is for nobody.
    Nothing is raised during an import: half a module would stay behind, and the worker goes on to other tasks."""
    if _native.is_cancelled() and not _must_go_on(frame) and _native.take_interrupt():
        raise Cancelled("the task was cancelled")


def _tell_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """A destructor or a callback that was interrupted cannot pass it on to the task."""
    if issubclass(unraisable.exc_type, Cancelled):
        _native.interrupt_again()
    else:
        sys.__unraisablehook__(unraisable)


def _must_go_on(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" or code is _tell_unraisable.__code__:
            return True
        frame = frame.f_back
    return False


def _break_here(*args: object, **kwargs: object) -> None:
    """A task calls `breakpoint()`; PYTHONBREAKPOINT, in the environment of the job, chooses another debugger."""
    if os.environ.get("PYTHONBREAKPOINT"):
        sys.__breakpointhook__(*args, **kwargs)
        return
    from weft.replay import debugging

    debugging.open_session(sys._getframe(1))


@dataclass(frozen=True)
class Birth:
    """What a worker is bound to from the start (`runtime_env.launch`); others are told by a record."""

    job: BindJob
    packages: Installed | None = None
    variables: Mapping[str, str] | None = None
    failure: str = ""
    """Why its runtime environment could not be made."""


def main(segment_fd: int, event_fd: int, slot: int, generation: int, birth: Birth | None = None) -> int:
    """Be the worker of that slot until it is told to end; the exit status.

    SIGINT is the driver's: Ctrl-C reaches the whole foreground group, and the driver decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, _interrupt)
    context_state.reset(is_worker=True, slot=slot, generation=generation)
    sys.breakpointhook = _break_here
    sys.unraisablehook = _tell_unraisable
    host = WorkerHost()
    _native.attach(segment_fd, event_fd, slot, generation, host, os.urandom(12), True)
    from weft.engine.process.objects import ref_callbacks
    from weft.engine.process.options import lineage_limits

    lineage_limits.apply()
    ref_callbacks.install()
    if birth is not None:
        host.bind(birth.job, birth.packages, birth.variables, birth.failure)
    try:
        status = _native.run_worker()
    except BaseException as error:
        output.finish()
        sys.__excepthook__(type(error), error, error.__traceback__)
        status = 1
    lifecycle.run_exit_functions()
    return status
