"""Columns of Python objects on their way into object memory: as small numbers beside the few objects that they name.

pickle writes such a column one object after another, and makes them again one after another in every reader. Where a
column repeats the same objects (a joined name, a category, None), what travels is a buffer of codes, out of band, and
each object once; identity within a block is kept, as pickle keeps it. Columns of strings that hardly repeat travel as
an Arrow array, of which a string of a subclass comes back as a plain one. Everything else is left to pickle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pandas
from pandas._libs.internals import _unpickle_block
from pandas.core.internals import BlockManager

FEWEST_ROWS = 1_000
SAMPLED = 10_000
REPEATS = 4
"""Codes are worth it where each object comes at least so often."""

_wanted: ContextVar[int | None] = ContextVar("_wanted", default=None)


class PackedFrame:
    """In the place of a DataFrame that is stored; whoever loads it gets the DataFrame."""

    __slots__ = ("frame",)

    def __init__(self, frame: pandas.DataFrame) -> None:
        self.frame = frame

    def __reduce__(self) -> tuple[Any, ...]:
        manager = self.frame._mgr
        blocks = [(_encoded(block.values), block.mgr_locs.indexer) for block in manager.blocks]
        return frame_of_blocks, (blocks, list(manager.axes))


def packed(value: Any) -> Any:
    """What to store for it."""
    if type(value) is not pandas.DataFrame or len(value) < FEWEST_ROWS or value.attrs:
        return value
    return PackedFrame(value) if any(_has_objects(array) for array in value._mgr.arrays) else value


def frame_of_blocks(blocks: list[tuple[Any, Any]], axes: list[pandas.Index]) -> pandas.DataFrame:
    """Of the values of each block and the numbers of its columns; the axes are the columns, then the rows."""
    made = tuple(
        _unpickle_block(_decoded(values, places) if isinstance(values, _Coded | _Text) else values, places, 2)
        for values, places in blocks
    )
    manager = BlockManager(made, axes, verify_integrity=False)
    return pandas.DataFrame._from_mgr(manager, manager.axes)


@contextmanager
def only_column(wanted: int) -> Iterator[None]:
    """Of frames loaded meanwhile in this thread, other columns of objects than this are not made: None is in them."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def _decoded(values: _Coded | _Text, places: Any) -> np.ndarray[Any, Any]:
    wanted = _wanted.get()
    if wanted is None or wanted in np.r_[places]:
        return values.decoded()
    return np.broadcast_to(np.array(None, dtype=object), values.shape)


def _has_objects(array: Any) -> bool:
    return type(array) is np.ndarray and array.dtype == object


# ---- a block's values ------------------------------------------------------------------------------


class _Coded:
    """Which of the distinct objects is at each place."""

    def __init__(self, codes: np.ndarray[Any, Any], distinct: np.ndarray[Any, Any], shape: tuple[int, ...]) -> None:
        self.codes = codes
        self.distinct = distinct
        self.shape = shape

    def decoded(self) -> np.ndarray[Any, Any]:
        return self.distinct.take(self.codes).reshape(self.shape)


class _Text:
    def __init__(self, text: Any, shape: tuple[int, ...]) -> None:
        self.text = text
        self.shape = shape

    def decoded(self) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = self.text.to_numpy(zero_copy_only=False)
        return made.reshape(self.shape)


def _encoded(values: Any) -> Any:
    if not _has_objects(values):
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    pointers = _pointers(flat)
    sample = pointers[:: max(1, len(pointers) // SAMPLED)]
    if len(np.unique(sample)) * 2 <= len(sample):
        codes, found = pandas.factorize(pointers)
        if len(found) * REPEATS <= len(flat):
            return _Coded(_narrow(codes, len(found)), flat[_first_places(codes, len(found))], values.shape)
    return _as_text(flat, values)


def _pointers(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The addresses of the objects, which `flat` keeps alive: comparing them is comparing with `is`."""
    return np.ctypeslib.as_array((ctypes.c_int64 * len(flat)).from_address(flat.ctypes.data))


def _narrow(codes: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    return codes.astype(np.min_scalar_type(max(count - 1, 0)))


def _first_places(codes: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    places = np.empty(count, dtype=np.intp)
    places[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return places


def _as_text(flat: np.ndarray[Any, Any], values: Any) -> Any:
    import pyarrow as pa

    if type(flat[0]) is not str:
        return values
    try:
        text = pa.array(flat, from_pandas=False)  # told to make strings, Arrow would take bytes for them
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError):
        return values
    return _Text(text, values.shape) if isinstance(text, pa.Array) and text.type == pa.string() else values
