"""Groups of deferred frames: real ones of pandas, without their frame until somebody looks, as frames are.

Counts, extremes and sums of ints are made of each part and put together by pandas, on the few rows that parts give.
What wants the rows of a group in their order (pandas adds floats so) is made of whole groups, which are divided among
tasks. Everything else is pandas', on the columns that are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas
from pandas.api.types import is_hashable
from pandas.core.groupby import DataFrameGroupBy, SeriesGroupBy

from weft.pandas import steps
from weft.pandas.frames import DeferredFrame, plan_of, wrap
from weft.pandas.methods import answer, derive, is_column
from weft.pandas.moves import moves
from weft.pandas.parts import home
from weft.pandas.plans import UnsupportedError, compute, gather, run, same_type

COMBINE = {"sum": "sum", "min": "min", "max": "max", "count": "sum", "size": "sum"}
WHOLE_GROUPS = ("mean", "std", "var", "median", "prod", "nunique", "first", "last")
"""Of a group they want all rows, in their order: groups are divided among tasks, not rows. So are sums of floats."""
FIRST_ROW = "__first_row__"
KEYS = frozenset("biM")


class Asked(NamedTuple):
    """A groupby of a frame: `frame` is a deferred copy, which nobody else changes."""

    frame: Any
    keys: list[Any]
    by: Any
    kwargs: dict[str, Any]
    chosen: Any
    """A column, a list of columns, or None for all."""

    @property
    def columns(self) -> list[Any]:
        if self.chosen is None:
            return [name for name in plan_of(self.frame).meta.columns if name not in self.keys]
        return list(self.chosen) if isinstance(self.chosen, list) else [self.chosen]


@dataclass(frozen=True)
class PartGroups:
    """In a worker: of the groups of a part, a row each, in the order in which they come."""

    name: str
    keys: list[Any]
    columns: list[Any]
    dropna: bool

    def __call__(self, part: Any) -> Any:
        groups = part.groupby(self.keys, sort=False, dropna=self.dropna)
        if self.name == "size":
            return groups.size().rename("size").reset_index()
        return getattr(groups[self.columns], self.name)().reset_index()


@dataclass(frozen=True)
class ShareOfGroups:
    """In a worker: all rows of some groups, chosen by their first key, in the order of rows; a row for each group, with
    the number of its first."""

    name: str
    keys: list[Any]
    columns: list[Any]
    dropna: bool

    def __call__(self, share: int, shares: int, *parts: Any) -> Any:
        chosen, first = [], 0
        for part in parts:
            mask = part[self.keys[0]].to_numpy().astype(np.int64) % shares == share
            chosen.append(part[mask].assign(**{FIRST_ROW: np.flatnonzero(mask) + first}))
            first += len(part)
        groups = pandas.concat(chosen).groupby(self.keys, sort=False, dropna=self.dropna)
        made = getattr(groups[self.columns], self.name)()
        made[FIRST_ROW] = groups[FIRST_ROW].min()
        return made.reset_index()


class _DeferredGroups:
    """Of both kinds of groups: their state is `_asked`, until pandas looks for one of its own names."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.obj  # noqa: B018
        return object.__reduce_ex__(self, protocol)

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__
        if "_asked" not in names:
            return super().__getattr__(name)  # type: ignore[misc]
        asked: Asked = names["_asked"]
        if name == "_ipython_display_" or name.startswith(("_repr_", "__")):
            raise AttributeError(name)
        if is_column(asked.frame, name) and asked.chosen is None and not hasattr(DataFrameGroupBy, name):
            return self[name]  # type: ignore[index]
        moves.note_fallback("groupby", "groups of this kind are pandas'")
        with moves.timed(moves.in_pandas, "groupby"):
            settle_groups(self)
        return getattr(self, name)


def settle_groups(groups: Any) -> None:
    """Give them the columns that are asked for; they are pandas' from then on."""
    asked: Asked = groups.__dict__["_asked"]
    plan = plan_of(asked.frame)
    if asked.chosen is not None:
        wanted = [name for name in plan.meta.columns if name in asked.keys or name in asked.columns]
        plan = derive(steps.columns, asked.frame, wanted, certain=True)
    made = gather(plan).groupby(asked.by, **asked.kwargs)
    if asked.chosen is not None:
        made = made[asked.chosen]
    del groups.__dict__["_asked"]
    groups.__dict__.update(made.__dict__)
    groups.__class__ = type(made)


class DeferredFrameGroups(_DeferredGroups, DataFrameGroupBy):
    def __getitem__(self, key: Any) -> Any:
        asked = self.__dict__.get("_asked")
        names = key if type(key) is list else [key]
        if asked is None or asked.chosen is not None or key is None or not _are_values(asked, names):
            self.obj  # noqa: B018
            return self[key]
        return _groups(asked._replace(chosen=key))


class DeferredSeriesGroups(_DeferredGroups, SeriesGroupBy):
    pass


