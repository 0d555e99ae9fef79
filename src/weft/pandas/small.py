"""Small data stays in plain pandas, in this process: a frame is made there, and moves to Weft when it has grown.

A frame of few rows is a `SmallQueryCompiler`: Modin's native compiler (the backend `Pandas`), which hands a result with
too many rows to Weft, and a function of Python for each row much earlier: there the engine pays off soonest. Modin's
own automatic switching asks for prices before every call of every method, which doubles the cost of each on small
data; here nothing is asked where nothing can grow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pandas
from modin.core.storage_formats.base.query_compiler import QCCoercionCost
from modin.core.storage_formats.pandas.native_query_compiler import NativeQueryCompiler
from modin.logging import disable_logging
from modin.utils import MODIN_UNNAMED_SERIES_LABEL

__all__ = ["SmallQueryCompiler", "set_small_rows"]

DEFAULT_ROWS = 500_000
PYTHON_SHARE = 50
"""A function of Python called for each row costs about as much as this many rows of compiled work."""
BYTES_PER_ROW = 100
"""Of a text file, to guess its rows from its size."""

Method = TypeVar("Method", bound=Callable[..., Any])

_MAY_GROW = "concat merge join explode reindex melt stack unstack repeat".split()


class Limit:
    """Rows up to which a frame is small; None: no frame is, all go to Weft."""

    rows: int | None = None


def set_small_rows(rows: int | None) -> None:
    """Frames with at most so many rows stay in plain pandas; None sends every frame to Weft.

    >>> import weft.pandas as pd
    >>> pd.set_small_rows(1000)
    >>> pd.DataFrame({"n": range(10)}).get_backend()
    'Pandas'
    """
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool)):
        raise TypeError(f"rows must be a whole number or None, but got {rows!r}")
    if rows is not None and rows < 0:
        raise ValueError(f"rows must not be negative, but got {rows}")
    Limit.rows = rows


def set_default_limit() -> None:
    """DEFAULT_ROWS, or the number in WEFT_PANDAS_SMALL_ROWS."""
    given = os.environ.get("WEFT_PANDAS_SMALL_ROWS", str(DEFAULT_ROWS))
    if not given.isdecimal():
        raise ValueError(f"the variable WEFT_PANDAS_SMALL_ROWS must be a number of rows, but is {given!r}")
    set_small_rows(int(given))


def is_small(rows: int) -> bool:
    return Limit.rows is not None and rows <= Limit.rows


def is_small_file(path: Any, work: int = 1) -> bool:
    """By its size, where it is a plain file of this machine; what is not one is read on Weft. `work`: how many rows of
    CSV cost as much as one of its rows."""
    if Limit.rows is None or not isinstance(path, str | os.PathLike):
        return False
    try:
        return os.path.isfile(path) and os.path.getsize(path) * work <= Limit.rows * BYTES_PER_ROW
    except (OSError, ValueError):
        return False


def _unlogged(method: Method) -> Method:
    """Modin wraps each method of a compiler to log it, which takes longer than those that every operation calls."""
    unwrapped: Method = disable_logging(method)
    return unwrapped


class SmallQueryCompiler(NativeQueryCompiler):
    """A frame or series of pandas. A series becomes a frame of one column, Modin's form of it, when Modin asks."""

    _frame: pandas.DataFrame
    _series: pandas.Series[Any] | None = None

    @_unlogged
    def as_series(self) -> pandas.Series[Any]:
        """Of a compiler of one column; not a copy."""
        if self._series is not None:
            return self._series
        name = self._frame.columns[0]
        column = self._frame.iloc[:, 0]
        return column.rename(None) if name == MODIN_UNNAMED_SERIES_LABEL else column

    @_unlogged
    def as_frame(self) -> pandas.DataFrame:
        """Not a copy."""
        return self._frame if self._series is None else self._modin_frame

    @property
    def _modin_frame(self) -> pandas.DataFrame:
        if self._series is not None:
            name = self._series.name
            self._frame = self._series.to_frame(MODIN_UNNAMED_SERIES_LABEL if name is None else name)
            self._series = None
        return self._frame

    @_modin_frame.setter
    def _modin_frame(self, frame: pandas.DataFrame) -> None:
        self._frame, self._series = frame, None

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
        return len((self._frame if self._series is None else self._series)._mgr.axes[-1])

    @_unlogged
    def has_cells(self) -> bool:
        return all(map(len, (self._frame if self._series is None else self._series)._mgr.axes))

    @_unlogged
    def is_large_for_python(self) -> bool:
        return Limit.rows is not None and not is_small(self.row_count() * PYTHON_SHARE)

    def move_to_cost(
        self, other_qc_type: type, api_cls_name: str | None, operation: str, arguments: Mapping[str, Any]
    ) -> int:
        """Where a small frame meets one of Weft, the small one moves."""
        return int(QCCoercionCost.COST_ZERO if isinstance(self, other_qc_type) else QCCoercionCost.COST_LOW)


def on_weft(compiler: NativeQueryCompiler) -> Any:
    from weft.pandas.query_compiler import WeftQueryCompiler

    return WeftQueryCompiler.move_from(compiler)


def moved_when_grown(compiler: SmallQueryCompiler) -> Any:
    """It, or one on Weft where it has too many rows by now."""
    limit = Limit.rows
    return compiler if limit is None or compiler.row_count() <= limit else on_weft(compiler)


def _that_may_grow(method: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: SmallQueryCompiler, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        return moved_when_grown(result) if isinstance(result, SmallQueryCompiler) else result

    run.__name__, run.__doc__ = method.__name__, method.__doc__
    return run


for _name in _MAY_GROW:
    setattr(SmallQueryCompiler, _name, _that_may_grow(getattr(NativeQueryCompiler, _name)))
