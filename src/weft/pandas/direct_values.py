"""Arguments and results of what small frames do in pandas directly: out of Modin's objects, and back into them."""

from __future__ import annotations

from typing import Any

import modin.pandas
import numpy as np
import pandas
from pandas._libs.lib import no_default

from weft.pandas.small import SmallQueryCompiler, compiler_around, moved_when_grown

__all__ = [
    "MODIN_WAY",
    "NO_ARGUMENTS",
    "SmallQueryCompiler",
    "around",
    "attribute",
    "plain",
    "plain_arguments",
    "wrapped",
]

attribute = object.__getattribute__
"""Of a frame or series, as Python looks it up. Modin's classes look for extensions first, at every access."""

_PLAIN = frozenset(
    {int, float, complex, bool, str, bytes, slice, type, type(None), type(no_default), type(pandas.NaT)}
    | {type(pandas.NA), type(Ellipsis), np.ndarray, np.float64, np.float32, np.int64, np.int32, np.bool_, np.datetime64}
    | {pandas.Timestamp, pandas.Timedelta, pandas.RangeIndex, pandas.Index, pandas.DatetimeIndex, pandas.MultiIndex}
    | {type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4", "u1", "?", "O", "M8[ns]", "m8[ns]")}
)
_UNKNOWN = object()
NO_ARGUMENTS: tuple[Any, dict[str, Any]] = ((), {})
MODIN_WAY = id(_UNKNOWN)
"""Of what `plain` gives for an argument that pandas can not be given. By identity: arguments may compare as arrays."""


def plain(value: Any) -> Any:
    """What pandas is given for an argument."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is modin.pandas.DataFrame or kind is modin.pandas.Series:
        compiler = attribute(value, "_query_compiler")
        if type(compiler) is not SmallQueryCompiler or attribute(value, "_pinned"):
            return _UNKNOWN
        return compiler.as_series() if kind is modin.pandas.Series else compiler.as_frame()
    if kind is list or kind is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return value
        made = [plain(entry) for entry in value]
        return _UNKNOWN if MODIN_WAY in map(id, made) else kind(made)
    if kind is dict:
        made = [plain(entry) for entry in value.values()]
        return _UNKNOWN if MODIN_WAY in map(id, made) else dict(zip(value, made, strict=True))
    return _UNKNOWN


def plain_arguments(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """What pandas is given for the arguments of a call; None where it can not be given one of them."""
    if _PLAIN.issuperset(map(type, args)) and _PLAIN.issuperset(map(type, keywords.values())):
        return args, keywords
    given, named = [plain(value) for value in args], {name: plain(value) for name, value in keywords.items()}
    return None if MODIN_WAY in map(id, (*given, *named.values())) else (given, named)


def wrapped(made: Any) -> Any:
    """A frame or series of Modin around one of pandas, on Weft where it has grown; anything else as it is."""
    kind = type(made)
    if kind is not pandas.DataFrame and kind is not pandas.Series:
        return made
    object.__setattr__(made, "_is_copy", None)
    ours = modin.pandas.DataFrame if kind is pandas.DataFrame else modin.pandas.Series
    compiler = moved_when_grown(compiler_around(made))
    return around(compiler, ours) if type(compiler) is SmallQueryCompiler else ours(query_compiler=compiler)


def around(compiler: SmallQueryCompiler, ours: type) -> Any:
    """What the constructor makes of a query compiler, without its casting of arguments."""
    result: Any = object.__new__(ours)
    own = attribute(result, "__dict__")
    own["_siblings"] = []
    own["_query_compiler"] = compiler
    return result
