"""Arguments and results of what small frames do in pandas directly: out of Modin's objects, and back into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from modin.pandas import DataFrame, Series
from pandas._libs.lib import no_default

from weft.pandas import _direct
from weft.pandas.small import Limit, SmallQueryCompiler, on_weft

__all__ = ["MODIN_WAY", "SmallQueryCompiler", "around", "attribute", "plain", "plain_arguments"]

attribute = object.__getattribute__
"""Of a frame or series, as Python looks it up. Modin's classes look for extensions first, at every access."""

_PLAIN = frozenset(
    {int, float, complex, bool, str, bytes, slice, type, type(None), type(no_default), type(pandas.NaT)}
    | {type(pandas.NA), type(Ellipsis), np.ndarray, np.float64, np.float32, np.int64, np.int32, np.bool_, np.datetime64}
    | {pandas.Timestamp, pandas.Timedelta, pandas.RangeIndex, pandas.Index, pandas.DatetimeIndex, pandas.MultiIndex}
    | {pandas.DataFrame, pandas.Series}
    | {type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4", "u1", "?", "O", "M8[ns]", "m8[ns]")}
)
_UNKNOWN = object()
MODIN_WAY = id(_UNKNOWN)
"""Of what `plain` gives for an argument that pandas can not be given. By identity: arguments may compare as arrays."""


def plain(value: Any) -> Any:
    """What pandas is given for an argument."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is Series or kind is DataFrame:
        compiler = attribute(value, "_query_compiler")
        if type(compiler) is not SmallQueryCompiler or attribute(value, "_pinned"):
            return _UNKNOWN
        return compiler.as_series() if kind is Series else compiler.as_frame()
    if kind is list or kind is tuple:
        for entry in value:
            if type(entry) not in _PLAIN:
                break
        else:
            return value
        made = [plain(entry) for entry in value]
        return _UNKNOWN if MODIN_WAY in map(id, made) else kind(made)
    if kind is dict:
        made = [plain(entry) for entry in value.values()]
        return _UNKNOWN if MODIN_WAY in map(id, made) else dict(zip(value, made, strict=True))
    return _UNKNOWN


def plain_arguments(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """What pandas is given for the arguments of a call; None where it can not be given one of them."""
    given: Any = args
    for place, value in enumerate(args):
        if type(value) not in _PLAIN:
            found = plain(value)
            if found is _UNKNOWN:
                return None
            if given is args:
                given = list(args)
            given[place] = found
    named = keywords
    for name, value in keywords.items():
        if type(value) not in _PLAIN:
            found = plain(value)
            if found is _UNKNOWN:
                return None
            if named is keywords:
                named = dict(keywords)
            named[name] = found
    return given, named


def around(compiler: SmallQueryCompiler, ours: type) -> Any:
    """What the constructor makes of a query compiler, without its casting of arguments."""
    result: Any = object.__new__(ours)
    own = attribute(result, "__dict__")
    own["_siblings"] = []
    own["_query_compiler"] = compiler
    return result


_direct.know(
    SmallQueryCompiler, DataFrame, Series, pandas.DataFrame, pandas.Series, _PLAIN, plain, _UNKNOWN, Limit, on_weft
)
