"""Small frames: the methods that programs call most go straight to pandas, past Modin's layers.

Modin calls a method of a small frame through ten layers (casting of arguments, backends, defaulting, copying, columns
as frames), which costs a hundred times what `frame["b"]` costs in pandas. Here these methods of Modin's classes are
given another beginning: where the object is a small frame and the arguments are plain values or small frames, pandas is
called with what they hold, and what comes back is wrapped. Everything else and frames that are pinned to a backend go
Modin's way, as before; a method for which somebody registers an extension is Modin's again.
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
from pandas.core import common

from weft.pandas.modin import (
    _direct,
    direct_columns,
    direct_extensions,
    direct_functions,
    direct_general,
    direct_groups,
    direct_values,
    direct_views,
    direct_writes,
    modin_repairs,
)
from weft.pandas.modin.direct_values import looked_up, plain_arguments, small_source

_BOTH = """
    abs round clip fillna ffill bfill isna isnull notna notnull astype replace where mask isin shift diff pct_change
    cumsum cumprod cummax cummin rank interpolate infer_objects convert_dtypes
    sum mean min max count std var median prod product sem skew kurt kurtosis nunique any all idxmin idxmax quantile
    describe first_valid_index last_valid_index
    add sub mul div truediv floordiv mod pow radd rsub rmul rdiv rtruediv rfloordiv rmod rpow eq ne lt le gt ge dot
    sort_values sort_index drop dropna drop_duplicates duplicated reset_index head tail sample nlargest nsmallest
    value_counts explode reindex copy filter truncate take xs squeeze unstack combine_first compare equals keys
    rename rename_axis set_axis add_prefix add_suffix swaplevel droplevel reorder_levels
    tz_localize tz_convert to_period to_timestamp asfreq at_time between_time
    to_dict to_numpy to_csv to_json to_string to_html to_markdown to_parquet to_feather memory_usage
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__
    __rmod__ __pow__ __rpow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__
    __invert__ __neg__ __abs__ __matmul__ __contains__ __iter__ __array__ __repr__ _repr_html_
""".split()
_FRAME = """
    __getitem__ get merge join set_index melt pivot pivot_table stack corr corrwith cov assign select_dtypes query eval
    transpose to_records itertuples
""".split()
_SERIES = """
    __getitem__ get between unique to_list tolist mode to_frame argsort argmin argmax searchsorted repeat factorize
    autocorr corr cov item items
""".split()
_READ_BOTH = "index ndim size empty values axes dtypes".split()
_READ_FRAME = ["columns"]
_READ_SERIES = "name dtype nbytes hasnans is_unique is_monotonic_increasing is_monotonic_decreasing".split()
_INDEXERS = "loc iloc at iat".split()
_GIVE_COLUMNS = frozenset(("__getitem__", "get"))


def register() -> None:
    """Change Modin's classes in this process, once."""
    direct_values.make_known(direct_general.move_large, direct_writes.write_at)
    frame, series = _Attributes(modin.pandas.DataFrame), _Attributes(modin.pandas.Series)
    _replace_both(frame, pandas.DataFrame, _BOTH + _FRAME, _READ_BOTH + _READ_FRAME, direct_functions.FRAME)
    _replace_both(series, pandas.Series, _BOTH + _SERIES, _READ_BOTH + _READ_SERIES, direct_functions.SERIES)
    _replace_of_frame(frame)
    _replace_of_series(series)
    direct_general.register()
    give_back = {frame.ours: frame.give_back, series.ours: series.give_back, modin.pandas: direct_general.give_back}
    direct_extensions.watch(tuple(give_back), lambda owner, name: give_back[owner](name))


