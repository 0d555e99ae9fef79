"""Calls that Modin 0.37 answers otherwise than pandas does: of frames on Weft they are given to pandas itself.

EXACT-1 A call of the program on a frame on Weft gives what pandas gives, to the type, the order and the labels. Where
        Modin's parallel form is known to differ (the tables below, found by random chains of calls on odd frames),
        the whole frame is brought into this process. That is slower and never wrong; the journal tells of it, and
        strict mode makes it an error.
EXACT-2 Calls that Modin's own code makes keep Modin's way: it counts on it.

Groups go the other way round: only what is listed is Modin's, and only of groups that are sorted: Modin sorts them
always.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import modin.pandas
import numpy as np
import pandas
from modin.error_message import ErrorMessage
from modin.pandas.groupby import DataFrameGroupBy, SeriesGroupBy

from weft.pandas.modin.journal import journal
from weft.pandas.modin.near import is_of_program, is_on_weft

Condition = Callable[[Any, tuple[Any, ...], dict[str, Any]], bool]
REASON = "Modin's parallel form of it gives another result than pandas"
FEW_ROWS = 100
"""So few rows leave blocks empty, or smaller than a sample."""


def always(compiler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def of_few_rows(compiler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(compiler.get_axis_len(0) < FEW_ROWS)


def of_nested_columns(compiler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return isinstance(compiler.columns, pandas.MultiIndex)


def of_other_types(compiler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Than bools, ints and floats of NumPy."""
    return not all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in compiler.dtypes)


def of_nullable(compiler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Numbers and texts with holes of their own, in pandas' or Arrow's arrays."""
    plain_kinds = (np.dtype, pandas.CategoricalDtype, pandas.DatetimeTZDtype)
    return not all(isinstance(dtype, plain_kinds) for dtype in compiler.dtypes)


def of_bools_beside_others(compiler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """pandas does not make numbers of them."""
    kinds = {getattr(dtype, "kind", "O") for dtype in compiler.dtypes}
    return "b" in kinds and len(kinds) > 1


def any_of(*conditions: Condition) -> Condition:
    return lambda *given: any(condition(*given) for condition in conditions)


odd = any_of(of_few_rows, of_nested_columns, of_nullable)
of_no_numbers = any_of(of_few_rows, of_other_types)


BOTH: dict[str, Condition] = {
    **dict.fromkeys("combine_first compare first_valid_index last_valid_index value_counts".split(), always),
    **dict.fromkeys("mean sum prod std var sem skew kurt median quantile".split(), odd),
    **dict.fromkeys("min max".split(), any_of(odd, of_bools_beside_others)),
    **dict.fromkeys("cumsum cumprod cummax cummin diff pct_change idxmax idxmin".split(), of_no_numbers),
    **dict.fromkeys("sort_values nlargest nsmallest sample map xs head tail agg aggregate".split(), of_few_rows),
    **dict.fromkeys("add_prefix add_suffix".split(), of_nested_columns),
    **dict.fromkeys("unstack transpose".split(), odd),
    **dict.fromkeys("infer_objects memory_usage".split(), of_no_numbers),
}
FRAMES: dict[str, Condition] = {
    **dict.fromkeys("corrwith to_records melt mode nlargest nsmallest itertuples pivot_table".split(), always),
    **dict.fromkeys("corr cov".split(), of_no_numbers),
    "stack": odd,
}
SERIES: dict[str, Condition] = {"item": always, "mode": always}
FUNCTIONS = ("crosstab", "get_dummies")
GROUPS_OF_MODIN = frozenset(
    "sum mean count min max prod any all size std var median nunique first last agg aggregate apply pipe".split()
)


def register() -> None:
    """Change Modin's classes in this process, once, and before quicker ways around them are put in front."""
    for ours, table in ((modin.pandas.DataFrame, FRAMES), (modin.pandas.Series, SERIES)):
        for name, condition in {**BOTH, **table}.items():
            setattr(ours, name, _method(name, getattr(ours, name), condition))
        ours.groupby = _grouped(ours.groupby)
    for name in FUNCTIONS:
        setattr(modin.pandas, name, _function(name, getattr(modin.pandas, name)))


def _method(name: str, modin_way: Callable[..., Any], condition: Condition) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = self._query_compiler
        if not is_on_weft(compiler) or not is_of_program() or not condition(compiler, args, kwargs):
            return modin_way(self, *args, **kwargs)
        _note(name, compiler)
        theirs = plain(self)
        made = getattr(theirs, name)(*map(plain, args), **{key: plain(value) for key, value in kwargs.items()})
        if kwargs.get("inplace"):
            self._update_inplace(wrapped(theirs)._query_compiler)
        return wrapped(made)

    return call


def _function(name: str, modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, _OURS)]
        on_weft = [value._query_compiler for value in given if is_on_weft(value._query_compiler)]
        if not on_weft or not is_of_program():
            return modin_way(*args, **kwargs)
        _note(name, on_weft[0])
        return wrapped(getattr(pandas, name)(*map(plain, args), **{key: plain(each) for key, each in kwargs.items()}))

    return call


