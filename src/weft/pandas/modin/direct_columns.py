"""`frame["b"]` and `frame.b` of a small frame, which programs call most of all.

pandas keeps the columns that were asked for: those are given natively, from there; here it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas

from weft.pandas.modin._direct import column_of
from weft.pandas.modin.direct_values import SmallQueryCompiler, attribute


def by_label(way: Callable[..., Any]) -> Callable[..., Any]:
    """`__getitem__`, `__getattr__` or `get` of a frame that gives a column of this name, and goes the way it went if
    there is none, or several."""

    def get(self: Any, key: Any, *default: Any, **named: Any) -> Any:
        own = attribute(self, "__dict__")
        compiler = own.get("_query_compiler")
        if type(key) is str and type(compiler) is SmallQueryCompiler and not own.get("_pinned"):
            frame = compiler.as_frame()
            if key in frame.columns:
                column = frame[key]
                if type(column) is pandas.Series:
                    return column_of(self, column)
        return way(self, key, *default, **named)

    get.__name__, get.__doc__ = way.__name__, way.__doc__
    return get
