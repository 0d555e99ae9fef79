"""What is written into a small frame: by pandas, into memory that nobody else sees.

Small frames share memory: a cut of one is pandas' view of it, and a frame may be held by several of Modin's. So values
that somebody else may see are copied before one of them is written. Who does is counted: a view of an array holds a
reference to it. What was copied or counted is the frame's own, and is written in place without counting again until
somebody is given a part of it (`SmallQueryCompiler._own`). Columns and labels are exchanged without a copy of values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pandas
from modin.pandas import Series

from weft.pandas.modin import _direct
from weft.pandas.modin.direct_values import (
    MODIN_WAY,
    SCALARS,
    SmallQueryCompiler,
    attribute,
    looked_up,
    plain,
    plain_arguments,
    small_source,
)
from weft.pandas.modin.small import has_grown, moved_when_grown

Change = Callable[[Any], None]
"""Of a frame or series of pandas, in place."""


def change_values(data: Any, change: Change) -> None:
    """Of a small frame or series."""
    own = _direct.claim(data)
    if own is None:
        own = small_source(data).copy()
        change(own)
    else:
        change(own)
        is_of_frame = type(data) is Series and attribute(data, "_parent") is not None
        if not is_of_frame and not has_grown(own):
            return
    compiler = object.__new__(SmallQueryCompiler)
    compiler._own = own
    if type(own) is pandas.Series:
        compiler._shape_hint = "column"
    data._update_inplace(moved_when_grown(compiler))


def change_columns(data: Any, change: Change) -> None:
    """Of a small frame: which columns it has, and its labels."""
    frame = _direct.sole_frame(data)
    if frame is not None and len(frame.index):
        change(frame)
        return
    changed = small_source(data).copy(deep=False)
    change(changed)
    data._update_inplace(_direct.wrapped(changed)._query_compiler)


def write_at(data: Any, indexer: str, key: Any, value: Any) -> bool:
    """`frame.loc[key] = value` and the like; False where this is Modin's to do."""
    if callable(key) and not isinstance(key, type):
        key = key(data)
    given = plain_arguments((key, value), {}) if _is_small(data) else None
    if given is None:
        return False
    names = _columns_of_many_rows(data, indexer, given[0][0])
    if names is None:
        change_values(data, lambda theirs: getattr(theirs, indexer).__setitem__(*given[0]))
    else:
        changed = small_source(data).copy(deep=False)
        for name in names:
            changed[name] = changed[name]  # pandas takes a copy
        changed.loc[given[0][0]] = given[0][1]
        data._update_inplace(_direct.wrapped(changed)._query_compiler)
    return True


def _columns_of_many_rows(data: Any, indexer: str, key: Any) -> list[str] | None:
    """The columns that are written where they are told by name and many rows are: only those have to be copied. None
    where the frame has values of its own, or one row is written: more such writes may follow, and one copy does for
    all."""
    if indexer != "loc" or type(key) is not tuple or len(key) != 2 or type(key[0]) in SCALARS:
        return None
    names = [key[1]] if type(key[1]) is str else key[1]
    if type(data) is Series or type(names) is not list or _direct.claim(data) is not None:
        return None
    columns = small_source(data).columns
    are_known = columns.is_unique and all(type(name) is str and name in columns for name in names)
    return names if are_known else None


def _is_small(data: Any) -> bool:
    return type(attribute(data, "_query_compiler")) is SmallQueryCompiler and not attribute(data, "_pinned")


# ---- methods ---------------------------------------------------------------------------------------


def set_by_label(way: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """`__setitem__` of a frame or series."""

    @functools.wraps(way)
    def assign(self: Any, key: Any, value: Any) -> None:
        given = plain_arguments((key, value), {}) if _is_small(self) else None
        if given is None:
            return way(self, key, value)
        change = change_columns if type(key) is str and type(self) is not Series else change_values
        change(self, lambda theirs: theirs.__setitem__(*given[0]))

    return assign


def changed_by_pandas(way: Callable[..., Any], name: str, change: Callable[[Any, Change], None]) -> Callable[..., Any]:
    """A method that changes its frame in place, and gives nothing."""
    way = looked_up(way, name)

    @functools.wraps(way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = plain_arguments(args, kwargs) if _is_small(self) else None
        if given is None:
            return way(self, *args, **kwargs)
        change(self, lambda theirs: getattr(theirs, name)(*given[0], **given[1]))

    return call


def popped(way: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`pop` of a frame."""
    way = looked_up(way, "pop")

    @functools.wraps(way)
    def pop(self: Any, item: Any) -> Any:
        if not _is_small(self) or id(plain(item)) == MODIN_WAY:
            return way(self, item)
        column = small_source(self)[item]
        change_columns(self, lambda theirs: theirs.__delitem__(item))
        return _direct.wrapped(column)

    return pop


def relabelled(modins: property, name: str) -> Callable[[Any, Any], None]:
    """The setter of `columns` or `index` of a frame."""
    set_by_modin: Any = modins.fset

    def set_labels(self: Any, labels: Any) -> None:
        given = plain(labels) if _is_small(self) else None
        if given is None or id(given) == MODIN_WAY:
            set_by_modin(self, labels)
        else:
            change_columns(self, lambda theirs: setattr(theirs, name, given))

    return set_labels


_SET_PLAINLY = frozenset(("_query_compiler", "_siblings", "columns", "index"))


def set_attribute(way: Callable[[Any, str, Any], None]) -> Callable[[Any, str, Any], None]:
    """`__setattr__` of a frame. Modin looks for a column of the name first, also of names that are none."""

    @functools.wraps(way)
    def set_it(self: Any, key: str, value: Any) -> None:
        if key in _SET_PLAINLY:
            object.__setattr__(self, key, value)
        else:
            way(self, key, value)

    return set_it


def assigned(way: Callable[..., Any]) -> Callable[..., Any]:
    """`assign` of a frame; functions among the values are called with the frame as it is by then, which is Modin's."""

    @functools.wraps(way)
    def assign(self: Any, **values: Any) -> Any:
        if not _is_small(self) or not any(map(callable, values.values())):
            return way(self, **values)
        made = self.copy()
        for name, value in values.items():
            made[name] = value(made) if callable(value) else value
        return made

    return assign
