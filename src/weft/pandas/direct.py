"""Small frames: the methods that programs call most go straight to pandas, past Modin's layers.

Modin calls a method of a small frame through ten layers (casting of arguments, backends, defaulting, copying, columns
as frames), which costs a hundred times what `frame["b"]` costs in pandas. Here these methods of Modin's classes are
given another beginning: where the object is a small frame and the arguments are plain values or small frames, pandas is
called with what they hold, and what comes back is wrapped. Everything else, calls that write in place and frames that
are pinned to a backend go Modin's way, as before; a method for which somebody registers an extension is Modin's again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import modin.pandas
import pandas
from modin.core.storage_formats.pandas.query_compiler_caster import EXTENSION_NO_LOOKUP
from modin.pandas.base import _DEFAULT_BEHAVIOUR

from weft.pandas import direct_columns, direct_extensions, direct_groups, direct_indexing
from weft.pandas.direct_values import SmallQueryCompiler, attribute, plain_arguments, wrapped
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
    found: dict[Any, _Attributes] = {}
    for ours, theirs, names in kinds:
        attributes = found[ours] = _Attributes(ours)
        is_series = theirs is pandas.Series
        for name in names:
            if hasattr(ours, name) and hasattr(theirs, name):
                attributes.replace(name, _direct(ours, theirs, name))
        for name in _READ:
            attributes.replace(name, _read_direct(name, getattr(ours, name), is_series))
        for name in direct_indexing.NAMES:
            attributes.replace(name, direct_indexing.read_by_pandas(name, getattr(ours, name), is_series))
        attributes.replace("__len__", _length(ours.__len__))
        attributes.replace("groupby", direct_groups.grouped_by_pandas(ours))
        ours.__getattribute__ = attributes.looked_up(ours.__getattribute__)
    frame = found[modin.pandas.DataFrame]
    for name in ("__getitem__", "__getattr__"):
        frame.replace(name, direct_columns.by_label(getattr(modin.pandas.DataFrame, name)))
    frame.replace("__setitem__", direct_columns.set_by_label(modin.pandas.DataFrame.__setitem__))
    frame.replace("apply", _applied(modin.pandas.DataFrame.apply))
    direct_extensions.watch(tuple(found), lambda ours, name: found[ours].give_back(name))


class _Attributes:
    """What was replaced in one of Modin's classes, and how its attributes are looked up."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours
        self._modins: dict[str, Any] = {}
        self._as_class_says = set(EXTENSION_NO_LOOKUP & _DEFAULT_BEHAVIOUR) | {"__class__"}
        self._extended: set[str] = set()

    def replace(self, name: str, attribute: Any) -> None:
        self._modins.setdefault(name, getattr(self._ours, name))
        setattr(self._ours, name, attribute)
        self._as_class_says.add(name)

    def give_back(self, name: str) -> None:
        """Somebody registered an extension of this name."""
        self._extended.add(name)
        self._as_class_says.discard(name)
        if name in self._modins:
            setattr(self._ours, name, self._modins.pop(name))

    def looked_up(self, modin_way: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        """An attribute of a small frame that has cells is what its class says, unless an extension has its name: Modin
        looks for those, and whether the frame is empty, at each access of each attribute, through several calls, and
        one operation asks for hundreds. What was replaced does with other frames what Modin does."""
        as_class_says, extended = self._as_class_says, self._extended

        def get(self: Any, item: str) -> Any:
            if item in as_class_says:
                return attribute(self, item)
            compiler = attribute(self, "__dict__").get("_query_compiler")
            if type(compiler) is not SmallQueryCompiler or item in extended or not compiler.has_cells():
                return modin_way(self, item)
            return attribute(self, item)

        return get


def _direct(ours: Any, theirs: type, name: str) -> Callable[..., Any]:
    method, modin_way = getattr(theirs, name), getattr(ours, name)
    is_series, is_item = theirs is pandas.Series, name == "__getitem__"

    @functools.wraps(modin_way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = attribute(self, "_query_compiler")
        if type(compiler) is not SmallQueryCompiler or attribute(self, "_pinned"):
            return by_modin(self, args, kwargs)
        source = compiler.as_series() if is_series else compiler.as_frame()
        try:
            if args or kwargs:
                given = plain_arguments(args, kwargs)
                if given is None or kwargs.get("inplace"):
                    return by_modin(self, args, kwargs)
                made = method(source, *given[0], **given[1])
            else:
                made = method(source)
        except (TypeError, ValueError):
            # Modin's own code calls these methods too, some with arguments that pandas does not know.
            return by_modin(self, args, kwargs)
        if made is NotImplemented or made is source:
            return by_modin(self, args, kwargs)
        if is_item and not is_series and type(made) is pandas.Series:
            return direct_columns.column_of(self, made)
        return wrapped(made)

    def by_modin(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As Modin looks methods up: those of a frame without cells are pandas'."""
        if name.startswith("__") or not _is_known_empty(self):
            return modin_way(self, *args, **kwargs)
        return self._default_to_pandas(name, *args, **kwargs)

    return call


def _is_known_empty(data: Any) -> bool:
    return not data._query_compiler.lazy_shape and data.empty


def _length(modin_way: Callable[[Any], int]) -> Callable[[Any], int]:
    def length(self: Any) -> int:
        compiler = attribute(self, "_query_compiler")
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


def _applied(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(modin_way)
    def apply(self: Any, func: Any, axis: Any = 0, *args: Any, **kwargs: Any) -> Any:
        """On Weft where a function of Python is called for many rows."""
        compiler = self._query_compiler
        is_by_row = callable(func) and axis in (1, "columns") and type(compiler) is SmallQueryCompiler
        if is_by_row and not self._pinned and compiler.is_large_for_python():
            self = modin.pandas.DataFrame(query_compiler=on_weft(compiler))
        elif _is_known_empty(self):
            return self._default_to_pandas("apply", func, axis, *args, **kwargs)
        return modin_way(self, func, axis, *args, **kwargs)

    return apply