def _are_values(asked: Asked, names: list[Any]) -> bool:
    return all(is_column(asked.frame, name) and name not in asked.keys for name in names) and len(set(names)) == len(
        names
    )


def _groups(asked: Asked) -> Any:
    is_series = asked.chosen is not None and type(asked.chosen) is not list
    made = object.__new__(DeferredSeriesGroups if is_series else DeferredFrameGroups)
    made.__dict__["_asked"] = asked
    return made


def groupby(self: Any, by: Any = None, **kwargs: Any) -> Any:
    names = by if type(by) is list else [by]
    if (
        by is None
        or not names
        or not all(is_hashable(name) and is_column(self, name) for name in names)
        or len(set(names)) < len(names)
    ):
        raise UnsupportedError("it is not grouped by its columns")
    if set(kwargs) - {"sort", "as_index", "dropna", "observed", "group_keys"}:
        raise UnsupportedError("it has other arguments than parts know")
    return _groups(
        Asked(wrap(plan_of(self)), list(names), by if type(by) is not list else list(by), dict(kwargs), None)
    )


def _aggregate(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = self.__dict__.get("_asked")
        reason = "it has arguments"
        if asked is not None and not args and not kwargs:
            try:
                with moves.timed(moves.on_parts, f"groupby.{name}"):
                    return _on_parts(self, asked, name)
            except UnsupportedError as why:
                moves.on_parts[f"groupby.{name}"].count -= 1
                reason = str(why)
        if asked is not None:
            moves.note_fallback(f"groupby.{name}", reason)
        with moves.timed(moves.in_pandas, f"groupby.{name}"):
            self.obj  # noqa: B018
            return getattr(self, name)(*args, **kwargs)

    return method


def _on_parts(groups: Any, asked: Asked, name: str) -> Any:
    meta = plan_of(asked.frame).meta
    if not all(_is_plain(meta[key].dtype, KEYS) for key in asked.keys):
        raise UnsupportedError("a key is not of ints, bools or times")
    if name == "size":
        if not asked.kwargs.get("as_index", True):
            raise UnsupportedError("sizes are asked for as a frame")
        columns = ["size"]
        wanted = asked.keys
    else:
        columns, wanted = asked.columns, [*asked.keys, *asked.columns]
        if not columns or not all(_can(name, meta[column].dtype) for column in columns):
            raise UnsupportedError("a column is not of numbers that parts can be added up of")
    if "size" in asked.keys or any(not isinstance(key, str) for key in asked.keys):
        raise UnsupportedError("a key has a name that is not a text")
    plan = derive(steps.columns, asked.frame, wanted, certain=True)
    dropna = asked.kwargs.get("dropna", True)
    if name in WHOLE_GROUPS or (name == "sum" and any(meta[column].dtype.kind == "f" for column in columns)):
        return _of_whole_groups(asked, ShareOfGroups(name, asked.keys, columns, dropna), plan)
    handles, told = run(plan, PartGroups(name, asked.keys, columns, dropna))
    filled = [number for number, each in enumerate(told) if each.length]
    if not filled or not all(same_type(plan.meta, told[number].meta) for number in filled):
        raise UnsupportedError("its parts are not of one type")
    partials = pandas.concat(home().get([handles[number] for number in filled]), ignore_index=True)
    made = partials.groupby(asked.by, **asked.kwargs)
    if name == "size":
        return made["size"].sum().rename(asked.chosen if _is_series(asked) else None)
    return getattr(made[columns if asked.chosen is None else asked.chosen], COMBINE[name])()


def _of_whole_groups(asked: Asked, task: ShareOfGroups, plan: Any) -> Any:
    place, table = home(), compute(plan)
    count = place.count()
    handles = place.run(share_of_groups, [(task, number, count, *table.handles) for number in range(count)], 1)
    made = [each for each in place.get(handles) if len(each)]
    if not made or not all(same_type(made[0].iloc[:0], each.iloc[:0]) for each in made[1:]):
        raise UnsupportedError("its groups are not of one type")
    rows = pandas.concat(made).sort_values(FIRST_ROW, kind="stable").drop(columns=FIRST_ROW)
    groups = rows.groupby(asked.by, **asked.kwargs)
    return groups[task.columns if asked.chosen is None else asked.chosen].first()


def share_of_groups(task: ShareOfGroups, share: int, shares: int, *parts: Any) -> Any:
    """In a worker."""
    return task(share, shares, *parts)


def _is_series(asked: Asked) -> bool:
    return asked.chosen is not None and type(asked.chosen) is not list


def _is_plain(dtype: Any, kinds: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in kinds


def _can(name: str, dtype: Any) -> bool:
    if name == "count":
        return not isinstance(dtype, pandas.CategoricalDtype)
    return _is_plain(dtype, "if") and dtype.itemsize == 8


def register() -> None:
    answer(DeferredFrame, "groupby", groupby)
    for name in (*COMBINE, *WHOLE_GROUPS):
        for kind in (DeferredFrameGroups, DeferredSeriesGroups):
            setattr(kind, name, _aggregate(name))
