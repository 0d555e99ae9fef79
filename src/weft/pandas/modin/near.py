"""Frames on Weft that are not very large: what pandas does faster in one process is done by pandas, here.

Modin sorts, ranks, drops duplicates and takes columns by tasks that cost more than the work, up to some tens of
millions of cells. For such a frame pandas is given a copy of the data, made from the blocks at the first of these calls
and kept as long as Modin's compiler of the frame; what comes back is a small frame. What gains from two cores
(`fillna`, `mean`, `merge`, `apply`, strings, files, …) stays on Weft, and so do all calls that Modin's own code makes,
calls that write in place, frames pinned to a backend, and everything in strict mode or under a limit of rows that the
user has set.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import modin.pandas
import numpy as np
import pandas
from modin.pandas.groupby import DataFrameGroupBy, SeriesGroupBy

from weft.pandas.modin.direct_values import around
from weft.pandas.modin.journal import journal
from weft.pandas.modin.small import Limit, SmallQueryCompiler, are_near, cells
from weft.pandas.packing import only_column

if TYPE_CHECKING:
    from weft.pandas.modin.query_compiler import WeftQueryCompiler

_COSTLY = """
    sort_values sort_index drop_duplicates duplicated nunique describe corr cov quantile median rank value_counts mode
    cumsum cumprod cummax cummin std var sem skew kurt shift diff where mask replace unique dropna sample query
    nlargest nsmallest pivot_table melt reset_index set_index
""".split()
"""Worth the copy."""
_CHEAP = """
    sum min max prod count any all idxmin idxmax abs isin astype drop head tail
    add sub mul div truediv floordiv mod pow radd rsub rmul rdiv rtruediv rfloordiv rmod rpow eq ne lt le gt ge
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __mod__ __pow__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__ __invert__ __neg__
""".split()
"""By pandas where the copy is there already."""
_VIEWS = frozenset(("head", "tail"))
"""They give a part of the copy itself."""
_BY_ROW = frozenset("std var sem skew kurt median nunique mode quantile rank".split())
"""With axis=1 they gain from two cores."""
_GROUPS_ON_WEFT = frozenset(("agg", "aggregate", "apply", "pipe"))
_GIVEN = (modin.pandas.DataFrame, modin.pandas.Series)


def register() -> None:
    """Change Modin's classes in this process, once, and before small frames are given shorter ways around them."""
    for ours in _GIVEN:
        for name in (*_COSTLY, *_CHEAP):
            if hasattr(ours, name):
                setattr(ours, name, _by_pandas(name, getattr(ours, name)))
    frame = modin.pandas.DataFrame
    frame.__getitem__ = _item(frame.__getitem__)
    frame.__getattr__ = _attribute(frame.__getattr__)
    frame.groupby = _grouped(frame.groupby)
    for name in ("loc", "iloc"):
        setattr(frame, name, _indexed(name, getattr(frame, name)))
    frame.merge = _merged(frame.merge)
    modin.pandas.Series.map = _mapped(modin.pandas.Series.map)


