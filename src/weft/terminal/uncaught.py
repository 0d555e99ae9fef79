"""What a driver's user sees of an error that nobody caught, and of workers' output in a notebook's cell.

At a terminal the error says what to do where NumPy's alone does not. In a notebook the traceback of a task's error has
the cells' frames and none of Weft's, and what workers have printed until a cell ends is in that cell.

Runs on the user's main thread, after the error.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in ')


def note_read_only(error: BaseException) -> bool:
    """NumPy's error for a write to what is shared does not say what to do. (Python 3.10 has no notes.)"""
    if type(error) is not ValueError or "read-only" not in str(error) or not hasattr(error, "add_note"):
        return False
    error.add_note(
        "Arrays that a task is given or gets lie in memory that all readers share. To write to them without being "
        "seen by others: weft.get(ref, writable=True), @weft.remote(writable_args=True) for a task's arguments, "
        "@weft.method(writable_args=True) for a method's; or array.copy()."
    )
    return True


def with_source(text: str) -> str:
    """With the lines of cells and of what was typed in, which the worker could not read and this process may know."""
    lines = text.split("\n")
    shown = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        shown.append(line)
        at = _FRAME.match(line)
        if at and not following.startswith("    ") and (source := linecache.getline(at[1], int(at[2])).strip()):
            shown.append(f"    {source}")
    return "\n".join(shown)


class Uncaught:
    """The hooks of one session. `show_output` prints what workers have written, and returns; IPython shows an `own`
    error without Weft's frames."""

    def __init__(self, show_output: Callable[[], None], own: type[BaseException]) -> None:
        self._show_output = show_output
        self._next_hook = sys.excepthook
        self._shell = _shell()
        sys.excepthook = self._tell
        if self._shell is not None:
            own._render_traceback_ = _lines  # type: ignore[attr-defined]
            self._shell.events.register("post_run_cell", self._end_cell)

    def withdraw(self) -> None:
        if sys.excepthook == self._tell:
            sys.excepthook = self._next_hook
        if self._shell is not None:
            self._shell.events.unregister("post_run_cell", self._end_cell)

    def _tell(self, kind: type[BaseException], error: BaseException, trace: types.TracebackType | None, /) -> None:
        note_read_only(error)
        self._next_hook(kind, error, trace)

    def _end_cell(self, result: Any) -> None:
        self._show_output()
        error = result.error_in_exec
        if error is not None and note_read_only(error):
            print(error.__notes__[-1], file=sys.stderr)


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _lines(error: BaseException) -> list[str]:
    """The traceback as IPython shows it."""
    trace, shell = _without_own(error.__traceback__), _shell()
    if shell is None:
        return traceback.format_exception(type(error), error, trace)
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=1)
    return lines


def _without_own(trace: types.TracebackType | None) -> types.TracebackType | None:
    """What the user wrote; all of it where nothing else is there."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = [frame for frame in frames if not frame.tb_frame.f_code.co_filename.startswith(_PACKAGE)] or frames
    made: types.TracebackType | None = None
    for frame in reversed(kept):
        made = types.TracebackType(made, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return made
