"""`groupby` of a small frame: pandas' own groups, and Modin's where pandas' do not do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import modin.pandas
import pandas
from modin.pandas.groupby import DataFrameGroupBy, SeriesGroupBy

from weft.pandas.modin._direct import wrapped
from weft.pandas.modin.direct_values import MODIN_WAY, SmallQueryCompiler, around, attribute, plain, plain_arguments
from weft.pandas.modin.direct_views import SmallView


class SmallGroups(SmallView):
    __slots__ = ()
    _METHODS = frozenset(
        """
        sum mean min max count size std var median prod first last nunique any all quantile describe sem skew nth
        agg aggregate apply transform filter get_group value_counts sample
        cumsum cumprod cummax cummin cumcount ngroup rank shift diff pct_change ffill bfill fillna head tail
        idxmin idxmax
        """.split()
    )
    _READ = frozenset(("ngroups", "groups", "indices", "ndim"))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For isinstance: to programs it is Modin's."""
        return SeriesGroupBy if isinstance(self._theirs, pandas.core.groupby.SeriesGroupBy) else DataFrameGroupBy

    def __getattr__(self, name: str) -> Any:
        is_known = name.startswith("_") or name in self._METHODS or hasattr(type(self._theirs), name)
        if not is_known and name in getattr(self._theirs.obj, "columns", ()):
            return self[name]
        return super().__getattr__(name)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(self._theirs, pandas.core.groupby.SeriesGroupBy) or id(plain(key)) == MODIN_WAY:
            return self._modin_way()[key]
        return SmallGroups(self._theirs[key], lambda: self._modin_way()[key])

    def __iter__(self) -> Iterator[Any]:
        return ((name, wrapped(group)) for name, group in self._theirs)

    def __len__(self) -> int:
        return len(self._theirs)


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