def _by_pandas(name: str, modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        stays = kwargs.get("inplace") or (name in _BY_ROW and kwargs.get("axis") in (1, "columns"))
        near = None if stays else _near(self, must_be_there=name in _CHEAP)
        if near is None:
            return modin_way(self, *args, **kwargs)
        journal.note_near(name)
        made = getattr(near, name)(*map(_given, args), **{key: _given(value) for key, value in kwargs.items()})
        return made.copy() if name in _VIEWS else made

    return call


def _item(modin_way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(modin_way)
    def __getitem__(self: Any, key: Any) -> Any:
        if not is_on_weft(self._query_compiler):
            return modin_way(self, key)
        if type(key) is str:
            column = _column(self, key)
            return _remembered(self, key, modin_way(self, key)) if column is None else column
        near = _near(self, must_be_there=not isinstance(key, modin.pandas.Series))
        if near is None:
            return modin_way(self, key)
        journal.note_near("__getitem__")
        made = near[_given(key)]
        return made.copy() if isinstance(key, slice) else made

    return __getitem__


def _remembered(data: Any, label: str, column: Any) -> Any:
    """A column on Weft of a frame that has no two of this name knows where it came from."""
    compiler = data._query_compiler
    is_column = isinstance(column, modin.pandas.Series) and compiler.columns.is_unique
    if is_column and is_on_weft(column._query_compiler):
        column._query_compiler.taken_from = (compiler, compiler.columns.get_loc(label))
    return column


class _Indexer:
    """`loc` or `iloc` of a frame on Weft: reads the copy where it is there."""

    __slots__ = ("_data", "_modin_way", "_name")

    def __init__(self, data: Any, name: str, modin_way: Any) -> None:
        self._data = data
        self._name = name
        self._modin_way = modin_way

    def __getitem__(self, key: Any) -> Any:
        near = _near(self._data, must_be_there=True)
        if near is None:
            return self._modin_way[key]
        journal.note_near(self._name)
        given = tuple(map(_given, key)) if isinstance(key, tuple) else _given(key)
        made = getattr(near, self._name)[given]
        return made.copy() if isinstance(made, _GIVEN) else made

    def __setitem__(self, key: Any, value: Any) -> None:
        self._modin_way[key] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._modin_way(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._modin_way, name)


def _indexed(name: str, modin_way: property) -> property:
    def get(self: Any) -> Any:
        found = modin_way.__get__(self)
        compiler = self._query_compiler
        is_there = is_on_weft(compiler) and compiler.near is not None
        return _Indexer(self, name, found) if is_there else found

    return property(get, doc=modin_way.__doc__)


_COMPUTED = "nothing is to be called: frames are computed as they are used"
_ELSEWHERE = {
    "collect": _COMPUTED,
    "compute": _COMPUTED,
    "persist": _COMPUTED,
    "repartition": "parts are cut as calls need them",
    "to_pandas": "write frame._to_pandas()",
}
"""What to write for words of Dask's and Polars' frames."""


def _attribute(modin_way: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @functools.wraps(modin_way)
    def __getattr__(self: Any, key: str) -> Any:
        has_columns = not key.startswith("_") and is_on_weft(self.__dict__.get("_query_compiler"))
        column = _column(self, key) if has_columns else None
        try:
            return modin_way(self, key) if column is None else column
        except AttributeError as error:
            if key in _ELSEWHERE:
                raise AttributeError(f"{error}: {_ELSEWHERE[key]}") from None
            raise

    return __getattr__


def _merged(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    by_pandas = _by_pandas("merge", modin_way)

    @functools.wraps(modin_way)
    def merge(self: Any, right: Any, how: str = "inner", *args: Any, **kwargs: Any) -> Any:
        """Modin has no parallel form of some."""
        return (by_pandas if how in ("outer", "cross") else modin_way)(self, right, how, *args, **kwargs)

    return merge


def _mapped(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    by_pandas = _by_pandas("map", modin_way)

    @functools.wraps(modin_way)
    def map_(self: Any, arg: Any, na_action: Any = None) -> Any:
        """A table is looked up by pandas for all elements at once, which Modin does by one function call for each."""
        return (by_pandas if type(arg) is dict else modin_way)(self, arg, na_action)

    return map_


# ---- the copy --------------------------------------------------------------------------------------


def _near(data: Any, must_be_there: bool = False) -> Any:
    """A small frame or series with the same data; None where its data is to stay on Weft."""
    compiler = data._query_compiler
    if not is_on_weft(compiler) or not _is_asked_for(data):
        return None
    if compiler.near is None and (must_be_there or not _is_near(compiler)):
        return None
    return _near_of(data)


def _near_of(data: Any) -> Any:
    compiler = data._query_compiler
    if compiler.near is None:
        compiler.near = _copy_of(compiler)
    frame = compiler.near.copy(deep=False)
    frame.index, frame.columns = compiler.index, compiler.columns  # others may have been set since
    return _around(frame, type(data))


def _copy_of(compiler: WeftQueryCompiler) -> pandas.DataFrame:
    """Each column by itself, which pandas reduces and sorts quickest."""
    if compiler.taken_from is not None:
        return pandas.DataFrame({0: _values(*compiler.taken_from)}, copy=False)
    if not compiler.frame_has_materialized_dtypes or not all(map(_is_plain, compiler.dtypes)):
        return compiler.to_pandas()
    return pandas.DataFrame(dict(enumerate(_arrays(compiler))), copy=False)


def _arrays(compiler: WeftQueryCompiler) -> Iterator[Any]:
    for column in compiler._modin_frame._partitions.T:
        blocks = _loaded(column)
        for place in range(blocks[0].shape[1]):
            yield _joined(blocks, place)


def _loaded(blocks: Any) -> list[pandas.DataFrame]:
    from weft.pandas.modin.partitions import WeftPartitions

    found: list[pandas.DataFrame] = WeftPartitions.get_objects_from_partitions(list(blocks))
    return found


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biufmMO"


def is_on_weft(compiler: Any) -> bool:
    """By its name: a worker that is sent a frame registers this module while it loads the compiler's."""
    return type(compiler).__name__ == "WeftQueryCompiler"


def _is_asked_for(data: Any) -> bool:
    """By the program, of a frame that may be brought here."""
    return bool(Limit.near_cells) and not journal.strict and not data._pinned and is_of_program()


def is_of_program() -> bool:
    """Whether the program called, and not Modin's own code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("weft.pandas."):
        frame = frame.f_back
    return not frame.f_globals.get("__name__", "").startswith("modin.")


def _is_near(compiler: WeftQueryCompiler) -> bool:
    dtypes = compiler.dtypes if compiler.frame_has_materialized_dtypes else [None] * compiler.get_axis_len(1)
    return are_near(cells(compiler.get_axis_len(0), dtypes))


def _given(value: Any) -> Any:
    """What a small frame is given for an argument."""
    if not isinstance(value, _GIVEN):
        return value
    near = _near(value)
    return value if near is None else near


def _around(frame: pandas.DataFrame, ours: Any) -> Any:
    compiler = SmallQueryCompiler(frame)
    if ours is modin.pandas.Series:
        compiler._shape_hint = "column"
    return around(compiler, ours)


# ---- columns ---------------------------------------------------------------------------------------


def _column(data: Any, label: str) -> Any:
    """A column of few enough cells, as a small series; None where it is Modin's to give."""
    compiler = data._query_compiler
    if not compiler.frame_has_materialized_dtypes or not _is_asked_for(data):
        return None
    if label not in compiler.columns or not compiler.columns.is_unique or not _is_plain(compiler.dtypes[label]):
        return None
    if not 0 < cells(compiler.get_axis_len(0), [compiler.dtypes[label]]) <= Limit.cells:
        return None
    values = _values(compiler, compiler.columns.get_loc(label))
    series = _around(pandas.DataFrame({label: values}, index=compiler.index, copy=False), modin.pandas.Series)
    series._parent, series._parent_axis = data, 1
    return series


def _values(compiler: WeftQueryCompiler, place: int) -> Any:
    """A copy of one column: the program may write into it."""
    if compiler.near is not None:
        return compiler.near.iloc[:, place]._values.copy()
    grid = compiler._modin_frame._partitions
    across = 0
    while place >= (width := grid[0, across].width()):
        place, across = place - width, across + 1
    with only_column(place):
        blocks = _loaded(grid[:, across])
    return _joined(blocks, place)


def _joined(blocks: list[pandas.DataFrame], place: int) -> Any:
    return pandas.concat([block.iloc[:, place] for block in blocks], ignore_index=True)._values


# ---- groups ----------------------------------------------------------------------------------------


class NearGroups:
    """Groups of a frame on Weft: aggregated there, all else by pandas. Either is made when it is needed, but the one
    that is quick to make at once, so that what is wrong with the call is said."""

    def __init__(self, near: Callable[[], Any], on_weft: Callable[[], Any], is_there: bool) -> None:
        self._near = functools.cache(near)
        self._on_weft = functools.cache(on_weft)
        self._is_there = is_there
        self._of_series = isinstance(self._near() if is_there else self._on_weft(), SeriesGroupBy)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For isinstance: to programs it is Modin's."""
        return SeriesGroupBy if self._of_series else DataFrameGroupBy

    def __getattr__(self, name: str) -> Any:
        if name in _GROUPS_ON_WEFT or name.startswith("_"):
            return getattr(self._on_weft(), name)
        journal.note_near(f"groupby.{name}")
        return getattr(self._near(), name)

    def __getitem__(self, key: Any) -> Any:
        return NearGroups(lambda: self._near()[key], lambda: self._on_weft()[key], self._is_there)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._near())

    def __len__(self) -> int:
        return len(self._near())

    def __repr__(self) -> str:
        return repr(self._on_weft())


def _grouped(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def groupby(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = self._query_compiler
        is_weft = is_on_weft(compiler) and _is_asked_for(self)
        is_there = is_weft and compiler.near is not None
        if not is_there and not (is_weft and _is_near(compiler)):
            return modin_way(self, *args, **kwargs)
        unchanged = modin.pandas.DataFrame(query_compiler=compiler)

        def near() -> Any:
            given = {key: _given(value) for key, value in kwargs.items()}
            return _near_of(unchanged).groupby(*map(_given, args), **given)

        return NearGroups(near, lambda: modin_way(unchanged, *args, **kwargs), is_there)

    return groupby
