"""Arguments of what small frames do in pandas directly: out of Modin's objects."""

from __future__ import annotations

import datetime
import decimal
import functools
import io
import pathlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
from modin.pandas import DataFrame, Series
from pandas._libs.lib import no_default
from pandas.core.resample import TimeGrouper

from weft.pandas.modin import _direct
from weft.pandas.modin.small import Limit, SmallQueryCompiler, has_grown, on_weft

__all__ = [
    "MODIN_WAY",
    "PLAIN",
    "SCALARS",
    "SmallQueryCompiler",
    "around",
    "attribute",
    "looked_up",
    "plain",
    "plain_arguments",
    "small_source",
]

attribute = object.__getattribute__
"""Of a frame or series, as Python looks it up. Modin's classes look for extensions first, at every access."""

SCALARS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(pandas.NaT), type(pandas.NA), decimal.Decimal}
    | {np.float64, np.float32, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8}
    | {np.bool_, np.str_, np.datetime64, np.timedelta64}
    | {datetime.datetime, datetime.date, datetime.time, datetime.timedelta}
    | {pandas.Timestamp, pandas.Timedelta, pandas.Period, pandas.Interval}
)
"""What shares no memory with the frame that it is of."""

PLAIN = (
    SCALARS
    | {slice, range, type, type(no_default), type(Ellipsis), np.ndarray, pandas.Categorical, pandas.CategoricalDtype}
    | {pandas.RangeIndex, pandas.Index, pandas.DatetimeIndex, pandas.TimedeltaIndex, pandas.MultiIndex}
    | {pandas.CategoricalIndex, pandas.DataFrame, pandas.Series, pandas.Grouper, TimeGrouper}
    | {pathlib.PosixPath, io.StringIO, io.BytesIO, io.TextIOWrapper, io.BufferedWriter}
    | {type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4", "u1", "?", "O", "M8[ns]", "m8[ns]")}
)
_UNKNOWN = object()
MODIN_WAY = id(_UNKNOWN)
"""Of what `plain` gives for an argument that pandas cannot be given. By identity: arguments may compare as arrays."""


def plain(value: Any, takes_functions: bool = False) -> Any:
    """What pandas is given for an argument."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is Series or kind is DataFrame:
        source = small_source(value)
        return _UNKNOWN if source is None else source
    if kind is list or kind is tuple:
        for entry in value:
            if type(entry) not in PLAIN:
                break
        else:
            return value
        made = [plain(entry, takes_functions) for entry in value]
        return _UNKNOWN if MODIN_WAY in map(id, made) else kind(made)
    if kind is dict:
        made = [plain(entry, takes_functions) for entry in value.values()]
        return _UNKNOWN if MODIN_WAY in map(id, made) else dict(zip(value, made, strict=True))
    if takes_functions and callable(value):
        return functools.update_wrapper(_direct.unwrapping(value), value) if kind is types.FunctionType else value
    return _UNKNOWN


def plain_arguments(
    args: tuple[Any, ...], keywords: dict[str, Any], takes_functions: bool = False
) -> tuple[Any, dict[str, Any]] | None:
    """What pandas is given for the arguments of a call; None where it cannot be given one of them."""
    given: Any = args
    for place, value in enumerate(args):
        if type(value) not in PLAIN:
            found = plain(value, takes_functions)
            if found is _UNKNOWN:
                return None
            if given is args:
                given = list(args)
            given[place] = found
    named = keywords
    for name, value in keywords.items():
        if type(value) not in PLAIN:
            found = plain(value, takes_functions)
            if found is _UNKNOWN:
                return None
            if named is keywords:
                named = dict(keywords)
            named[name] = found
    return given, named


def small_source(data: Any) -> Any:
    """The frame or series of pandas of a small one that is not pinned to a backend, otherwise None. Not a copy."""
    compiler = attribute(data, "_query_compiler")
    if type(compiler) is not SmallQueryCompiler or attribute(data, "_pinned"):
        return None
    return compiler.as_series() if isinstance(data, Series) else compiler.as_frame()


def looked_up(modin_way: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method of Modin's, as Modin looks it up: what a frame without cells is asked for, pandas has to do."""
    if name.startswith("__"):
        return modin_way

    @functools.wraps(modin_way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._query_compiler.lazy_shape and self.empty:
            return self._default_to_pandas(name, *args, **kwargs)
        return modin_way(self, *args, **kwargs)

    return call


def around(compiler: SmallQueryCompiler, ours: type) -> Any:
    """What the constructor makes of a query compiler, without its casting of arguments."""
    result: Any = object.__new__(ours)
    own = attribute(result, "__dict__")
    own["_siblings"] = []
    own["_query_compiler"] = compiler
    return result


def make_known(move_large: Callable[[Any], None], write: Callable[[Any, str, Any, Any], bool]) -> None:
    """Tell the native callables all of this, what moves a new frame, and what writes by `loc` and the like."""
    modins, theirs = (SmallQueryCompiler, DataFrame, Series), (pandas.DataFrame, pandas.Series, np.ndarray)
    _direct.know(*modins, *theirs, SCALARS, PLAIN, plain, _UNKNOWN, Limit, has_grown, on_weft, move_large, write)
