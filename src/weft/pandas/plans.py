"""Plans: what a deferred frame or series will be, as steps of pandas on each part of its rows.

PLAN-1 A step works on rows alone: for each part it gives what it gives for these rows of the whole. So the parts of a
       result, put one behind another, are what pandas makes of the whole.
PLAN-2 Types are promised by the step's result on no rows (`meta`), and each part is held to it. Where a part is of
       another type (a hole in it made floats of ints), pandas runs the same steps on the whole, in this process.
PLAN-3 Labels of filtered rows are those that pandas gives: the filters are run again, in this process, on the labels
       of the whole alone, by the masks that the parts had.

Parts are evaluated in workers; everything else here runs in the driver.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas
from pandas import DataFrame, Series

from weft.pandas.parts import home

MOST_STEPS = 40
"""A longer plan is computed and kept: each use of a plan runs all of it."""


class UnsupportedError(Exception):
    """Says why a call is not for parts; pandas has it then."""


class Rows:
    """The rows of a table, or what a filter leaves of other rows. What has the same rows can be put side by side."""

    def __init__(self, lengths: list[int] | None, parent: Rows | None = None, replay: Any = None) -> None:
        self.parent = parent
        self.masks: list[Any] | None = None
        """Of each part, once it has been computed: which rows of the parent are left."""
        self._lengths = lengths
        self._replay = replay
        self._index: pandas.Index | None = None if lengths is None else pandas.RangeIndex(sum(lengths))

    @property
    def are_all(self) -> bool:
        return self.parent is None

    @property
    def is_computed(self) -> bool:
        return self.parent is None or self.masks is not None

    @property
    def lengths(self) -> list[int]:
        if self._lengths is None:
            assert self.masks is not None
            self._lengths = [int(mask.sum()) for mask in self.masks]
        return self._lengths

    @property
    def starts(self) -> list[int]:
        ends = np.cumsum([0, *self.lengths])
        return [int(end) for end in ends[:-1]]

    @property
    def index(self) -> pandas.Index:
        if self._index is None:
            assert self.parent is not None and self.masks is not None
            self._index = self._replay(self.parent.index, np.concatenate(self.masks))
        return self._index


class Plan:
    """A step on the results of other plans of the same rows. `meta`: its result on no rows."""

    __slots__ = ("args", "depth", "function", "kwargs", "meta", "rows")

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Rows, meta: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.rows = rows
        self.meta = meta
        self.depth: int = 1 + max((arg.depth for arg in args if isinstance(arg, Plan)), default=0)


class Table(Plan):
    """Parts that have been computed, each by a handle."""

    __slots__ = ("handles",)

    def __init__(self, handles: list[Any], rows: Rows, meta: Any) -> None:
        super().__init__(None, (), {}, rows, meta)
        self.handles = handles


def cut(whole: Any) -> Table:
    """A table of a frame or series whose labels are its rows' numbers."""
    place = home()
    bounds = np.linspace(0, len(whole), place.count() + 1).astype(int)
    pieces = [whole.iloc[start:end] for start, end in itertools.pairwise(bounds)]
    handles = [place.put(stored(piece)) for piece in pieces]
    return Table(handles, Rows([len(piece) for piece in pieces]), whole.iloc[:0].copy())


def stored(piece: Any) -> Any:
    """With arrays that lie together, so that they are stored as they are; and, of pandas 2, text in few objects."""
    piece = piece.copy()
    if _HAS_PACKING and isinstance(piece, DataFrame):
        from weft.pandas.packing import packed

        return packed(piece)
    return piece


_HAS_PACKING = int(pandas.__version__.split(".")[0]) < 3
"""Text is in Arrow's arrays later."""


# ---- in a worker -----------------------------------------------------------------------------------


class Slot(NamedTuple):
    """In the place of a plan: the value with this number."""

    number: int


@dataclass(frozen=True)
class Step:
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_filter: bool


@dataclass
class Told:
    """What the driver is told of a part beside its value."""

    meta: Any
    length: int
    masks: list[Any] = field(default_factory=list)
    """Of the filters among the steps, in their order."""


