"""The methods that deferred frames and series answer by plans: each a handler here, put around pandas' own.

A handler raises UnsupportedError for what it has no plan for; then pandas does it. Which arguments are taken is said
here and nowhere else: what is not listed is pandas'.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
from pandas import DataFrame, Series
from pandas.api.types import is_hashable, is_list_like, is_scalar, pandas_dtype

from weft.pandas import steps
from weft.pandas.frames import (
    DeferredFrame,
    DeferredSeries,
    copies_on_write,
    is_deferred,
    plan_of,
    replace_plan,
    settle,
    wrap,
)
from weft.pandas.moves import moves
from weft.pandas.parts import home
from weft.pandas.plans import Plan, Rows, UnsupportedError, compute, run, same_type, stored, together
from weft.pandas.steps import Method

Handler = Callable[..., Any]
NUMBERS = (int, float, bool, np.number, np.bool_)
OF_NUMBERS = frozenset("biuf")


# ---- around pandas' methods ------------------------------------------------------------------------


def answer(kind: Any, name: str, handler: Handler) -> None:
    """Give a deferred class a method."""
    plain = kind.__mro__[1]
    of_pandas = getattr(plain, name)

    @functools.wraps(of_pandas)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_deferred(self):  # it was settled while somebody held its method
            return of_pandas(self, *args, **kwargs)
        try:
            with moves.timed(moves.on_parts, name):
                return handler(self, *args, **kwargs)
        except UnsupportedError as why:
            moves.on_parts[name].count -= 1
            reason = str(why)
        moves.note_fallback(name, reason)
        with moves.timed(moves.in_pandas, name):
            settle(self, writes=name == "__setitem__" or kwargs.get("inplace") is True)
            if name == "query":  # it looks for names in the frame of its caller, which is one further
                kwargs["level"] = kwargs.get("level", 0) + 1
            for other in (*args, *kwargs.values()):
                if is_deferred(other):
                    settle(other)
            return of_pandas(self, *args, **kwargs)

    setattr(kind, name, method)


def derive(function: Any, target: Any, *others: Any, certain: bool, rows: Rows | None = None, **kwargs: Any) -> Plan:
    """The plan of a step. Where its types are not certain it is computed at once, and its errors are raised then."""
    plans = [plan_of(each) if is_deferred(each) else each for each in (target, *others)]
    known = [each for each in plans if isinstance(each, Plan)]
    if any(each.rows is not known[0].rows for each in known):
        raise UnsupportedError("the other side has other rows")
    metas = [each.meta if isinstance(each, Plan) else each for each in plans]
    try:
        meta = function(*metas, **kwargs)
    except Exception as error:  # pandas raises it then, of the whole
        raise UnsupportedError(f"on no rows it raises {type(error).__name__}") from None
    if not isinstance(meta, DataFrame | Series):
        raise UnsupportedError("its result is no frame or series")
    plan = Plan(function, tuple(plans), kwargs, rows or known[0].rows, meta)
    return plan if certain else computed(plan)


def computed(plan: Plan) -> Plan:
    try:
        return compute(plan)
    except UnsupportedError:
        raise
    except Exception as error:  # pandas raises its own, of the whole
        raise UnsupportedError(f"a part of it raises {type(error).__name__}") from None


def dtypes_of(value: Any) -> list[Any]:
    meta = plan_of(value).meta
    return list(meta.dtypes) if isinstance(meta, DataFrame) else [meta.dtype]


def is_of(value: Any, kinds: frozenset[str]) -> bool:
    return all(isinstance(dtype, np.dtype) and dtype.kind in kinds for dtype in dtypes_of(value))


def only(kwargs: dict[str, Any], **usual: Any) -> None:
    """Keywords that say nothing but what is usual are let through."""
    for name, value in kwargs.items():
        if name not in usual or (value is not usual[name] and value != usual[name]):
            raise UnsupportedError(f"{name}={value!r}")


def frozen(value: Any) -> Any:
    """An argument that nobody changes later."""
    if is_scalar(value) or isinstance(value, np.dtype | type) or callable(value):
        return value
    if isinstance(value, slice) and all(map(is_scalar, (value.start, value.stop, value.step))):
        return value
    if isinstance(value, list | tuple | set) and all(map(is_scalar, value)):
        return type(value)(value)
    if type(value) is dict and all(is_hashable(key) for key in value) and all(map(is_scalar, value.values())):
        return dict(value)
    raise UnsupportedError(f"an argument is a {type(value).__name__}")


def in_pandas(self: Any, *args: Any, **kwargs: Any) -> Any:
    """For methods that ask for the very class of two objects before they look at values."""
    raise UnsupportedError("two whole frames are compared")


# ---- arithmetic, comparisons, logic ----------------------------------------------------------------

COMPARISONS = "eq ne lt le gt ge".split()
ARITHMETIC = "add sub mul truediv floordiv mod pow".split()
LOGIC = "and or xor".split()


def _binary(name: str, may_raise: bool, kinds: frozenset[str]) -> Handler:
    def handler(self: Any, other: Any, **kwargs: Any) -> Any:
        only(kwargs, axis="columns", level=None, fill_value=None)
        if not is_deferred(other) and not is_scalar(other):
            raise UnsupportedError(f"the other side is a {type(other).__name__} in this process")
        if is_deferred(other) and type(other) is not type(self):
            raise UnsupportedError("a frame meets a series")
        if type(other) is DeferredFrame and not plan_of(self).meta.columns.equals(plan_of(other).meta.columns):
            raise UnsupportedError("the other side has other columns")
        plain = isinstance(other, NUMBERS) or (is_deferred(other) and is_of(other, kinds))
        certain = plain and is_of(self, kinds) and not may_raise
        return wrap(derive(Method(name), self, other, certain=certain))

    return handler


def _register_operators(kind: Any) -> None:
    for name in COMPARISONS:
        answer(kind, f"__{name}__", _binary(f"__{name}__", False, OF_NUMBERS))
        answer(kind, name, _binary(name, False, OF_NUMBERS))
    for name in ARITHMETIC:
        may_raise = name == "pow"
        for full in (f"__{name}__", f"__r{name}__", name, f"r{name}"):
            if hasattr(Series, full):
                answer(kind, full, _binary(full, may_raise, OF_NUMBERS))
    for name in ("div", "rdiv", "divide", "multiply", "subtract"):
        answer(kind, name, _binary(name, False, OF_NUMBERS))
    for name in LOGIC:
        for full in (f"__{name}__", f"__r{name}__"):
            answer(kind, full, _binary(full, False, frozenset("b")))
    for name in ("__neg__", "__invert__", "__abs__", "abs"):
        answer(kind, name, _unary(name))
    for name in ("isna", "notna", "isnull", "notnull"):
        answer(kind, name, lambda self, *, name=name: wrap(derive(Method(name), self, certain=True)))


def _unary(name: str) -> Handler:
    def handler(self: Any) -> Any:
        if not is_of(self, frozenset("b") if name == "__invert__" else frozenset("if")):
            raise UnsupportedError("it is not of numbers alone")
        return wrap(derive(Method(name), self, certain=True))

    return handler


def ufunc(self: Any, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if method != "__call__" or kwargs or function.nout != 1:
        raise UnsupportedError("it is more than a call for each value")
    if len(inputs) > 2 or any(each is not self and not isinstance(each, NUMBERS) for each in inputs):
        raise UnsupportedError("an argument is not a number")
    places = [place for place, each in enumerate(inputs) if each is self]
    if len(places) != 1 or not is_of(self, OF_NUMBERS):
        raise UnsupportedError("it is not of numbers alone")
    others = [each for each in inputs if each is not self]
    return wrap(derive(steps.Ufunc(function, places[0]), self, *others, certain=len(inputs) == 1))


# ---- values, one by one ----------------------------------------------------------------------------


def fillna(self: Any, value: Any = None, **kwargs: Any) -> Any:
    only(kwargs, method=None, axis=None, inplace=False, limit=None)
    if not isinstance(value, NUMBERS) and not isinstance(value, str):
        raise UnsupportedError("holes are not filled with a number or a text")
    certain = isinstance(value, NUMBERS) and not isinstance(value, bool | np.bool_) and is_of(self, frozenset("f"))
    return wrap(derive(Method("fillna"), self, value, certain=certain))


def astype(self: Any, dtype: Any, **kwargs: Any) -> Any:
    only(kwargs, copy=True, errors="raise")
    for each in dtype.values() if type(dtype) is dict else [dtype]:
        if each not in (str, "str") and not _is_of_numbers(each):
            raise UnsupportedError("the new type is not of numbers or texts")
    return wrap(derive(Method("astype"), self, frozen(dtype), certain=False))


def _is_of_numbers(dtype: Any) -> bool:
    try:
        wanted = pandas_dtype(dtype)
    except TypeError:
        return False
    return isinstance(wanted, np.dtype) and wanted.kind in OF_NUMBERS


def _each(name: str, *numbers: str) -> Handler:
    """A method whose arguments are scalars or lists of them; certain for frames of these kinds of numbers."""

    def handler(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("inplace"):
            raise UnsupportedError("it is done in place")
        given = [frozen(each) for each in args]
        keywords = {key: frozen(each) for key, each in kwargs.items()}
        if any(map(callable, (*given, *keywords.values()))):
            raise UnsupportedError("an argument is a function")
        certain = bool(numbers) and is_of(self, frozenset(numbers))
        return wrap(derive(Method(name), self, *given, certain=certain, **keywords))

    return handler


def clip(self: Any, lower: Any = None, upper: Any = None, **kwargs: Any) -> Any:
    only(kwargs, axis=None, inplace=False)
    if not all(bound is None or isinstance(bound, NUMBERS) for bound in (lower, upper)):
        raise UnsupportedError("a bound is not a number")
    return wrap(derive(Method("clip"), self, lower, upper, certain=False))


def between(self: Any, left: Any, right: Any, **kwargs: Any) -> Any:
    only(kwargs, inclusive="both")
    if not is_scalar(left) or not is_scalar(right):
        raise UnsupportedError("a bound is not one value")
    return wrap(derive(Method("between"), self, left, right, certain=False))


def replace(self: Any, to_replace: Any = None, value: Any = None, **kwargs: Any) -> Any:
    only(kwargs, inplace=False, regex=False)
    if type(to_replace) is dict and value is None:
        return wrap(derive(Method("replace"), self, frozen(to_replace), certain=False))
    if to_replace is None or value is None or not is_scalar(to_replace) or not is_scalar(value):
        raise UnsupportedError("it is not one value for another")
    return wrap(derive(Method("replace"), self, to_replace, value, certain=False))


# ---- columns and rows ------------------------------------------------------------------------------


def is_column(self: Any, key: Any) -> bool:
    return is_hashable(key) and not isinstance(key, tuple) and key in plan_of(self).meta.columns


def frame_item(self: Any, key: Any) -> Any:
    if is_deferred(key):
        return kept_rows(self, key)
    if is_column(self, key):
        return wrap(derive(steps.column, self, key, certain=True), parent=self)
    if type(key) is list and all(is_column(self, each) for each in key) and len(set(key)) == len(key):
        return wrap(derive(steps.columns, self, list(key), certain=True))
    raise UnsupportedError(f"it is asked for rows by a {type(key).__name__}, or for no column")


def series_item(self: Any, key: Any) -> Any:
    if is_deferred(key):
        return kept_rows(self, key)
    raise UnsupportedError(f"it is asked for rows by a {type(key).__name__}")


def kept_rows(self: Any, mask: Any, function: Any = steps.kept, replay: Any = None) -> Any:
    plan, mask_plan = plan_of(self), plan_of(mask)
    if mask_plan.rows is not plan.rows:
        raise UnsupportedError("the mask has other rows")
    if not isinstance(mask_plan.meta, Series) or mask_plan.meta.dtype != np.dtype(bool):
        raise UnsupportedError("the mask is not a series of bools")
    replay = replay or (steps.labels_of_frame if type(self) is DeferredFrame else steps.labels_of_series)
    rows = Rows(None, plan.rows, replay)
    return wrap(derive(function, self, mask, certain=True, rows=rows))


def query(self: Any, expr: Any, **kwargs: Any) -> Any:
    if kwargs or not isinstance(expr, str) or not _is_of_each_row(expr, set(plan_of(self).meta.columns)):
        raise UnsupportedError("the expression is of more than the columns of a row")
    mask = wrap(derive(Method("eval"), self, expr, certain=False))
    return kept_rows(self, mask, steps.kept_by_loc, steps.labels_by_loc)


_OF_EACH_ROW = (
    *(ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Name, ast.Constant, ast.Load),
    *(ast.boolop, ast.unaryop, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


def _is_of_each_row(expression: str, names: set[Any]) -> bool:
    """Comparisons and arithmetic of columns and constants; a call in it may be of all rows, such as a mean."""
    try:
        nodes = list(ast.walk(ast.parse(expression.strip(), mode="eval")))
    except SyntaxError:
        return False
    columns = {node.id for node in nodes if isinstance(node, ast.Name)}
    return all(isinstance(node, _OF_EACH_ROW) for node in nodes) and columns <= names


def set_item(self: Any, key: Any, value: Any) -> None:
    if not is_hashable(key) or isinstance(key, tuple) or is_deferred(key):
        raise UnsupportedError(f"it is assigned to a {type(key).__name__}")
    replace_plan(self, _with_column(self, key, value))


def _with_column(self: Any, key: Any, value: Any) -> Plan:
    if type(value) is not DeferredSeries and not isinstance(value, (*NUMBERS, str)):
        raise UnsupportedError(f"the value is a {type(value).__name__} in this process")
    return derive(steps.with_column, self, key, value, certain=True)


def assign(self: Any, **kwargs: Any) -> Any:
    made = copy(self)
    for key, value in kwargs.items():
        if not is_deferred(made):
            raise UnsupportedError("a function looked at the values")
        set_item(made, key, value(made) if callable(value) else value)
    return made


def copy(self: Any, deep: Any = True) -> Any:
    if not deep and not copies_on_write():
        raise UnsupportedError("the copy shares values")
    return wrap(plan_of(self))


def drop(self: Any, labels: Any = None, *, axis: Any = 0, columns: Any = None, **kwargs: Any) -> Any:
    only(kwargs, index=None, level=None, inplace=False, errors="raise")
    if columns is None and axis in (1, "columns"):
        columns = labels
    elif labels is not None:
        raise UnsupportedError("rows are dropped")
    if not is_scalar(columns) and not is_list_like(columns):
        raise UnsupportedError("no columns are named")
    return wrap(derive(Method("drop"), self, certain=True, columns=columns if is_scalar(columns) else list(columns)))


def rename_columns(self: Any, mapper: Any = None, **kwargs: Any) -> Any:
    names = kwargs.pop("columns", None)
    only(kwargs, copy=None, inplace=False, level=None, errors="ignore")
    if mapper is not None or type(names) is not dict:
        raise UnsupportedError("it is not a dict of columns")
    plan = derive(Method("rename"), self, certain=True, columns=frozen(names))
    if not plan.meta.columns.is_unique:
        raise UnsupportedError("two columns would have one name")
    return wrap(plan)


def rename_series(self: Any, index: Any = None, **kwargs: Any) -> Any:
    only(kwargs, axis=None, copy=None, inplace=False, level=None, errors="ignore")
    if not is_scalar(index) or index is None:
        raise UnsupportedError("it is not a name")
    return wrap(derive(Method("rename"), self, index, certain=True))


def to_frame(self: Any, name: Any = None) -> Any:
    if name is None and plan_of(self).meta.name is None:
        raise UnsupportedError("it has no name")
    return wrap(derive(Method("to_frame"), self, *([] if name is None else [name]), certain=True))


def _first(name: str) -> Handler:
    """`head`, `tail`: from the parts that have these rows."""

    def handler(self: Any, n: int = 5) -> Any:
        plan = plan_of(self)
        if not plan.rows.are_all or type(n) is not int or n <= 0:
            raise UnsupportedError("it is not known where the rows are")
        lengths = list(enumerate(plan.rows.lengths))
        if name == "tail":
            lengths.reverse()
        wanted, found = [], 0
        for number, length in lengths:
            if found < n:
                wanted.append(number)
                found += length
        handles, told = run(plan, _Cut(name, n), sorted(wanted))
        if not all(same_type(plan.meta, each.meta) for each in told if each.length):
            raise UnsupportedError("its parts are not of one type")
        pieces = home().get(handles)
        made = getattr(together(pieces, pandas.RangeIndex(sum(map(len, pieces)))), name)(n)
        made.index = plan.rows.index[:n] if name == "head" else plan.rows.index[-n:]
        return made

    return handler


class _Cut:
    """In a worker: the first or the last rows of a part."""

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self.rows = rows

    def __call__(self, value: Any) -> Any:
        return stored(getattr(value, self.name)(self.rows))


BOTH: dict[str, Handler] = {
    "__array_ufunc__": ufunc,
    "astype": astype,
    "clip": clip,
    "compare": in_pandas,
    "copy": copy,
    "fillna": fillna,
    "head": _first("head"),
    "isin": _each("isin", "i", "f", "b"),
    "replace": replace,
    "round": _each("round", "f", "i"),
    "tail": _first("tail"),
}
FRAMES: dict[str, Handler] = {
    "__getitem__": frame_item,
    "__setitem__": set_item,
    "assign": assign,
    "drop": drop,
    "query": query,
    "rename": rename_columns,
}
SERIES: dict[str, Handler] = {
    "__getitem__": series_item,
    "between": between,
    "rename": rename_series,
    "to_frame": to_frame,
}


def register() -> None:
    for kind, own in ((DeferredFrame, FRAMES), (DeferredSeries, SERIES)):
        _register_operators(kind)
        for name, handler in {**BOTH, **own}.items():
            answer(kind, name, handler)
