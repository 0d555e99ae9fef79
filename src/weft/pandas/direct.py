"""Small frames: the methods that programs call most go straight to pandas, past Modin's layers.

Modin's way of calling a method of a small frame is ten layers deep (casting, switching, defaulting, copying, columnar
form), which costs a hundred times what `frame["b"]` costs in pandas. Here such a method is registered with Modin as an
extension of the backend `Pandas`: it takes the pandas frame out, calls pandas, and wraps what comes back. Arguments
that are neither plain values nor small frames, and calls that write in place, go Modin's way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import modin.pandas
import numpy as np
import pandas
from modin.pandas.api import extensions
from pandas._libs.lib import no_default

from weft.pandas.small import SmallQueryCompiler, moved_when_grown, on_weft

_BOTH = """
    abs round clip fillna ffill bfill isna isnull notna notnull astype replace where mask isin shift diff pct_change
    cumsum cumprod cummax cummin rank
    sum mean min max count std var median prod sem skew kurt nunique any all idxmin idxmax quantile describe
    add sub mul div truediv floordiv mod pow radd rsub rmul rdiv rtruediv rfloordiv rmod rpow eq ne lt le gt ge
    sort_values sort_index drop dropna drop_duplicates duplicated reset_index head tail sample nlargest nsmallest
    value_counts explode reindex copy agg aggregate to_dict to_numpy
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __mod__ __pow__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__ __invert__ __neg__ __len__ __contains__
""".split()
_FRAME = "__getitem__ merge join set_index melt pivot pivot_table stack corr cov assign select_dtypes".split()
_SERIES = "__getitem__ between unique to_list tolist mode".split()

_PLAIN = frozenset(
    {
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        slice,
        type,
        type(None),
        type(no_default),
        type(pandas.NaT),
        type(pandas.NA),
    }
    | {np.ndarray, np.float64, np.float32, np.int64, np.int32, np.bool_, np.datetime64, type(Ellipsis)}
    | {pandas.Timestamp, pandas.Timedelta, pandas.RangeIndex, pandas.Index, pandas.DatetimeIndex, pandas.MultiIndex}
    | {type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4", "u1", "?", "O", "M8[ns]", "m8[ns]")}
)
_MODIN_WAY = object()
"""In the place of an argument that pandas can not be given as it is."""


def register() -> None:
    """Tell Modin of all of them. Its classes must be loaded, and are not changed otherwise."""
    kinds = (
        (extensions.register_dataframe_accessor, modin.pandas.DataFrame, pandas.DataFrame, _BOTH + _FRAME),
        (extensions.register_series_accessor, modin.pandas.Series, pandas.Series, _BOTH + _SERIES),
    )
    for register_accessor, ours, theirs, names in kinds:
        for name in names:
            if hasattr(ours, name) and hasattr(theirs, name):
                modin_way = ours._extensions[None][name]
                register_accessor(name, backend="Pandas")(_direct(name, theirs, modin_way))
    apply_modin_way = modin.pandas.DataFrame._extensions[None]["apply"]

    def apply(self: Any, func: Any, axis: Any = 0, *args: Any, **kwargs: Any) -> Any:
        """On Weft where a function of Python is called for many rows."""
        compiler = self._query_compiler
        is_by_row = callable(func) and axis in (1, "columns") and type(compiler) is SmallQueryCompiler
        if is_by_row and compiler.is_large_for_python():
            self = modin.pandas.DataFrame(query_compiler=on_weft(compiler))
        return apply_modin_way(self, func, axis, *args, **kwargs)

    extensions.register_dataframe_accessor("apply", backend="Pandas")(apply)


def _direct(name: str, theirs: type, modin_way: Callable[..., Any]) -> Callable[..., Any]:
    method = getattr(theirs, name)
    is_item, is_series = name == "__getitem__", theirs is pandas.Series

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = self._query_compiler
        if type(compiler) is not SmallQueryCompiler or kwargs.get("inplace"):
            return modin_way(self, *args, **kwargs)
        given = [value if type(value) in _PLAIN else _plain(value) for value in args]
        named = {key: value if type(value) in _PLAIN else _plain(value) for key, value in kwargs.items()}
        if any(value is _MODIN_WAY for value in (*given, *named.values())):
            return modin_way(self, *args, **kwargs)
        source = compiler.as_series() if is_series else compiler.as_frame()
        made = method(source, *given, **named)
        if made is NotImplemented or made is source:
            return modin_way(self, *args, **kwargs)
        result = wrapped(made)
        if is_item and not is_series and type(made) is pandas.Series:
            # Modin writes what is assigned to a part of a column into the frame that the column is of.
            object.__setattr__(result, "_parent", self)
            object.__setattr__(result, "_parent_axis", 1)
        return result

    call.__name__ = name
    return call


def _plain(value: Any) -> Any:
    """What pandas can be given for it, or _MODIN_WAY."""
    kind = type(value)
    if kind is modin.pandas.DataFrame or kind is modin.pandas.Series:
        compiler = value._query_compiler
        if type(compiler) is not SmallQueryCompiler:
            return _MODIN_WAY
        return compiler.as_series() if kind is modin.pandas.Series else compiler.as_frame()
    if kind is list or kind is tuple:
        made = [entry if type(entry) in _PLAIN else _plain(entry) for entry in value]
        return _MODIN_WAY if any(entry is _MODIN_WAY for entry in made) else kind(made)
    if kind is dict:
        values = [entry if type(entry) in _PLAIN else _plain(entry) for entry in value.values()]
        return _MODIN_WAY if any(entry is _MODIN_WAY for entry in values) else dict(zip(value, values, strict=True))
    return value if kind in _PLAIN else _MODIN_WAY


def wrapped(made: Any) -> Any:
    """A frame or series of Modin around one of pandas; anything else as it is."""
    kind = type(made)
    if kind is not pandas.DataFrame and kind is not pandas.Series:
        return made
    object.__setattr__(made, "_is_copy", None)
    compiler = moved_when_grown(SmallQueryCompiler.around(made))
    ours = modin.pandas.DataFrame if kind is pandas.DataFrame else modin.pandas.Series
    if type(compiler) is not SmallQueryCompiler:
        return ours(query_compiler=compiler)
    # What the constructor does when it is given a query compiler, without its casting of arguments.
    result = object.__new__(ours)
    object.__setattr__(result, "_siblings", [])
    object.__setattr__(result, "_query_compiler", compiler)
    return result
