"""Small frames: the methods that programs call most go straight to pandas, past Modin's layers.

Modin calls a method of a small frame through ten layers (casting of arguments, backends, defaulting, copying, columns
as frames), which costs a hundred times what `frame["b"]` costs in pandas. Here these methods of Modin's classes are
given another beginning: where the object is a small frame and the arguments are plain values or small frames, pandas is
called with what they hold, and what comes back is wrapped. Everything else, calls that write in place and frames that
are pinned to a backend go Modin's way, as before; a method for which somebody registers an extension is Modin's again.
The callables are native (`native/pandas`): functions of Python around a call of pandas cost a tenth of it and more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import modin.pandas
import pandas
from modin.core.storage_formats.pandas.query_compiler_caster import EXTENSION_NO_LOOKUP
from modin.pandas.base import _DEFAULT_BEHAVIOUR

from weft.pandas import _direct, direct_columns, direct_extensions, direct_groups
from weft.pandas.direct_values import SmallQueryCompiler
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
_READ = "size empty values".split()
_INDEXERS = "loc iloc at iat".split()


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
                attributes.replace(name, _direct_method(ours, theirs, name))
        attributes.replace("shape", _property(ours.shape, _direct.shape(None, ours.shape.fget, is_series)))
        for name in _READ:
            found_by = getattr(ours, name)
            attributes.replace(name, _property(found_by, _direct.read(name, found_by.fget, is_series)))
        for name in _INDEXERS:
            found_by = getattr(ours, name)
            attributes.replace(name, _property(found_by, _direct.indexer(name, found_by.__get__, is_series)))
        attributes.replace("__len__", _named(_direct.length(None, ours.__len__, is_series), ours.__len__))
        attributes.replace("groupby", direct_groups.grouped_by_pandas(ours))
        ours.__getattribute__ = attributes.looked_up(ours.__getattribute__, is_series)
    frame = found[modin.pandas.DataFrame]
    for name in ("__getitem__", "__getattr__"):
        way = getattr(modin.pandas.DataFrame, name)
        frame.replace(name, _named(_direct.column(None, direct_columns.by_label(way), False), way))
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

    def looked_up(self, modin_way: Callable[[Any, str], Any], is_series: bool) -> Any:
        """What was replaced does with other frames what Modin does."""
        return _direct.look_up(self._as_class_says, self._extended, modin_way, is_series)


def _direct_method(ours: Any, theirs: type, name: str) -> Any:
    modin_way = getattr(ours, name)

    def by_modin(self: Any, *args: Any, **kwargs: Any) -> Any:
        """As Modin looks methods up: those of a frame without cells are pandas'."""
        if name.startswith("__") or not _is_known_empty(self):
            return modin_way(self, *args, **kwargs)
        return self._default_to_pandas(name, *args, **kwargs)

    is_series = theirs is pandas.Series
    kind = _direct.item if name == "__getitem__" and not is_series else _direct.method
    return _named(kind(getattr(theirs, name), by_modin, is_series), modin_way)


def _named(made: Any, modin_way: Any) -> Any:
    """With the name, the signature and the documentation of Modin's."""
    return functools.update_wrapper(made, modin_way)


def _property(modins: Any, getter: Any) -> property:
    return property(getter, modins.fset, modins.fdel, modins.__doc__)


def _is_known_empty(data: Any) -> bool:
    return not data._query_compiler.lazy_shape and data.empty


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
