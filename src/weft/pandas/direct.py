"""Small frames: the methods that programs call most go straight to pandas, past Modin's layers.

Modin calls a method of a small frame through ten layers (casting of arguments, backends, defaulting, copying, columns
as frames), which costs a hundred times what `frame["b"]` costs in pandas. Here these methods of Modin's classes are
given another beginning: where the object is a small frame and the arguments are plain values or small frames, pandas is
called with what they hold, and what comes back is wrapped. Everything else, calls that write in place, frames that are
pinned to a backend and methods for which somebody registered an extension go Modin's way, as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import modin.pandas
import pandas
from modin.core.storage_formats.pandas.query_compiler_caster import EXTENSION_NO_LOOKUP
from modin.pandas.base import _DEFAULT_BEHAVIOUR, BasePandasDataset

from weft.pandas import direct_columns, direct_groups, direct_indexing
from weft.pandas.direct_values import NO_ARGUMENTS, SmallQueryCompiler, attribute, plain_arguments, wrapped
from weft.pandas.small import on_weft

_BOTH = """
    abs round clip fillna ffill bfill isna isnull notna notnull astype replace where mask isin shift diff pct_change
    cumsum cumprod cummax cummin rank
    sum mean min max count std var median prod sem skew kurt nunique any all idxmin idxmax quantile describe
    add sub mul div truediv floordiv mod pow radd rsub rmul rdiv rtruediv rfloordiv rmod rpow eq ne lt le gt ge
    sort_values sort_index drop dropna drop_duplicates duplicated reset_index head tail sample nlargest nsmallest
    value_counts explode reindex copy agg aggregate to_dict to_numpy
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __mod__ __pow__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__ __invert__ __neg__ __contains__
""".split()
_FRAME = "__getitem__ merge join set_index melt pivot pivot_table stack corr cov assign select_dtypes".split()
_SERIES = "__getitem__ between unique to_list tolist mode".split()
_READ = "shape size empty values".split()


def register() -> None:
    """Change Modin's classes in this process, once."""
    kinds = (
        (modin.pandas.DataFrame, pandas.DataFrame, _BOTH + _FRAME),
        (modin.pandas.Series, pandas.Series, _BOTH + _SERIES),
    )
    for ours, theirs, names in kinds:
        known = [name for name in names if hasattr(ours, name) and hasattr(theirs, name)]
        for name in known:
            setattr(ours, name, _direct(ours, theirs, name))
        for name in _READ:
            setattr(ours, name, _read_direct(name, getattr(ours, name), is_series=theirs is pandas.Series))
        ours.__len__ = _length(ours.__len__)
        direct_groups.register(ours)
        direct_indexing.register(ours)
        read = ["groupby", *_READ, *direct_indexing.NAMES]
        ours.__getattribute__ = _looked_up(ours, ours.__getattribute__, known + read)
    direct_columns.register()
    modin.pandas.DataFrame.apply = _applied(modin.pandas.DataFrame.apply)


def _direct(ours: Any, theirs: type, name: str) -> Callable[..., Any]:
    method, modin_way, extended = getattr(theirs, name), getattr(ours, name), ours._extensions["Pandas"]
    is_series, is_item = theirs is pandas.Series, name == "__getitem__"

    @functools.wraps(modin_way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = attribute(self, "__dict__")
        compiler = own.get("_query_compiler")
        if type(compiler) is not SmallQueryCompiler:
            return modin_way(self, *args, **kwargs)
        given = plain_arguments(args, kwargs) if args or kwargs else NO_ARGUMENTS
        if given is None or own.get("_pinned") or name in extended or kwargs.get("inplace"):
            return left_to_modin(self, args, kwargs)
        source = compiler.as_series() if is_series else compiler.as_frame()
        try:
            made = method(source, *given[0], **given[1])
        except (TypeError, ValueError):
            # Modin's own code calls these methods too, some with arguments that pandas does not know.
            return left_to_modin(self, args, kwargs)
        if made is NotImplemented or made is source:
            return left_to_modin(self, args, kwargs)
        if is_item and not is_series and type(made) is pandas.Series:
            return direct_columns.column_of(self, made)
        return wrapped(made)

    def left_to_modin(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As Modin looks methods up: those of a frame without cells are pandas'."""
        if name.startswith("__") or name in extended or attribute(self, "_query_compiler").has_cells():
            return modin_way(self, *args, **kwargs)
        return self._default_to_pandas(name, *args, **kwargs)

    return call


def _length(modin_way: Callable[[Any], int]) -> Callable[[Any], int]:
    def length(self: Any) -> int:
        compiler = attribute(self, "__dict__").get("_query_compiler")
        return compiler.row_count() if type(compiler) is SmallQueryCompiler else modin_way(self)

    return length


def _read_direct(name: str, modin_way: property, is_series: bool) -> property:
    read = modin_way.fget

    def get(self: Any) -> Any:
        compiler = attribute(self, "_query_compiler")
        if type(compiler) is not SmallQueryCompiler:
            return read(self)  # type: ignore[misc]
        return getattr(compiler.as_series() if is_series else compiler.as_frame(), name)

    return property(get, modin_way.fset, modin_way.fdel, modin_way.__doc__)


def _looked_up(ours: Any, modin_way: Callable[[Any, str], Any], names: list[str]) -> Callable[[Any, str], Any]:
    """An attribute of a small frame that has cells is what its class says, unless an extension that is no function has
    its name: Modin looks for those, and whether the frame is empty, at each access of each attribute. For some names
    it looks for neither, but finds that out through several calls, and one operation asks for hundreds of them. The
    `names` that are called directly do with frames without cells what Modin does."""
    never_looked_for = frozenset(EXTENSION_NO_LOOKUP & _DEFAULT_BEHAVIOUR) | {"__class__"}
    for_pandas = [owner._extensions["Pandas"] for owner in (ours, BasePandasDataset)]
    for_all = [owner._extensions[None] for owner in (ours, BasePandasDataset)]
    direct = {name: for_all[0].get(name) for name in names}

    def get(self: Any, item: str) -> Any:
        if item in never_looked_for:
            return attribute(self, item)
        compiler = attribute(self, "__dict__").get("_query_compiler")
        if type(compiler) is not SmallQueryCompiler:
            return modin_way(self, item)
        is_extended = for_pandas[0] or for_pandas[1]
        if not is_extended and item in direct and for_all[0].get(item) is direct[item]:
            return attribute(self, item)
        if not compiler.has_cells() or _has_value(item, for_pandas + for_all):
            return modin_way(self, item)
        return attribute(self, item)

    return get


def _has_value(name: str, tables: list[dict[str, Any]]) -> bool:
    return any(name in table and not callable(table[name]) for table in tables)


def _applied(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def apply(self: Any, func: Any, axis: Any = 0, *args: Any, **kwargs: Any) -> Any:
        """On Weft where a function of Python is called for many rows."""
        compiler = self._query_compiler
        is_by_row = callable(func) and axis in (1, "columns") and type(compiler) is SmallQueryCompiler
        if is_by_row and not self._pinned and compiler.is_large_for_python():
            self = modin.pandas.DataFrame(query_compiler=on_weft(compiler))
        return modin_way(self, func, axis, *args, **kwargs)

    return apply
