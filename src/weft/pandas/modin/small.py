"""Small data stays in plain pandas, in this process: a frame is made there, and moves to Weft when it has grown.

A frame of few rows is a `SmallQueryCompiler`: Modin's native compiler (the backend `Pandas`), which hands a result with
too many rows to Weft, and a function of Python for each row much earlier: there the engine pays off soonest. Modin's
own automatic switching asks for prices before every call of every method, which doubles the cost of each on small
data; here nothing is asked where nothing can grow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas
from modin.config import NPartitions
from modin.core.storage_formats.base.query_compiler import QCCoercionCost
from modin.core.storage_formats.pandas.native_query_compiler import NativeQueryCompiler
from modin.logging import disable_logging
from modin.utils import MODIN_UNNAMED_SERIES_LABEL

__all__ = ["SmallQueryCompiler", "set_small_rows"]

DEFAULT_ROWS = 500_000
DEFAULT_CELLS = 10_000_000
NEAR_CELLS = 64_000_000
MEASURED_ON = 2
"""Cores that the number before is for."""
OBJECT_CELLS = 8
"""A Python object costs an operation about as much as so many numbers."""
PYTHON_SHARE = 50
"""A function of Python called for each row costs about as much as this many rows of compiled work."""
BYTES_PER_ROW = 100
"""Of a text file, to guess its rows from its size."""

Method = TypeVar("Method", bound=Callable[..., Any])

_OBJECT = np.dtype("O")
_MAY_GROW = "concat merge join explode reindex melt stack unstack repeat".split()


class Limit:
    """A frame is small that has few rows, or that is narrow and has few cells."""

    few_rows = 0
    """Small, however wide the frame is."""
    cells = 0
    """Small, however many rows they are; 0 where the user said how many rows are."""
    near_cells = 0
    """Of a frame on Weft that pandas may be given a copy of (`near.py`)."""
    rows: int | None = None
    """No small frame has more; None: no frame is small, all go to Weft."""
    is_default = False
    """Whether new frames are Weft's, and not another backend's."""
    makes_small = False
    """Whether new frames are small, where they are few rows or cells."""


def set_small_rows(rows: int | None) -> None:
    """Frames with at most so many rows stay in plain pandas, no others; None sends every frame to Weft.

    >>> import weft.pandas.modin as pd
    >>> pd.set_small_rows(1000)
    >>> pd.DataFrame({"n": range(10)}).get_backend()
    'Pandas'
    """
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool)):
        raise TypeError(f"rows must be a whole number or None, but got {rows!r}")
    if rows is not None and rows < 0:
        raise ValueError(f"rows must not be negative, but got {rows}")
    Limit.rows, Limit.few_rows, Limit.cells, Limit.near_cells = rows, rows or 0, 0, 0
    Limit.makes_small = Limit.is_default and rows is not None


def set_default_backend(is_weft: bool) -> None:
    """Whether new frames are Weft's."""
    Limit.is_default = is_weft
    Limit.makes_small = is_weft and Limit.rows is not None


def set_default_limit() -> None:
    """DEFAULT_ROWS or DEFAULT_CELLS, or the number of rows in WEFT_PANDAS_SMALL_ROWS."""
    given = os.environ.get("WEFT_PANDAS_SMALL_ROWS")
    if given is None:
        Limit.rows, Limit.few_rows = DEFAULT_CELLS, DEFAULT_ROWS
        Limit.cells, Limit.near_cells = DEFAULT_CELLS, NEAR_CELLS
        Limit.makes_small = Limit.is_default
        return
    if not given.isdecimal():
        raise ValueError(f"the variable WEFT_PANDAS_SMALL_ROWS must be a number of rows, but is {given!r}")
    set_small_rows(int(given))


def is_small(frame: pandas.DataFrame | pandas.Series[Any]) -> bool:
    if Limit.rows is None:
        return False
    rows = len(frame)
    if rows <= Limit.few_rows or rows > Limit.rows:
        return rows <= Limit.few_rows
    return _cells_of(frame) <= Limit.cells


def _cells_of(data: pandas.DataFrame | pandas.Series[Any]) -> int:
    return cells(len(data), [data.dtype] if isinstance(data, pandas.Series) else data.dtypes)


def cells(rows: int, dtypes: Iterable[Any]) -> int:
    """So many numbers cost as much as these rows."""
    return rows * sum(OBJECT_CELLS if dtype == _OBJECT else 1 for dtype in dtypes)


def are_near(cells: int) -> bool:
    """Of a frame on Weft: whether so many may be brought here, and of one that is here, whether they may stay. On more
    cores tasks pay off sooner."""
    cores: int = max(NPartitions.get(), MEASURED_ON)
    return 0 < cells * cores <= Limit.near_cells * MEASURED_ON


