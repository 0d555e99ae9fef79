"""What Weft's workers run for Modin, and how functions and arguments get there.

A small function is pickled once and loaded once in each worker. A large one (it may hold a whole frame) goes through
object memory, where its buffers are read in place. Refs among the arguments are lifted out of their containers, so
that the scheduler waits for them, and no worker does.
"""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pandas

import weft
from weft import cloudpickle
from weft.pandas.packing import packed

LARGEST_INLINE_BYTES = 16 * 1024
MOST_LOADED = 256
"""A worker forgets the functions that it has not run for longest."""

Step = tuple[Any, Sequence[Any], dict[str, Any]]
"""A function, the arguments behind the frame, and the keywords."""


# ---- functions -------------------------------------------------------------------------------------


class SentFunction:
    """A function that was pickled here; where it is unpickled it is the plain function again."""

    __slots__ = ("_function", "payload")

    def __init__(self, function: Callable[..., Any], payload: bytes) -> None:
        self._function = function
        self.payload = payload

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (self.payload,)


@functools.lru_cache(MOST_LOADED)
def _load(payload: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(payload)
    return function


_sent: weakref.WeakKeyDictionary[Callable[..., Any], SentFunction] = weakref.WeakKeyDictionary()


def send_function(function: Callable[..., Any]) -> Any:
    """A SentFunction, or the ref of the function where it is large. Starts Weft only in the second case."""
    constant = isinstance(function, types.FunctionType) and not function.__closure__
    if constant and function in _sent:
        return _sent[function]
    buffers: list[Any] = []
    payload = bytes(cloudpickle.dumps(function, protocol=5, buffer_callback=buffers.append))
    if buffers or len(payload) > LARGEST_INLINE_BYTES:
        return weft.put(function)
    sent = SentFunction(function, payload)
    if constant:
        _sent[function] = sent
    return sent


# ---- arguments -------------------------------------------------------------------------------------


class Lifted(NamedTuple):
    """In the place of a ref: the value is this one of those that the task was given, with labels of its own if any."""

    position: int
    rows: Any = None
    columns: Any = None


class Labelled(NamedTuple):
    """A block whose labels are others than those in object memory. To write it again for their sake is not worth it."""

    ref: Any
    rows: Any
    columns: Any


def lift(value: Any, refs: list[Any]) -> Any:
    """The value with a Lifted in the place of each ref, also of those one level down; the refs are appended."""
    if isinstance(value, weft.ObjectRef | Labelled):
        labels = (value.rows, value.columns) if isinstance(value, Labelled) else ()
        refs.append(value.ref if isinstance(value, Labelled) else value)
        return Lifted(len(refs) - 1, *labels)
    if type(value) in (list, tuple) and any(isinstance(entry, weft.ObjectRef | Labelled) for entry in value):
        return type(value)(lift(entry, refs) for entry in value)
    return value


def lift_step(step: Sequence[Any], refs: list[Any]) -> Step:
    function, args, keywords = step
    return (
        lift(function, refs),
        [lift(value, refs) for value in args],
        {name: lift(value, refs) for name, value in keywords.items()},
    )


def _settle(value: Any, values: Sequence[Any]) -> Any:
    if type(value) is Lifted:
        block = values[value.position]
        return block if value.rows is None and value.columns is None else labelled(block, value.rows, value.columns)
    if type(value) in (list, tuple) and any(type(entry) is Lifted for entry in value):
        return type(value)(_settle(entry, values) for entry in value)
    return value


def _settle_step(step: Step, values: Sequence[Any]) -> Step:
    function, args, keywords = step
    return (
        _settle(function, values),
        [_settle(value, values) for value in args],
        {name: _settle(value, values) for name, value in keywords.items()},
    )


# ---- in a worker -----------------------------------------------------------------------------------


def labelled(block: pandas.DataFrame, rows: Any, columns: Any) -> pandas.DataFrame:
    """The same data under these labels; None leaves those of an axis as they are."""
    block = block.copy(deep=False)
    if rows is not None:
        block.index = rows
    if columns is not None:
        block.columns = columns
    return block


def run_on_block(steps: Sequence[Step], block: Any, *values: Any) -> tuple[Any, int, int]:
    """The steps one after another on a block of a frame: what comes out, its rows and its columns. The last is computed
    where it is stored if its function has such a form (`late_blocks.py`)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        for number, step in enumerate(steps, start=1):
            function, args, keywords = _settle_step(step, values)
            late = getattr(function, "late", None) if number == len(steps) else None
            made = late(block) if late is not None else None
            block = _run_writable(function, block, args, keywords) if made is None else made
    return storable(block), *shape_of(block)


def _run_writable(function: Any, block: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """Blocks are read-only views of object memory; a function that writes into its input is given a copy."""
    try:
        return function(block, *args, **keywords)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
    return function(block.copy(), *args, **keywords)


def run_on_axis(deployer: Any, step: Step, manner: tuple[bool, bool], arguments: Sequence[Any], *values: Any) -> Any:
    """One of Modin's deployers of a function over the joined blocks of an axis; `arguments` are its keywords, the
    axis, and how it splits. The parts that it makes, each followed by its rows and columns where the first of `manner`
    says so; the second: whether pandas may share columns instead of copying them."""
    with_shapes, shares_columns = manner
    axis, before, blocks, keywords = arguments
    function, args, function_keywords = _settle_step(step, values)
    sharing = pandas.option_context("mode.copy_on_write", True) if shares_columns else nullcontext()
    with warnings.catch_warnings(), sharing:
        warnings.filterwarnings("ignore", category=FutureWarning)
        made = deployer(axis, function, args, function_keywords, *before, *_settle(blocks, values), **keywords)
    parts = [made] if isinstance(made, pandas.DataFrame) else list(made)
    if with_shapes:
        return _unpacked([entry for part in parts for entry in (storable(part), *shape_of(part))])
    return _unpacked([storable(part) for part in parts])


def run_function(step: Step, as_frame: bool, *values: Any) -> Any:
    """Any function of Modin's readers and writers."""
    function, args, keywords = _settle_step(step, values)
    result = function(*args, **keywords)
    if as_frame and not isinstance(result, pandas.DataFrame):
        result = pandas.DataFrame(result)
    return [storable(entry) for entry in result] if isinstance(result, list | tuple) else storable(result)


def _unpacked(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def shape_of(block: Any) -> tuple[int, int]:
    return len(block) if hasattr(block, "__len__") else 0, len(getattr(block, "columns", ()))


def storable(value: Any) -> Any:
    """The same frame with arrays that can be stored as they are (a cut through rows is pickled element by element),
    and with columns of objects packed."""
    if not isinstance(value, pandas.DataFrame):
        return value
    arrays = (array for array in value._mgr.arrays if type(array) is np.ndarray and array.dtype != object)
    if all(array.flags.c_contiguous or array.flags.f_contiguous for array in arrays):
        return packed(value)
    return packed(value.copy())


shape_task = weft.remote(num_returns=2)(shape_of)
block_task = weft.remote(num_returns=3)(run_on_block)
_axis_task = weft.remote(run_on_axis)
_function_task = weft.remote(run_function)


@functools.cache
def axis_task(returns: int, max_retries: int | None) -> Any:
    return _with_options(_axis_task, returns, max_retries)


@functools.cache
def function_task(returns: int) -> Any:
    return _with_options(_function_task, returns, None)


def _with_options(task: Any, returns: int, max_retries: int | None) -> Any:
    options = {"num_returns": returns} if max_retries is None else {"num_returns": returns, "max_retries": max_retries}
    return task.options(**options)
