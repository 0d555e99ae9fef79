"""`pd.DataFrame(…)`, `pd.concat` and other functions of the module, where what they are given and give is small."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import modin.pandas
import pandas
from modin.config import Backend

from weft.pandas._direct import adopt, wrapped
from weft.pandas.direct_values import plain_arguments
from weft.pandas.registration import NAME
from weft.pandas.small import Limit, is_small, on_weft

_FUNCTIONS = """
    concat merge melt pivot pivot_table crosstab cut qcut get_dummies isna isnull notna notnull to_datetime to_numeric
    to_timedelta unique value_counts merge_asof merge_ordered wide_to_long lreshape
""".split()


class _Default:
    """Whether new frames are Weft's, and small ones pandas'."""

    is_weft = False


def _is_in_use() -> bool:
    return _Default.is_weft and Limit.rows is not None


def register() -> None:
    """Change the functions of `modin.pandas` in this process, once."""
    Backend.subscribe(lambda parameter: setattr(_Default, "is_weft", parameter.get() == NAME))
    for name in _FUNCTIONS:
        setattr(modin.pandas, name, _by_pandas(getattr(pandas, name), getattr(modin.pandas, name)))


def give_back(name: str) -> None:
    """Somebody registered an extension of this name: it is Modin's to look up."""
    if name in _FUNCTIONS:
        setattr(modin.pandas, name, getattr(modin.pandas, name).__wrapped__)


def _by_pandas(theirs: Callable[..., Any], modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = plain_arguments(args, kwargs) if _is_in_use() else None
        if given is None:
            return modin_way(*args, **kwargs)
        made = theirs(*given[0], **given[1])
        return tuple(map(wrapped, made)) if type(made) is tuple else wrapped(made)

    return call


def made_by_pandas(ours: Any, theirs: Any) -> Callable[..., None]:
    """`__init__` of one of Modin's classes: pandas makes what is small, and what Modin is to move. One that is made of
    another is Modin's: what is written into one of both is in both."""
    modin_way = ours.__init__

    @functools.wraps(modin_way)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        data = args[0] if args else kwargs.get("data")
        is_new = type(self) is ours and "query_compiler" not in kwargs and not isinstance(data, ours)
        given = plain_arguments(args, kwargs) if is_new and _is_in_use() else None
        if given is None:
            modin_way(self, *args, **kwargs)
            return
        made = theirs(*given[0], **given[1])
        adopt(self, made)
        if len(made.index) > Limit.few_rows and not is_small(made):
            compiler = self._query_compiler
            self._query_compiler = on_weft(compiler)
            self._query_compiler._shape_hint = compiler._shape_hint

    return make
