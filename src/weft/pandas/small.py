"""Small data stays in plain pandas, in this process: a frame is made there, and moves to Weft when it has grown.

A frame of few rows is a `SmallQueryCompiler`: Modin's native compiler (the backend `Pandas`), which hands a result with
too many rows to Weft, and a function of Python for each row much earlier: there the engine pays off soonest. Modin's
own automatic switching asks for prices before every call of every method, which doubles the cost of each on small
data; here nothing is asked where nothing can grow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from modin.core.storage_formats.base.query_compiler import QCCoercionCost
from modin.core.storage_formats.pandas.native_query_compiler import NativeQueryCompiler

__all__ = ["SmallQueryCompiler", "set_small_rows"]

DEFAULT_ROWS = 500_000
PYTHON_SHARE = 50
"""A function of Python called for each row costs about as much as this many rows of compiled work."""
BYTES_PER_ROW = 100
"""Of a text file, to guess its rows from its size."""

_MAY_GROW = "concat merge join explode reindex melt stack unstack repeat".split()


class _Limit:
    """Rows up to which a frame is small; None: no frame is, all go to Weft."""

    rows: int | None = None


def set_small_rows(rows: int | None) -> None:
    """Frames with at most so many rows stay in plain pandas; None sends every frame to Weft.

    >>> import weft.pandas as pd
    >>> pd.set_small_rows(1000)
    >>> pd.DataFrame({"n": range(10)}).get_backend()
    'Pandas'
    """
    if rows is not None and rows < 0:
        raise ValueError(f"rows must not be negative, but got {rows}")
    _Limit.rows = rows


def set_default_limit() -> None:
    """DEFAULT_ROWS, or the number in WEFT_PANDAS_SMALL_ROWS."""
    set_small_rows(int(os.environ.get("WEFT_PANDAS_SMALL_ROWS", DEFAULT_ROWS)))


def is_small(rows: int) -> bool:
    return _Limit.rows is not None and rows <= _Limit.rows


def is_small_file(path: Any) -> bool:
    """By its size, where it is a plain file of this machine; what is not one is read on Weft."""
    if _Limit.rows is None or not isinstance(path, str | os.PathLike):
        return False
    try:
        return os.path.getsize(path) <= _Limit.rows * BYTES_PER_ROW
    except (OSError, ValueError):
        return False


class SmallQueryCompiler(NativeQueryCompiler):
    def apply(self, func: Any, axis: Any, *args: Any, **kwargs: Any) -> Any:
        """On Weft where a function of Python is called for many rows."""
        if callable(func) and axis == 1 and self._is_large_for_python():
            return _on_weft(self).apply(func, axis, *args, **kwargs)
        return super().apply(func, axis, *args, **kwargs)

    def map(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """The same for a function that is called for each element."""
        if callable(func) and self._is_large_for_python():
            return _on_weft(self).map(func, *args, **kwargs)
        return super().map(func, *args, **kwargs)

    def _is_large_for_python(self) -> bool:
        return _Limit.rows is not None and not is_small(len(self._modin_frame) * PYTHON_SHARE)

    def move_to_cost(
        self, other_qc_type: type, api_cls_name: str | None, operation: str, arguments: Mapping[str, Any]
    ) -> int:
        """Where a small frame meets one of Weft, the small one moves."""
        return int(QCCoercionCost.COST_ZERO if isinstance(self, other_qc_type) else QCCoercionCost.COST_LOW)


def _on_weft(compiler: NativeQueryCompiler) -> Any:
    from weft.pandas.query_compiler import WeftQueryCompiler

    return WeftQueryCompiler.move_from(compiler)


def _that_may_grow(method: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: SmallQueryCompiler, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        grew = isinstance(result, SmallQueryCompiler) and len(result._modin_frame) > (_Limit.rows or 0)
        return _on_weft(result) if grew and _Limit.rows is not None else result

    run.__name__, run.__doc__ = method.__name__, method.__doc__
    return run


for _name in _MAY_GROW:
    setattr(SmallQueryCompiler, _name, _that_may_grow(getattr(NativeQueryCompiler, _name)))