def is_small_file(path: Any, work: int = 1) -> bool:
    """By its size, where it is a plain file of this machine; what is not one is read on Weft. `work`: how many rows of
    CSV cost as much as one of its rows."""
    if Limit.rows is None or not isinstance(path, str | os.PathLike):
        return False
    try:
        return os.path.isfile(path) and os.path.getsize(path) * work <= Limit.few_rows * BYTES_PER_ROW
    except (OSError, ValueError):
        return False


def _unlogged(method: Method) -> Method:
    """Modin wraps each method of a compiler to log it, which takes longer than those that every operation calls."""
    unwrapped: Method = disable_logging(method)
    return unwrapped


class SmallQueryCompiler(NativeQueryCompiler):
    """A frame or series of pandas. A series becomes a frame of one column, Modin's form of it, when Modin asks."""

    _frame: pandas.DataFrame | None = None
    _series: pandas.Series[Any] | None = None
    _own: pandas.DataFrame | pandas.Series[Any] | None = None
    """In the place of the others: what was written just now, and was given to nobody since. Until then it may be
    written in place again (`direct_writes.py`)."""

    @_unlogged
    def show(self) -> None:
        """What it holds is given to others now."""
        own, self._own = self._own, None
        if isinstance(own, pandas.Series):
            self._series = own
        elif own is not None:
            self._frame = own

    @_unlogged
    def as_series(self) -> pandas.Series[Any]:
        """Of a compiler of one column; not a copy."""
        self.show()
        if self._series is not None:
            return self._series
        frame = self._modin_frame
        name = frame.columns[0]
        column = frame.iloc[:, 0]
        return column.rename(None) if name == MODIN_UNNAMED_SERIES_LABEL else column

    @_unlogged
    def as_frame(self) -> pandas.DataFrame:
        """Not a copy."""
        return self._modin_frame

    @property
    def _modin_frame(self) -> pandas.DataFrame:
        self.show()
        if self._series is not None:
            name = self._series.name
            self._frame = self._series.to_frame(MODIN_UNNAMED_SERIES_LABEL if name is None else name)
            self._series = None
        assert self._frame is not None
        return self._frame

    @_modin_frame.setter
    def _modin_frame(self, frame: pandas.DataFrame) -> None:
        self._frame, self._series, self._own = frame, None, None

    @_unlogged
    def get_backend(self) -> str:
        return "Pandas"

    def map(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """On Weft where a function of Python is called for many elements."""
        if callable(func) and self.is_large_for_python():
            return on_weft(self).map(func, *args, **kwargs)
        return super().map(func, *args, **kwargs)

    @_unlogged
    def row_count(self) -> int:
        return len(self.held().index)

    @_unlogged
    def held(self) -> Any:
        """For who only looks at its labels and types."""
        if self._own is not None:
            return self._own
        return self._frame if self._series is None else self._series

    @_unlogged
    def is_large_for_python(self) -> bool:
        return Limit.rows is not None and self.row_count() * PYTHON_SHARE > Limit.few_rows

    def move_to_cost(
        self, other_qc_type: type, api_cls_name: str | None, operation: str, arguments: Mapping[str, Any]
    ) -> int:
        """Where a small frame meets one of Weft, the small one moves."""
        return int(QCCoercionCost.COST_ZERO if isinstance(self, other_qc_type) else QCCoercionCost.COST_LOW)


def on_weft(compiler: NativeQueryCompiler) -> Any:
    from weft.pandas.modin.query_compiler import WeftQueryCompiler

    return WeftQueryCompiler.move_from(compiler)


def moved_when_grown(compiler: SmallQueryCompiler) -> Any:
    """It, or one on Weft where it has too many rows by now."""
    return on_weft(compiler) if has_grown(compiler.held()) else compiler


def has_grown(data: pandas.DataFrame | pandas.Series[Any]) -> bool:
    """What small frames were made into; where no frame is small by its size, those that are stay so. Later than a frame
    that is made is large: to move costs more than most operations, of which pandas does many faster (`near.py`)."""
    return Limit.rows is not None and not is_small(data) and not are_near(_cells_of(data))


def _that_may_grow(method: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: SmallQueryCompiler, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        return moved_when_grown(result) if isinstance(result, SmallQueryCompiler) else result

    run.__name__, run.__doc__ = method.__name__, method.__doc__
    return run


for _name in _MAY_GROW:
    setattr(SmallQueryCompiler, _name, _that_may_grow(getattr(NativeQueryCompiler, _name)))