def _replace_both(of: _Attributes, theirs: Any, methods: list[str], read: list[str], callers: list[str]) -> None:
    ours, is_series = of.ours, theirs is pandas.Series
    for name in methods:
        if hasattr(ours, name) and hasattr(theirs, name):
            of.replace(name, _direct_method(ours, theirs, name))
    of.replace("shape", _property(ours.shape, _direct.shape(None, ours.shape.fget, is_series)))
    of.replace("T", _property(ours.T, _direct.method(theirs.transpose, ours.T.fget, is_series)))
    for name in read:
        modins = getattr(ours, name)
        of.replace(name, _property(modins, _direct.read(name, modins.fget, is_series)))
    for name in _INDEXERS:
        modins = getattr(ours, name)
        of.replace(name, _property(modins, _direct.indexer(name, modins.__get__, is_series)))
    for name in callers:
        of.replace(name, direct_functions.called_by_pandas(ours, theirs, name))
    for name in direct_views.WINDOWS:
        of.replace(name, direct_views.viewed_by_pandas(direct_views.SmallWindow, name, getattr(ours, name)))
    resample = modin_repairs.resampled(ours.resample)
    of.replace("resample", direct_views.viewed_by_pandas(direct_views.SmallResampler, "resample", resample))
    of.replace("groupby", direct_groups.grouped_by_pandas(ours))
    of.replace("pipe", functools.wraps(ours.pipe)(common.pipe))
    of.replace("__len__", _named(_direct.length(None, ours.__len__, is_series), ours.__len__))
    of.replace("__setitem__", direct_writes.set_by_label(ours.__setitem__))
    of.replace("update", direct_writes.changed_by_pandas(ours.update, "update", direct_writes.change_values))
    of.replace("__array_ufunc__", _ufunc(ours.__array_ufunc__))
    ours.__init__ = direct_general.made_by_pandas(ours, theirs)
    ours.__getattribute__ = of.looked_up(ours.__getattribute__, is_series)


def _replace_of_frame(of: _Attributes) -> None:
    ours = of.ours
    for name in ("__getitem__", "__getattr__", "get"):
        way = getattr(ours, name)
        of.replace(name, _named(_direct.column(None, direct_columns.by_label(way), False), way))
    for name, iterate in direct_views.iterated(ours).items():
        of.replace(name, iterate)
    for name in ("insert", "__delitem__"):
        of.replace(name, direct_writes.changed_by_pandas(getattr(ours, name), name, direct_writes.change_columns))
    way = ours.__setitem__
    of.replace("__setitem__", _named(_direct.set_column(None, way, False), way))
    of.replace("pop", direct_writes.popped(ours.pop))
    of.replace("assign", direct_writes.assigned(ours.assign))
    way = ours.__setattr__
    of.replace("__setattr__", _named(_direct.set_labels(None, direct_writes.set_attribute(way), False), way))
    for name in ("columns", "index"):
        modins = getattr(ours, name)
        of.replace(name, property(modins.fget, direct_writes.relabelled(modins, name), modins.fdel, modins.__doc__))


def _replace_of_series(of: _Attributes) -> None:
    for name in direct_views.ACCESSORS:
        of.replace(name, direct_views.Accessor(name, vars(of.ours)[name]))


class _Attributes:
    """What was replaced in one of Modin's classes, and how its attributes are looked up."""

    def __init__(self, ours: Any) -> None:
        self.ours = ours
        self._modins: dict[str, Any] = {}
        self._as_class_says = set(EXTENSION_NO_LOOKUP & _DEFAULT_BEHAVIOUR) | {"__class__"}
        self._extended: set[str] = set()

    def replace(self, name: str, attribute: Any) -> None:
        self._modins.setdefault(name, getattr(self.ours, name))
        setattr(self.ours, name, attribute)
        self._as_class_says.add(name)

    def give_back(self, name: str) -> None:
        """Somebody registered an extension of this name."""
        self._extended.add(name)
        self._as_class_says.discard(name)
        if name in self._modins:
            setattr(self.ours, name, self._modins.pop(name))

    def looked_up(self, modin_way: Callable[[Any, str], Any], is_series: bool) -> Any:
        """What was replaced does with other frames what Modin does."""
        return _direct.look_up(self._as_class_says, self._extended, modin_way, is_series)


def _direct_method(ours: Any, theirs: type, name: str) -> Any:
    modin_way, is_series = looked_up(getattr(ours, name), name), theirs is pandas.Series

    def by_modin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("inplace") is True and small_source(self) is not None:
            made = direct(self, *args, **{**kwargs, "inplace": False})
            return self._update_inplace(made._query_compiler)
        return modin_way(self, *args, **kwargs)

    kind = _direct.item if name in _GIVE_COLUMNS and not is_series else _direct.method
    direct = _named(kind(getattr(theirs, name), by_modin, is_series), modin_way)
    return direct


def _named(made: Any, modin_way: Any) -> Any:
    """With the name, the signature and the documentation of Modin's."""
    return functools.update_wrapper(made, modin_way)


def _property(modins: Any, getter: Any) -> property:
    return property(getter, modins.fset, modins.fdel, modins.__doc__)


def _ufunc(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's functions of small frames."""

    @functools.wraps(modin_way)
    def call(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        is_direct = "out" not in kwargs and small_source(self) is not None
        given = plain_arguments(inputs, kwargs) if is_direct else None
        if given is None:
            return modin_way(self, ufunc, method, *inputs, **kwargs)
        return _direct.wrapped(getattr(ufunc, method)(*given[0], **given[1]))

    return call
