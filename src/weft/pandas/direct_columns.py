"""`frame["b"]` and `frame.b` of a small frame, which programs call most of all.

pandas keeps the columns that were asked for; they are given from there, with as little around them as can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import modin.pandas
import pandas

from weft.pandas.direct_values import SmallQueryCompiler, around, attribute
from weft.pandas.small import compiler_around


def register() -> None:
    ours = modin.pandas.DataFrame
    for name in ("__getitem__", "__getattr__"):
        setattr(ours, name, _kept_first(getattr(ours, name), ours._extensions["Pandas"]))


def _kept_first(way: Callable[[Any, Any], Any], extended: dict[str, Any]) -> Callable[[Any, Any], Any]:
    def get(self: Any, key: Any) -> Any:
        own = attribute(self, "__dict__")
        compiler = own.get("_query_compiler")
        if type(key) is str and type(compiler) is SmallQueryCompiler and not extended and not own.get("_pinned"):
            column = compiler.as_frame()._item_cache.get(key)
            if column is not None:
                return column_of(self, column)
        return way(self, key)

    get.__name__, get.__doc__ = way.__name__, way.__doc__
    return get


def column_of(frame: Any, column: pandas.Series[Any]) -> Any:
    """Modin's series of a column. Modin writes what is assigned to a part of it into the frame that it is of."""
    result = around(compiler_around(column), modin.pandas.Series)
    own = attribute(result, "__dict__")
    own["_parent"] = frame
    own["_parent_axis"] = 1
    return result
