"""What deferred frames and series say of themselves without values, and their accessors `str` and `dt`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas
from pandas import Series

from weft.pandas.frames import DeferredFrame, DeferredSeries, is_deferred, plan_of, settle, wrap
from weft.pandas.methods import derive
from weft.pandas.moves import moves
from weft.pandas.plans import Rows, UnsupportedError, run
from weft.pandas.steps import Attribute, Method


def rows_of(value: Any) -> Rows:
    """With lengths that are known: a filter is run for them."""
    plan = plan_of(value)
    if not plan.rows.is_computed:
        run(plan, len)
    return plan.rows


def count_rows(value: Any) -> int:
    return sum(rows_of(value).lengths)


def _frame_shape(self: Any) -> tuple[int, int]:
    return count_rows(self), plan_of(self).meta.shape[1]


def _series_shape(self: Any) -> tuple[int]:
    return (count_rows(self),)


def _size(self: Any) -> int:
    return int(np.prod(self.shape))


def _columns(self: Any) -> pandas.Index:
    return plan_of(self).meta.columns


def _index(self: Any) -> pandas.Index:
    return rows_of(self).index


def _answer_property(kind: Any, name: str, getter: Any) -> None:
    """A property of pandas' that is read without values; to set it takes them."""
    plain = kind.__mro__[1]

    def get(self: Any) -> Any:
        return getter(self) if is_deferred(self) else getattr(plain, name).__get__(self)

    def put(self: Any, value: Any) -> None:
        if is_deferred(self):
            moves.note_fallback(name, "it is assigned")
            settle(self)
        object.__setattr__(self, name, value)

    setattr(kind, name, property(get, put, doc=getattr(getattr(plain, name), "__doc__", None)))


# ---- accessors -------------------------------------------------------------------------------------

TEXT = frozenset(
    "capitalize casefold contains count endswith find fullmatch isalnum isalpha isdecimal isdigit islower isnumeric "
    "isspace istitle isupper len ljust lower lstrip match pad removeprefix removesuffix repeat replace rfind rjust "
    "rstrip slice startswith strip swapcase title upper zfill get __getitem__ center".split()
)
TIMES = frozenset("ceil day_name floor month_name normalize round strftime total_seconds".split())
PARTS_OF_TIMES = frozenset(
    "date day day_of_week day_of_year dayofweek dayofyear days days_in_month daysinmonth hour is_leap_year "
    "is_month_end is_month_start is_quarter_end is_quarter_start is_year_end is_year_start microsecond microseconds "
    "minute month nanosecond nanoseconds quarter second seconds time weekday year".split()
)


class Accessor:
    """`series.str` and `series.dt` of a deferred series: what works on each value is a plan, the rest pandas'."""

    def __init__(self, series: Any, name: str, kind: Any) -> None:
        self._series = series
        self._name = name
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For isinstance: to programs it is pandas'."""
        return self._kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if is_deferred(self._series):
            if name in (TEXT if self._name == "str" else TIMES):
                return lambda *args, **kwargs: self._call(name, args, kwargs)
            if self._name == "dt" and name in PARTS_OF_TIMES:
                return self._try(name, Attribute(name, "dt"), (), {}, lambda theirs: theirs)
        return getattr(self._of_pandas(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._call("__getitem__", (key,), {})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of_pandas())

    def __dir__(self) -> list[str]:
        return dir(self._kind)

    def _of_pandas(self) -> Any:
        """After pandas has the values."""
        self._series._mgr  # noqa: B018
        return getattr(self._series, self._name)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._try(name, Method(name, self._name), args, kwargs, lambda theirs: theirs(*args, **kwargs))

    def _try(self, name: str, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any], in_pandas: Any) -> Any:
        full = f"{self._name}.{name}"
        reason = "the series is in this process"
        if is_deferred(self._series):
            try:
                with moves.timed(moves.on_parts, full):
                    if not all(map(_is_for_each_value, (*args, *kwargs.values()))):
                        raise UnsupportedError("an argument is for rows, or for all of them")
                    return wrap(derive(step, self._series, *args, certain=False, **kwargs))
            except UnsupportedError as why:
                moves.on_parts[full].count -= 1
                reason = str(why)
            moves.note_fallback(full, reason)
        with moves.timed(moves.in_pandas, full):
            return in_pandas(getattr(self._of_pandas(), name))


def _is_for_each_value(argument: Any) -> bool:
    """A list may have an entry for each row; "infer" looks at the rows around."""
    if isinstance(argument, tuple):
        return all(isinstance(each, str) for each in argument)
    if isinstance(argument, slice):
        return all(isinstance(each, int | None) for each in (argument.start, argument.stop, argument.step))
    return argument is None or (isinstance(argument, str | int | float | bool) and argument != "infer")


def _accessor(name: str) -> Any:
    def get(self: Any) -> Any:
        if not is_deferred(self):
            return Series.__dict__[name].__get__(self, Series)
        kind = type(getattr(plan_of(self).meta, name))  # raises as pandas does where it has none
        return Accessor(self, name, kind)

    return property(get)


def register() -> None:
    for kind, shape in ((DeferredFrame, _frame_shape), (DeferredSeries, _series_shape)):
        kind.__len__ = lambda self: count_rows(self) if is_deferred(self) else len(self)
        for name, getter in {"shape": shape, "size": _size, "index": _index}.items():
            _answer_property(kind, name, getter)
        _answer_property(kind, "empty", lambda self: 0 in self.shape)
    _answer_property(DeferredFrame, "columns", _columns)
    _answer_property(DeferredFrame, "dtypes", lambda self: plan_of(self).meta.dtypes)
    _answer_property(DeferredSeries, "dtype", lambda self: plan_of(self).meta.dtype)
    _answer_property(DeferredSeries, "dtypes", lambda self: plan_of(self).meta.dtype)
    _answer_property(DeferredSeries, "name", lambda self: plan_of(self).meta.name)
    for name in ("str", "dt"):
        setattr(DeferredSeries, name, _accessor(name))
