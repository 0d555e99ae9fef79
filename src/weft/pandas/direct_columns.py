"""`frame["b"]`, `frame.b` and `frame["b"] = …` of a small frame, which programs call most of all.

pandas keeps the columns that were asked for; they are given from there, with as little around them as can be. What is
assigned goes into a copy of the frame, for others may hold the same one; a column needs no copy of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas
from modin.pandas import Series

from weft.pandas.direct_values import SmallQueryCompiler, attribute, new, plain_arguments, wrapped


def by_label(way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`__getitem__` or `__getattr__` of a frame that gives a column of this name, and goes the way it went if there is
    none, or several."""

    def get(self: Any, key: Any) -> Any:
        own = attribute(self, "__dict__")
        compiler = own.get("_query_compiler")
        if type(key) is str and type(compiler) is SmallQueryCompiler and not own.get("_pinned"):
            frame = compiler.as_frame()
            column = frame._item_cache.get(key)
            if column is None and key in frame.columns:
                column = frame[key]
            if type(column) is pandas.Series:
                return column_of(self, column)
        return way(self, key)

    get.__name__, get.__doc__ = way.__name__, way.__doc__
    return get


def set_by_label(way: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """`__setitem__` of a frame."""

    def assign(self: Any, key: Any, value: Any) -> None:
        compiler = attribute(self, "_query_compiler")
        is_small = type(compiler) is SmallQueryCompiler and not attribute(self, "_pinned")
        given = plain_arguments((key, value), {}) if is_small else None
        if given is None:
            return way(self, key, value)
        changed = compiler.as_frame().copy(deep=type(key) is not str)
        changed[given[0][0]] = given[0][1]
        self._update_inplace(wrapped(changed)._query_compiler)

    assign.__name__, assign.__doc__ = way.__name__, way.__doc__
    return assign


def column_of(frame: Any, column: pandas.Series[Any]) -> Any:
    """Modin's series of a column. Modin writes what is assigned to a part of it into the frame that it is of."""
    compiler, result = new(SmallQueryCompiler), new(Series)
    compiler._series = column
    compiler._shape_hint = "column"
    own = attribute(result, "__dict__")
    own["_siblings"] = []
    own["_query_compiler"] = compiler
    own["_parent"] = frame
    own["_parent_axis"] = 1
    return result
