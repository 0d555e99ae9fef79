"""`loc`, `iloc`, `at` and `iat` of a small frame: read by pandas, written by Modin."""

from __future__ import annotations

from typing import Any

from weft.pandas.direct_values import MODIN_WAY, SmallQueryCompiler, attribute, plain, wrapped

NAMES = ("loc", "iloc", "at", "iat")


class SmallIndexer:
    """What a frame's `loc` and the like give; anything but reading by plain keys is left to Modin's own. One subclass
    for each of them, so that an indexer is quick to make."""

    __slots__ = ("_data",)
    _name: str
    _is_series: bool
    _modins: Any

    def __init__(self, data: Any) -> None:
        self._data = data

    def _modin_way(self) -> Any:
        return self._modins(self._data)

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


def read_by_pandas(name: str, modin_way: property, is_series: bool) -> property:
    class Indexer(SmallIndexer):
        __slots__ = ()
        _name, _is_series, _modins = name, is_series, staticmethod(modin_way.__get__)

    def get(self: Any) -> Any:
        is_small = type(attribute(self, "_query_compiler")) is SmallQueryCompiler and not attribute(self, "_pinned")
        return Indexer(self) if is_small else modin_way.__get__(self)

    return property(get, doc=modin_way.__doc__)
