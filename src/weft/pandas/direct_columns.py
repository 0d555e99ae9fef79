"""`frame["b"]`, `frame.b` and `frame["b"] = …` of a small frame, which programs call most of all.

pandas keeps the columns that were asked for, and they are given from there. What is assigned goes into the frame of
pandas itself where nobody else holds it, otherwise into a copy; a column needs no copy of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas

from weft.pandas._direct import column_of, sole_frame, wrapped
from weft.pandas.direct_values import SmallQueryCompiler, attribute, plain_arguments


def by_label(way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`__getitem__` or `__getattr__` of a frame that gives a column of this name, and goes the way it went if there is
    none, or several."""

    def get(self: Any, key: Any) -> Any:
        own = attribute(self, "__dict__")
        compiler = own.get("_query_compiler")
        if type(key) is str and type(compiler) is SmallQueryCompiler and not own.get("_pinned"):
            frame = compiler.as_frame()
            if key in frame.columns:
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
        is_column = type(key) is str
        del compiler
        sole = sole_frame(self) if is_column else None
        if sole is not None and len(sole):
            sole[key] = given[0][1]
            return None
        changed = attribute(self, "_query_compiler").as_frame().copy(deep=not is_column)
        changed[given[0][0]] = given[0][1]
        self._update_inplace(wrapped(changed)._query_compiler)

    assign.__name__, assign.__doc__ = way.__name__, way.__doc__
    return assign
