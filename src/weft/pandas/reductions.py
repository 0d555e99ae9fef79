"""Sums, means and the like of parts, to the bit what pandas gives for the whole.

RED-1 Counts, extremes, and sums of ints (which wrap around) do not depend on where rows are cut.
RED-2 Floats are added by NumPy in a tree of pairs whose shape depends on their number alone. A part adds the subtrees
      that are all its own, and hands on what lies across its ends; the driver adds these up the same tree. Whether
      this NumPy adds so is tried, once.
RED-3 A mean of ints is of floats in pandas. It is exact, in any order, while no sum can exceed 2**53: only such are
      done.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas
from pandas import DataFrame, Series

from weft.pandas.frames import DeferredFrame, DeferredSeries, plan_of, table_of
from weft.pandas.methods import answer, only
from weft.pandas.parts import home
from weft.pandas.plans import Plan, Rows, Table, UnsupportedError, run, same_type

LEAF = 4_096
"""Rows that a part hands on as they are, at most, where a subtree lies across its end."""
LARGEST_EXACT = 2**53


class Partial(NamedTuple):
    """What a part says of a column: of its values that are there."""

    present: int
    value: Any
    largest: float
    """Of ints: no value is further from zero."""
    pieces: dict[tuple[int, int], Any]
    """Of floats: sums of subtrees by their rows, and values across the ends."""


@dataclass(frozen=True)
class Reduce:
    """In a worker: each column of a part."""

    name: str
    rows: int

    def __call__(self, value: Any) -> list[Partial]:
        each = [value] if isinstance(value, Series) else [value.iloc[:, at] for at in range(value.shape[1])]
        return [self._column(column) for column in each]

    def _column(self, column: Series) -> Partial:
        values = column.to_numpy()
        count = len(values) if values.dtype.kind != "f" else int(np.count_nonzero(~np.isnan(values)))
        if self.name in ("min", "max", "any", "all"):
            return Partial(count, getattr(column, self.name)() if len(column) else None, 0.0, {})
        if self.name == "count" or values.dtype.kind != "f":
            largest = float(np.abs(values.astype(np.float64)).max(initial=0.0))
            return Partial(count, column.sum(), largest, {})
        start = int(column.index[0]) if len(column) else 0
        return Partial(count, None, 0.0, subtrees(np.where(np.isnan(values), 0.0, values), start, self.rows))


def subtrees(values: Any, start: int, rows: int) -> dict[tuple[int, int], Any]:
    """Of the tree over `rows` values: sums of what lies in these, and these themselves where a leaf is cut."""
    end, found, stack = start + len(values), {}, [(0, rows)]
    while stack:
        first, last = stack.pop()
        low, high = max(first, start), min(last, end)
        if low >= high:
            continue
        if first >= start and last <= end:
            found[first, last] = values[first - start : last - start].sum()
        elif last - first <= LEAF:
            found[first, last] = values[low - start : high - start].copy()
        else:
            middle = _middle(first, last)
            stack += [(first, middle), (middle, last)]
    return found


def _middle(first: int, last: int) -> int:
    half = (last - first) // 2
    return first + half - half % 8


def added(pieces: list[dict[tuple[int, int], Any]], rows: int) -> Any:
    """The sum of all, up the tree."""

    def node(first: int, last: int) -> Any:
        found = [each[first, last] for each in pieces if (first, last) in each]
        if not found:
            middle = _middle(first, last)
            return node(first, middle) + node(middle, last)
        return found[0] if np.ndim(found[0]) == 0 else np.concatenate(found).sum()

    return node(0, rows)


@functools.cache
def adds_in_pairs() -> bool:
    """Whether NumPy adds as RED-2 says."""
    random = np.random.default_rng(0)
    for rows in (20_011, 65_536, 100_003):
        values = random.normal(size=rows) * 10.0 ** random.integers(-8, 8, rows)
        cuts = sorted(random.integers(0, rows, 3).tolist())
        bounds = zip([0, *cuts], [*cuts, rows], strict=True)
        if added([subtrees(values[first:last], first, rows) for first, last in bounds], rows) != values.sum():
            return False
        block = np.stack([values, values * 3.0])
        if (block.sum(axis=1) != [values.sum(), (values * 3.0).sum()]).any():
            return False
    return True


def _reduction(name: str) -> Any:
    def handler(self: Any, *args: Any, **kwargs: Any) -> Any:
        usual: dict[str, Any] = {"axis": 0, "skipna": True, "numeric_only": False, "min_count": 0, "bool_only": False}
        if args:
            raise UnsupportedError("it has arguments")
        only(kwargs, **usual)
        plan = plan_of(self)
        is_frame = isinstance(plan.meta, DataFrame)
        dtypes = list(plan.meta.dtypes) if is_frame else [plan.meta.dtype]
        if not dtypes or not all(_can(name, dtype) for dtype in dtypes):
            raise UnsupportedError("a column is not of numbers that parts can be added up of")
        needs_order = name in ("sum", "mean") and any(dtype.kind == "f" for dtype in dtypes)
        if needs_order and (not adds_in_pairs() or (pandas.options.compute.use_bottleneck and _has_bottleneck())):
            raise UnsupportedError("this NumPy adds in another order")
        partials, rows = _partials(self, name, needs_order)
        columns = [_combined(name, dtype, [each[at] for each in partials], rows) for at, dtype in enumerate(dtypes)]
        if not is_frame:
            return columns[0]
        made = DataFrame({at: Series([value]) for at, value in enumerate(columns)}).iloc[0]
        made.index, made.name = plan.meta.columns, None
        return made

    return handler


def _can(name: str, dtype: Any) -> bool:
    kinds = {"sum": "bif", "mean": "if", "min": "bif", "max": "bif", "any": "b", "all": "b"}[name]
    return isinstance(dtype, np.dtype) and dtype.kind in kinds and (dtype.kind == "b" or dtype.itemsize == 8)


@functools.cache
def _has_bottleneck() -> bool:
    import importlib.util

    return importlib.util.find_spec("bottleneck") is not None


def _partials(self: Any, name: str, needs_order: bool) -> tuple[list[list[Partial]], int]:
    """Of the parts that have rows, and the number of rows where the order matters."""
    plan: Plan = plan_of(self)
    if needs_order and not plan.rows.are_all:  # the tree is over the rows that are left
        table = table_of(self)
        plan = Table(table.handles, Rows(table.rows.lengths), table.meta)
    rows = sum(plan.rows.lengths) if needs_order else 0
    handles, told = run(plan, Reduce(name, rows))
    if not all(same_type(plan.meta, each.meta) for each in told if each.length):
        raise UnsupportedError("its parts are not of one type")
    found: list[list[Partial]] = home().get(handles)
    filled = [partial for partial, each in zip(found, told, strict=True) if each.length]
    if not filled:
        raise UnsupportedError("there are no rows")
    return filled, rows


def _combined(name: str, dtype: Any, partials: list[Partial], rows: int) -> Any:
    if name in ("min", "max", "any", "all"):
        return getattr(Series([each.value for each in partials], dtype=dtype), name)()
    count = sum(each.present for each in partials)
    if dtype.kind == "f":
        total = added([each.pieces for each in partials], rows)
        if name == "sum":
            return np.float64(total)
        return np.float64(total / count) if count else np.nan
    total = Series([each.value for each in partials], dtype=np.int64).sum()
    if name == "sum":
        return total
    if max(each.largest for each in partials) * count >= LARGEST_EXACT:
        raise UnsupportedError("the ints are large, and their floats are not exact")
    return np.float64(total) / np.float64(count)


def count(self: Any, **kwargs: Any) -> Any:
    only(kwargs, axis=0, numeric_only=False)
    handles, _ = run(plan_of(self), _counted)
    counts = home().get(handles)
    return sum(counts[1:], counts[0])


def _counted(value: Any) -> Any:
    return value.count()


def register() -> None:
    for kind in (DeferredFrame, DeferredSeries):
        for name in ("sum", "mean", "min", "max", "any", "all"):
            answer(kind, name, _reduction(name))
        answer(kind, "count", count)