def evaluate(steps: Sequence[Step], inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The value of the last step, or of the last input; and the masks of filters."""
    values, masks = list(inputs), []
    for step in steps:
        args = [values[arg.number] if type(arg) is Slot else arg for arg in step.args]
        values.append(step.function(*args, **step.kwargs))
        if step.is_filter:
            masks.append(np.asarray(args[1], dtype=bool))
    return values[-1], masks


def evaluate_part(steps: Sequence[Step], finish: Any, starts: Sequence[int | None], *inputs: Any) -> tuple[Any, Told]:
    """In a worker. `starts`: the number of each input's first row, where its labels are numbers."""
    labelled = [_labelled(part, start) for part, start in zip(inputs, starts, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, masks = evaluate(steps, labelled)
        made = finish(value)
    if isinstance(value, DataFrame | Series):
        return made, Told(value.iloc[:0].copy(), len(value), masks)
    return made, Told(type(value), -1, masks)


def _labelled(part: Any, start: int | None) -> Any:
    if start is None:
        return part
    part = part.copy(deep=False)
    part.index = pandas.RangeIndex(start, start + len(part))
    return part


# ---- in the driver ---------------------------------------------------------------------------------


def program(plan: Plan) -> tuple[list[Table], list[Step], list[Rows]]:
    """The tables that a plan reads, its steps in an order in which they can be run, and the rows of its filters."""
    order: list[Plan] = []
    seen: set[int] = set()
    stack = [(plan, False)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((arg, False) for arg in node.args if isinstance(arg, Plan))
    tables = [node for node in order if isinstance(node, Table)]
    nodes = [node for node in order if not isinstance(node, Table)]
    numbers = {id(node): Slot(number) for number, node in enumerate([*tables, *nodes])}
    steps, filters = [], []
    for node in nodes:
        is_filter = _is_filter(node)
        args = tuple(numbers[id(arg)] if isinstance(arg, Plan) else arg for arg in node.args)
        steps.append(Step(node.function, args, node.kwargs, is_filter))
        if is_filter:
            filters.append(node.rows)
    return tables, steps, filters


def _is_filter(node: Plan) -> bool:
    return isinstance(node.args[0], Plan) and node.args[0].rows is not node.rows


def run(plan: Plan, finish: Callable[[Any], Any], only: Sequence[int] | None = None) -> tuple[list[Any], list[Told]]:
    """Handles of what `finish` makes of each part of a plan (or of `only` these), and what is told of the parts."""
    place = home()
    tables, steps, filters = program(plan)
    numbers = range(len(tables[0].handles)) if only is None else only
    starts = [table.rows.starts if table.rows.are_all else None for table in tables]
    shares = [
        (
            steps,
            finish,
            [None if each is None else each[number] for each in starts],
            *(table.handles[number] for table in tables),
        )
        for number in numbers
    ]
    pairs = place.run(evaluate_part, shares, 2)
    told = place.get([pair[1] for pair in pairs])
    if only is None:
        for number, rows in enumerate(filters):
            if rows.masks is None:
                rows.masks = [each.masks[number] for each in told]
    return [pair[0] for pair in pairs], told


def compute(plan: Plan) -> Table:
    """A table of a plan. UnsupportedError where the types of its parts are not one."""
    if isinstance(plan, Table):
        return plan
    handles, told = run(plan, stored)
    filled = [each.meta for each in told if each.length > 0]
    if not filled:
        raise UnsupportedError("no rows are left")
    if any(each.length != length for each, length in zip(told, plan.rows.lengths, strict=True)):
        raise UnsupportedError("the rows of its result are not those of the frame")
    if not all(same_type(filled[0], other) for other in filled[1:]):
        raise UnsupportedError("its result is of other types in some parts of the frame")
    meta = filled[0]
    for number, each in enumerate(told):
        if not each.length and not same_type(meta, each.meta):  # no row of it told what the result is of
            handles[number] = home().put(stored(meta))
    return Table(handles, plan.rows, meta)


def gather(plan: Plan) -> Any:
    """The whole, in this process."""
    handles, told = run(plan, stored)
    filled = [number for number, each in enumerate(told) if each.length > 0]
    if not filled or not all(same_type(plan.meta, told[number].meta) for number in filled):
        return whole(plan)
    if sum(each.length for each in told) != sum(plan.rows.lengths):
        return whole(plan)
    return together(home().get([handles[number] for number in filled]), plan.rows.index)


def whole(plan: Plan) -> Any:
    """The same steps on the whole of each table: by pandas, in this process."""
    tables, steps, _ = program(plan)
    inputs = [together(home().get(table.handles), table.rows.index) for table in tables]
    return evaluate(steps, inputs)[0]


def together(pieces: list[Any], index: pandas.Index) -> Any:
    filled = [piece for piece in pieces if len(piece)] or pieces[:1]
    made = filled[0].copy() if len(filled) == 1 else _one_behind_another(filled)
    made.index = index
    return made


def _one_behind_another(pieces: list[Any]) -> Any:
    """Of the same columns and types. For frames, pandas may put another hole in the place of those of objects."""
    first = pieces[0]
    if isinstance(first, Series) or not any(dtype == np.dtype(object) for dtype in first.dtypes):
        return pandas.concat(pieces)
    each = [pandas.concat([piece.iloc[:, at] for piece in pieces]) for at in range(first.shape[1])]
    made = DataFrame(dict(enumerate(each)), index=each[0].index)
    made.columns = first.columns
    return made


def same_type(one: Any, other: Any) -> bool:
    """Whether two results are of one kind, with the same columns and types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Series):
        return _same_dtype(one.dtype, other.dtype) and _same_name(one.name, other.name)
    if not isinstance(one, DataFrame):
        return False
    return (
        type(one.columns) is type(other.columns)
        and one.columns.equals(other.columns)
        and one.columns.names == other.columns.names
        and all(map(_same_dtype, one.dtypes, other.dtypes))
    )


def _same_dtype(one: Any, other: Any) -> bool:
    if isinstance(one, pandas.CategoricalDtype) and isinstance(other, pandas.CategoricalDtype):
        return bool(one.ordered == other.ordered and one.categories.equals(other.categories))
    return type(one) is type(other) and bool(one == other)


def _same_name(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))
