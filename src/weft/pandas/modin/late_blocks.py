"""Functions of single elements whose result a worker computes in object memory itself: `isna`, `notna`, and `fillna`
by a number.

They do next to nothing with an element, so what they cost is memory: pandas' result is written into memory that is new
to the worker, some of it twice, and is then copied into the arena. Here each element is read once and written once.
Blocks of anything but plain numbers are left to pandas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from weft.pandas.packing import frame_of_blocks
from weft.util import LateArray

PIECE = 65_536
"""So many elements of a block, with the result and the mask, are in a core's own cache while they are worked on."""

Values = np.ndarray[Any, Any]


class LateFrame:
    """In the place of a DataFrame that is stored; whoever loads it gets the DataFrame."""

    __slots__ = ("_blocks", "columns", "index")

    def __init__(self, source: pandas.DataFrame, made: list[Any]) -> None:
        """`made` has the new values of each block of `source`."""
        self.index = source.index
        self.columns = source.columns
        places = (block.mgr_locs.indexer for block in source._mgr.blocks)
        self._blocks = list(zip(made, places, strict=True))

    def __len__(self) -> int:
        return len(self.index)

    def __reduce__(self) -> tuple[Any, ...]:
        return frame_of_blocks, (self._blocks, [self.columns, self.index])


@dataclass(frozen=True)
class MissingValues:
    """`isna`, or with `are_missing=False` `notna`."""

    are_missing: bool = True

    def __call__(self, block: pandas.DataFrame) -> pandas.DataFrame:
        return block.isna() if self.are_missing else block.notna()

    def late(self, block: pandas.DataFrame) -> LateFrame | None:
        """Its result before it is computed, but for columns that are no numbers; None where this is pandas' to do."""
        made = [self._of(array) for array in block._mgr.arrays]
        return LateFrame(block, made) if all(isinstance(values, np.ndarray | LateArray) for values in made) else None

    def _of(self, array: Any) -> Any:
        if type(array) is np.ndarray and array.dtype.kind in "fciub":
            return _late(array, np.bool_, self._write)
        made = pandas.isna(array) if self.are_missing else pandas.notna(array)
        return np.atleast_2d(made) if isinstance(made, np.ndarray) else made

    def _write(self, values: Values, out: Values) -> None:
        if values.dtype.kind in "iub":
            out.fill(not self.are_missing)
            return
        np.isnan(values, out=out)
        if not self.are_missing:
            np.logical_not(out, out=out)


@dataclass(frozen=True)
class Filled:
    """`fillna` by a number, of columns of numbers."""

    value: float

    def __call__(self, block: pandas.DataFrame) -> pandas.DataFrame:
        return block.fillna(self.value)

    def late(self, block: pandas.DataFrame) -> LateFrame | None:
        """Its result before it is computed; None where this is pandas' to do."""
        arrays = list(block._mgr.arrays)
        if not all(type(array) is np.ndarray and is_fillable(array.dtype) for array in arrays):
            return None
        return LateFrame(block, [_late(array, array.dtype, self._write) for array in arrays])

    def _write(self, values: Values, out: Values) -> None:
        if values.dtype.kind != "f":
            np.copyto(out, values)
            return
        missing = np.empty(PIECE, np.bool_)
        for source, target in _lines(values, out):
            for start in range(0, len(source), PIECE):
                piece, into = source[start : start + PIECE], target[start : start + PIECE]
                mask = np.isnan(piece, out=missing[: len(piece)])
                np.copyto(into, piece)
                np.putmask(into, mask, self.value)


def is_fillable(dtype: Any) -> bool:
    """Whether a column of this type keeps it, whatever number is filled in."""
    return isinstance(dtype, np.dtype) and (dtype == np.float64 or dtype.kind in "iub")


def _late(values: Values, dtype: Any, write: Callable[[Values, Values], None]) -> LateArray:
    is_fortran = values.flags.f_contiguous and not values.flags.c_contiguous
    return LateArray(values.shape, dtype, lambda out: write(values, out), order="F" if is_fortran else "C")


def _lines(values: Values, out: Values) -> list[tuple[Values, Values]]:
    """Elements of both that belong together, in the order of memory where it is the same."""
    if values.flags.c_contiguous and out.flags.c_contiguous:
        return [(values.reshape(-1), out.reshape(-1))]
    if values.flags.f_contiguous and out.flags.f_contiguous:
        return [(values.T.reshape(-1), out.T.reshape(-1))]
    return list(zip(values, out, strict=True))
