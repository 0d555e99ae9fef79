"""`loc`, `iloc`, `at` and `iat` of a small frame: read by pandas, written by Modin."""

from __future__ import annotations

from typing import Any

import modin.pandas

from weft.pandas.direct_values import MODIN_WAY, SmallQueryCompiler, attribute, plain, wrapped

NAMES = ("loc", "iloc", "at", "iat")


class SmallIndexer:
    """What a frame's `loc` and the like give; anything but reading by plain keys is left to Modin's own."""

    __slots__ = ("_data", "_is_series", "_name", "_way")

    def __init__(self, data: Any, is_series: bool, name: str, way: property) -> None:
        self._data = data
        self._is_series = is_series
        self._name = name
        self._way = way

    def _modin_way(self) -> Any:
        return self._way.__get__(self._data)

    def __getitem__(self, key: Any) -> Any:
        given = plain(key)
        if id(given) == MODIN_WAY:
            return self._modin_way()[key]
        compiler = attribute(self._data, "_query_compiler")
        source = compiler.as_series() if self._is_series else compiler.as_frame()
        made = getattr(source, self._name)[given]
        if made is source:
            return self._modin_way()[key]
        return wrapped(made)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._modin_way()[key] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._modin_way()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._modin_way(), name)


def register(ours: Any) -> None:
    for name in NAMES:
        setattr(ours, name, _property(ours is modin.pandas.Series, name, getattr(ours, name)))


def _property(is_series: bool, name: str, way: property) -> property:
    def get(self: Any) -> Any:
        own = attribute(self, "__dict__")
        is_small = type(own.get("_query_compiler")) is SmallQueryCompiler and not own.get("_pinned")
        return SmallIndexer(self, is_series, name, way) if is_small else way.__get__(self)

    return property(get, doc=way.__doc__)
