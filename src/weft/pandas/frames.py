"""Deferred frames and series: real ones of pandas, without values until somebody looks.

They are of subclasses of pandas' classes that lack `_mgr`, where pandas keeps the values. What is here or in the
tables of methods is answered by a plan. Everything else that pandas does reaches for `_mgr`: then the values are
gathered, the object is given them and becomes one of pandas' own class. So the API is pandas', whatever its version.

DEFER-1 An object is deferred or plain, and never both: once it has values it has no plan, so nobody can change the one
        and not the other.
DEFER-2 A plan is not changed; an assignment gives the frame another.
DEFER-3 Before pandas 3, a column shares its values with its frame. A column of a deferred frame that is alive when the
        frame gets values is given that column of it (`_children`).
"""

from __future__ import annotations

import weakref
from typing import Any

import pandas
from pandas import DataFrame, Series
from pandas.core.generic import NDFrame

from weft.pandas.moves import moves, who_looks
from weft.pandas.plans import MOST_STEPS, Plan, Table, UnsupportedError, compute, gather

NOT_FOR_PARTS = "pandas looks at the values of the whole frame"


class _Values:
    """In the place of `_mgr`. Values that an object has itself are found before this is asked."""

    def __get__(self, value: Any, owner: Any = None) -> Any:
        if value is None:
            return self
        operation, writes = who_looks()
        moves.note_fallback(operation, NOT_FOR_PARTS)
        with moves.timed(moves.in_pandas, operation):
            settle(value, writes)
        return value.__dict__["_mgr"]


class LikePlain(type):
    """Of deferred classes: in isinstance and `==` they are as good as the class of pandas that they come from."""

    @property
    def plain(cls) -> Any:
        return cls.__mro__[1]

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.plain)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, cls.plain)

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is cls.plain

    def __hash__(cls) -> int:
        return hash(cls.plain)


class DeferredFrame(DataFrame, metaclass=LikePlain):
    _mgr = _Values()

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._mgr  # noqa: B018
        return DataFrame.__reduce_ex__(self, protocol)


class DeferredSeries(Series, metaclass=LikePlain):
    _mgr = _Values()

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._mgr  # noqa: B018
        return Series.__reduce_ex__(self, protocol)


for _deferred, _plain in ((DeferredFrame, DataFrame), (DeferredSeries, Series)):
    for _name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(_deferred, _name, getattr(_plain, _name))


def is_deferred(value: Any) -> bool:
    return type(value) is DeferredFrame or type(value) is DeferredSeries


def plan_of(value: Any) -> Plan:
    plan: Plan = value.__dict__["_plan"]
    return plan


def wrap(plan: Plan, parent: Any = None) -> Any:
    """A deferred frame or series; `parent`: the frame whose column it is."""
    if plan.depth > MOST_STEPS:
        plan = compute(plan)
    is_frame = isinstance(plan.meta, DataFrame)
    made = object.__new__(DeferredFrame if is_frame else DeferredSeries)
    NDFrame.__init__(made, None)
    del made.__dict__["_mgr"]
    made.__dict__["_plan"] = plan
    if not is_frame:
        made.__dict__["_name"] = plan.meta.name
    if parent is not None and not copies_on_write():
        made.__dict__["_parent"] = weakref.ref(parent)
        children = [child for child in parent.__dict__.get("_children", ()) if child[0]() is not None]
        parent.__dict__["_children"] = [*children, (weakref.ref(made), plan_of(parent))]
    return made


def replace_plan(value: Any, plan: Plan) -> None:
    """After an assignment."""
    value.__dict__["_plan"] = compute(plan) if plan.depth > MOST_STEPS else plan


def settle(value: Any, writes: bool = False) -> None:
    """Give a deferred object its values; it is one of pandas from then on. `writes`: they are to be changed."""
    parent = value.__dict__.get("_parent", lambda: None)()
    if writes and is_deferred(parent):
        settle(parent)
    if not is_deferred(value):  # it shares them with its frame
        return
    plan = plan_of(value)
    whole = gather(plan)
    moves.settled += 1
    names = value.__dict__
    children = names.pop("_children", ())
    names.pop("_parent", None)
    del names["_plan"]
    names["_mgr"] = whole._mgr
    value.__class__ = type(whole)
    for reference, plan_then in children:
        child = reference()
        if child is not None and is_deferred(child) and plan_then is plan:
            _share_column(value, child)


def _share_column(frame: Any, child: Any) -> None:
    column = DataFrame.__getitem__(frame, child._name)
    for name in ("_plan", "_parent"):
        del child.__dict__[name]
    child.__dict__.update(column.__dict__)
    child.__class__ = type(column)
    if child._name in getattr(frame, "_item_cache", ()):
        frame._item_cache[child._name] = child


def copies_on_write() -> bool:
    """Whether no two objects of pandas share what is written."""
    if int(pandas.__version__.split(".")[0]) >= 3:
        return True
    return bool(pandas.options.mode.copy_on_write)


def table_of(value: Any) -> Table:
    """The computed parts of a deferred object, which keeps them."""
    plan = plan_of(value)
    if not isinstance(plan, Table):
        plan = value.__dict__["_plan"] = compute(plan)
    return plan


__all__ = ["DeferredFrame", "DeferredSeries", "UnsupportedError", "is_deferred", "plan_of", "settle", "wrap"]
