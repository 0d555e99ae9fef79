"""Functions of the user's on each value or each row of a deferred frame: `map` and `apply`.

They run in workers, at once, if they seem to do nothing but give a value. What one raises is raised. It is called
again, by pandas and for all rows, only where its results are of other types in some parts.
"""

from __future__ import annotations

import dis
import types
from typing import Any

from weft import cloudpickle
from weft.pandas.frames import DeferredFrame, DeferredSeries, plan_of, wrap
from weft.pandas.methods import answer, derive, frozen
from weft.pandas.plans import Plan, UnsupportedError, compute
from weft.pandas.steps import Method


def mapped(self: Any, function: Any, na_action: Any = None) -> Any:
    if type(function) is dict:
        return wrap(derive(Method("map"), self, frozen(function), certain=False, na_action=na_action))
    return wrap(of_user("map", self, function, na_action=na_action))


def series_apply(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        raise UnsupportedError("the function is given more than values")
    return wrap(of_user("apply", self, func))


def frame_apply(self: Any, func: Any, axis: Any = 0, *args: Any, **kwargs: Any) -> Any:
    if axis not in (1, "columns") or args or kwargs:
        raise UnsupportedError("it is not a function of each row alone")
    return wrap(of_user("apply", self, func, axis=1))


def of_user(name: str, self: Any, function: Any, **kwargs: Any) -> Plan:
    """A step with a function of the user's: it is called at once, and what it raises is raised."""
    if not isinstance(function, types.FunctionType | types.BuiltinFunctionType):
        raise UnsupportedError(f"it is given a {type(function).__name__}, not a function")
    if isinstance(function, types.FunctionType) and has_effects(function.__code__):
        raise UnsupportedError("the function does more than give a value: in another process nobody would see it")
    try:
        cloudpickle.dumps(function)
    except Exception as error:
        raise UnsupportedError(f"the function cannot be sent: {type(error).__name__}") from None
    plan = plan_of(self)
    return compute(Plan(Method(name), (plan, function), kwargs, plan.rows, None))


_WRITES = frozenset("STORE_SUBSCR DELETE_SUBSCR STORE_GLOBAL STORE_DEREF STORE_ATTR".split())
_EFFECTS = frozenset(
    "add append clear discard extend input insert next pop print put rand randint randn random remove send setdefault "
    "update write".split()
)


def has_effects(code: types.CodeType) -> bool:
    """Whether a function seems to change something outside of it, or to depend on what others changed."""
    if not _EFFECTS.isdisjoint(code.co_names) or any(each.opname in _WRITES for each in dis.get_instructions(code)):
        return True
    return any(isinstance(inner, types.CodeType) and has_effects(inner) for inner in code.co_consts)


def register() -> None:
    answer(DeferredFrame, "apply", frame_apply)
    answer(DeferredSeries, "apply", series_apply)
    answer(DeferredSeries, "map", mapped)