def _note(name: str, compiler: Any) -> None:
    """To bring a few rows here costs nothing that anybody wants to hear of."""
    if not of_few_rows(compiler, (), {}) and journal.note_fallback(name, REASON):
        ErrorMessage.default_to_pandas(f"`{name}`", reason=REASON)


_OURS = (modin.pandas.DataFrame, modin.pandas.Series)


def plain(value: Any) -> Any:
    """The same in pandas."""
    if isinstance(value, _OURS):
        return value._to_pandas()
    return [plain(one) for one in value] if type(value) is list else value


def wrapped(made: Any) -> Any:
    """What pandas made, as Modin's."""
    if isinstance(made, pandas.DataFrame):
        return modin.pandas.DataFrame(made)
    return modin.pandas.Series(made) if isinstance(made, pandas.Series) else made


# ---- groups ----------------------------------------------------------------------------------------


class ExactGroups:
    """Groups of a frame on Weft: Modin's for what it does right, pandas' for the rest. Pandas' are made when needed."""

    def __init__(self, of_modin: Any, of_pandas: Callable[[], Any], only_pandas: bool) -> None:
        self._of_modin = of_modin
        self._of_pandas = functools.cache(of_pandas)
        self._only_pandas = only_pandas

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For isinstance: to programs it is Modin's."""
        return SeriesGroupBy if isinstance(self._of_modin, SeriesGroupBy) else DataFrameGroupBy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or (name in GROUPS_OF_MODIN and not self._only_pandas):
            return getattr(self._of_modin, name)
        if not hasattr(type(self._of_modin), name):
            getattr(self._of_modin, name)  # raises where it is no column either
            return self[name]
        theirs = getattr(self._groups(name), name)
        if not callable(theirs):
            return theirs
        return lambda *args, **kwargs: wrapped(theirs(*map(plain, args), **kwargs))

    def _groups(self, name: str) -> Any:
        _note(f"groupby.{name}", self._of_modin._query_compiler)
        return self._of_pandas()

    def __getitem__(self, key: Any) -> ExactGroups:
        return ExactGroups(self._of_modin[key], lambda: self._of_pandas()[key], self._only_pandas)

    def __iter__(self) -> Iterator[Any]:
        return ((name, wrapped(group)) for name, group in self._groups("__iter__"))

    def __len__(self) -> int:
        return len(self._groups("__len__"))

    def __repr__(self) -> str:
        return repr(self._of_modin)


def _grouped(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def groupby(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = modin_way(self, *args, **kwargs)
        compiler = self._query_compiler
        if not is_on_weft(compiler) or not is_of_program():
            return found
        unchanged = type(self)(query_compiler=compiler)
        given = {key: plain(value) for key, value in kwargs.items()}
        only_pandas = not kwargs.get("sort", True) or of_few_rows(compiler, args, kwargs)
        return ExactGroups(found, lambda: plain(unchanged).groupby(*map(plain, args), **given), only_pandas)

    return groupby
