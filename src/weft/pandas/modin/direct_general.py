"""`pd.DataFrame(…)`, `pd.concat` and other functions of the module, where what they are given and give is small."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import modin.pandas
import pandas
from modin.config import Backend

from weft.pandas.modin import _direct
from weft.pandas.modin._direct import wrapped
from weft.pandas.modin.direct_values import plain_arguments
from weft.pandas.modin.registration import NAME
from weft.pandas.modin.small import Limit, is_small, on_weft, set_default_backend

_FUNCTIONS = """
    concat merge melt pivot pivot_table crosstab cut qcut get_dummies isna isnull notna notnull to_datetime to_numeric
    to_timedelta unique value_counts merge_asof merge_ordered wide_to_long lreshape
""".split()


def register() -> None:
    """Change the functions of `modin.pandas` in this process, once."""
    Backend.subscribe(lambda parameter: set_default_backend(parameter.get() == NAME))
    for name in _FUNCTIONS:
        setattr(modin.pandas, name, _by_pandas(getattr(pandas, name), getattr(modin.pandas, name)))


def give_back(name: str) -> None:
    """Somebody registered an extension of this name: it is Modin's to look up."""
    if name in _FUNCTIONS:
        setattr(modin.pandas, name, getattr(modin.pandas, name).__wrapped__)


def _by_pandas(theirs: Callable[..., Any], modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = plain_arguments(args, kwargs) if Limit.makes_small else None
        if given is None:
            return modin_way(*args, **kwargs)
        made = theirs(*given[0], **given[1])
        return tuple(map(wrapped, made)) if type(made) is tuple else wrapped(made)

    return call


def made_by_pandas(ours: Any, theirs: Any) -> Any:
    """`__init__` of one of Modin's classes. One that is made of another is Modin's: what is written into one of both is
    in both."""
    modin_way = ours.__init__
    return functools.update_wrapper(_direct.make(theirs, modin_way, theirs is pandas.Series), modin_way)


def move_large(data: Any) -> None:
    """A new frame or series, where it is not small."""
    compiler = data._query_compiler
    if not is_small(compiler.held()):
        data._query_compiler = on_weft(compiler)
        data._query_compiler._shape_hint = compiler._shape_hint
