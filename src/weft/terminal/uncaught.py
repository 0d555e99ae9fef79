"""What a driver's user sees of an error that nobody caught, and of workers' output in a notebook's cell.

At a terminal the error says what to do where Python's or NumPy's alone does not. In a notebook the traceback of a
task's error has the cells' frames and none of Weft's, and what workers have printed until a cell ends is in that cell.

Runs on the user's main thread, after the error.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from weft._lazy import nearest

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_KEYWORD = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in ')


_READ_ONLY = (
    "Arrays that a task is given or gets lie in memory that all readers share. To write to them without being "
    "seen by others: weft.get(ref, writable=True), @weft.remote(writable_args=True) for a task's arguments, "
    "@weft.method(writable_args=True) for a method's; or array.copy()."
)
_PLAIN = "A plain function or class has no remote(): write @weft.remote above it, or f = weft.remote(f)."
_METHOD = "A method is called on a handle: actor = {0}.remote(...), then actor.{1}.remote(...)."
_REF = "A ref names a value that is made elsewhere: write weft.get(ref).{0}."
_KEYWORDS = {
    "chunksize": "write chunk=",
    "max_workers": "write weft.init(num_cpus=...), or weft.map(f.options(num_cpus=...), items)",
    "progress": "a line about what is waited for is shown by itself where it takes long, at a terminal",
}


def note_next_step(error: BaseException) -> bool:
    """Adds to an error of Python's or NumPy's what to write instead, where it comes of a mistake that people make with
    Weft. Whether it did. (Python 3.10 has no notes.)"""
    told = _next_step(error) if hasattr(error, "add_note") else ""
    if told:
        error.add_note(told)  # type: ignore[attr-defined]
    return bool(told)


def _next_step(error: BaseException) -> str:
    if type(error) is ValueError:
        return _READ_ONLY if "read-only" in str(error) else ""
    if type(error) is AttributeError and error.name:
        return _of_attribute(error.obj, error.name)
    if type(error) is KeyError:
        return _of_column(error)
    return _of_keyword(error) if type(error) is TypeError else ""


def _of_column(error: KeyError) -> str:
    """Of a frame of `weft.pandas`, which raises what pandas raises: the text has a column's name, in quotes."""
    pandas = sys.modules.get("pandas") if "weft.pandas" in sys.modules else None
    if pandas is None:
        return ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        asked = frame.f_locals.get("self")
        of = asked if isinstance(asked, pandas.DataFrame) else getattr(asked, "obj", None)
        if isinstance(of, pandas.DataFrame):
            known = [each for each in of.columns if isinstance(each, str)]
            quoted = (name.rpartition(": ")[2] for name in re.findall("'([^']+)'", str(error)))
            wrong = [name for name in quoted if name not in known]
            near = nearest(wrong[0], known) if wrong else None
            return f"There is no column {wrong[0]!r}: did you mean {near!r}?" if near else ""
    return ""


def _of_attribute(of: object, name: str) -> str:
    if repr(type(of)) == "<class 'weft.ObjectRef'>":
        return "" if name.startswith("_") else _REF.format(name)
    if name != "remote" or not isinstance(of, types.FunctionType | type):
        return ""
    cls, _, method = of.__qualname__.rpartition(".<locals>.")[2].rpartition(".")
    return _METHOD.format(cls, method) if cls and isinstance(of, types.FunctionType) else _PLAIN


def _of_keyword(error: BaseException) -> str:
    """Of a call of `weft.get` and the like: those functions are called too often to look at keywords themselves."""
    at = _KEYWORD.match(str(error))
    trace = error.__traceback__
    if at is None or trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    function = getattr(sys.modules.get("weft"), at[1], None)
    calls_ours = {"weft", at[1]} <= {*trace.tb_frame.f_code.co_names} or trace.tb_frame.f_globals.get(at[1]) is function
    if not isinstance(function, types.FunctionType) or not calls_ours:
        return ""
    known = list(inspect.signature(function).parameters)
    near = nearest(at[2], known)
    said = _KEYWORDS.get(at[2]) or (f"did you mean {near!r}?" if near else "")
    return f"weft.{at[1]}() has no {at[2]!r}{': ' * bool(said)}{said or ';'} It has {', '.join(known)}."


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
        note_next_step(error)
        self._next_hook(kind, error, trace)

    def _end_cell(self, result: Any) -> None:
        self._show_output()
        error = result.error_in_exec
        if error is not None and note_next_step(error):
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
