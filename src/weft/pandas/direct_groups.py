"""`groupby` of a small frame: pandas' own groups, and Modin's where pandas' do not do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import modin.pandas
import pandas
from modin.pandas.groupby import DataFrameGroupBy, SeriesGroupBy

from weft.pandas._direct import wrapped
from weft.pandas.direct_values import MODIN_WAY, SmallQueryCompiler, around, attribute, plain, plain_arguments

_METHODS = frozenset(
    """
    sum mean min max count size std var median prod first last nunique any all quantile describe agg aggregate sem skew
    cumsum cumprod cummax cummin cumcount ngroup rank shift diff ffill bfill head tail idxmin idxmax value_counts
    """.split()
)
_READ = frozenset(("ngroups", "groups", "indices", "ndim"))


class SmallGroups:
    """The groups of a small frame. Methods of `_METHODS` are pandas'; for anything else Modin's object is made."""

    __slots__ = ("_groups", "_made", "_make")

    def __init__(self, groups: Any, make: Callable[[], Any]) -> None:
        self._groups = groups
        self._make = make
        self._made: Any = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For isinstance: to programs it is Modin's."""
        return SeriesGroupBy if isinstance(self._groups, pandas.core.groupby.SeriesGroupBy) else DataFrameGroupBy

    def _modin_way(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return functools.partial(self._call, name)
        if name in _READ:
            return getattr(self._groups, name)
        columns = getattr(self._groups.obj, "columns", ())
        if not name.startswith("_") and name in columns and not hasattr(type(self._groups), name):
            return self[name]
        return getattr(self._modin_way(), name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        given = plain_arguments(args, kwargs)
        if given is None:
            return getattr(self._modin_way(), name)(*args, **kwargs)
        try:
            return wrapped(getattr(self._groups, name)(*given[0], **given[1]))
        except (TypeError, ValueError):
            return getattr(self._modin_way(), name)(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(self._groups, pandas.core.groupby.SeriesGroupBy) or id(plain(key)) == MODIN_WAY:
            return self._modin_way()[key]
        return SmallGroups(self._groups[key], lambda: self._modin_way()[key])

    def __iter__(self) -> Iterator[Any]:
        return ((name, wrapped(group)) for name, group in self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return repr(self._modin_way())


def grouped_by_pandas(ours: Any) -> Callable[..., Any]:
    """`groupby` of one of Modin's classes."""
    modin_way, is_series = ours.groupby, ours is modin.pandas.Series

    @functools.wraps(modin_way)
    def groupby(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = attribute(self, "_query_compiler")
        is_small = type(compiler) is SmallQueryCompiler and not attribute(self, "_pinned")
        given = plain_arguments(args, kwargs) if is_small else None
        if given is None:
            return modin_way(self, *args, **kwargs)
        source = compiler.as_series() if is_series else compiler.as_frame()
        groups = source.groupby(*given[0], **given[1])

        def make() -> Any:
            # A column knows the frame that it is of; only where that was changed since, one like it has to do.
            unchanged = self if self._query_compiler is compiler else around(compiler, ours)
            return modin_way(unchanged, *args, **kwargs)

        return SmallGroups(groups, make)

    return groupby
