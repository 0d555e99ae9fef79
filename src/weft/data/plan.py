"""The logical plan: what was asked for, one frozen node an operation. It knows nothing of tasks.

Each node knows the schema of what it gives where that of its inputs is known and no function is between (`schema`). A
column that is not there is told when that is asked for, which is when the node is made.

Each node says which columns it needs below it (`wanted_below`) and which it is known to have (`columns`), which is
what `optimize` works with. A set of wanted columns may name more than there are; None means all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import polars as pl
import pyarrow as pa

from weft.data.aggregates import Aggregate, whole_frame
from weft.data.errors import DataError
from weft.data.expressions import Expr, all_roots, is_plain, output, outputs, roots
from weft.data.joining import Joined
from weft.data.reach import Reach, reach
from weft.data.schemas import common_schema, empty_frame, no_such_column, wrong_name

if TYPE_CHECKING:
    from weft.data.functions import Function
    from weft.data.sources.base import Source
    from weft.data.writers import Writer

Wanted = frozenset[str] | None
Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


@dataclass(frozen=True, eq=False)
class Node:
    inputs: tuple[Node, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        """Of input `which`, so that `wanted` can be made. All, unless a kind of node knows better."""
        return None

    @property
    def columns(self) -> list[str] | None:
        """The names of its columns, where they are known before anything runs."""
        return None

    @cached_property
    def schema(self) -> pl.Schema | None:
        """Where it is known before anything runs. RowError names a column that is not there."""
        below = [child.schema for child in self.inputs]
        known = [schema for schema in below if schema is not None]
        if len(known) < len(below):
            return None
        frames = [empty_frame(schema) for schema in known]
        try:
            made = self.of(*frames)
            return None if made is None else made.collect_schema()
        except (pl.exceptions.ColumnNotFoundError, pl.exceptions.DuplicateError) as error:
            raise wrong_name(self.label, error, known[0]) from None
        except pl.exceptions.PolarsError:
            return None  # what runs will tell it with the row

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame | None:
        """What it makes of its inputs, as far as columns and types go. None: that is not known."""
        return None

    @property
    def label(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, eq=False)
class Read(Node):
    source: Source
    wanted: Wanted = None

    @cached_property
    def schema(self) -> pl.Schema | None:
        try:
            found = self.source.types()
        except (DataError, OSError, pl.exceptions.PolarsError, pa.ArrowException):
            return None  # it is told when it is read
        if found is None or self.wanted is None:
            return found
        return pl.Schema({name: found[name] for name in self.columns or found})

    @property
    def columns(self) -> list[str] | None:
        names = self.source.columns()
        if names is None or self.wanted is None:
            return names
        return [name for name in names if name in self.wanted] or names[:1]

    @property
    def label(self) -> str:
        shown = "" if self.wanted is None else f", columns {self.columns or sorted(self.wanted)}"
        return f"Read {self.source}{shown}"


class _SameRows(Node):
    """Operations that change the order or the number of rows and no column."""

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return wanted

    @property
    def columns(self) -> list[str] | None:
        return self.inputs[0].columns

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame | None:
        return frames[0]


@dataclass(frozen=True, eq=False)
class Filter(_SameRows):
    predicate: Expr

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        used = roots(self.predicate)
        return None if wanted is None or used is None else wanted | used

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return frames[0].filter(self.predicate)

    @property
    def label(self) -> str:
        return f"Filter {self.predicate}"


@dataclass(frozen=True, eq=False)
class Limit(_SameRows):
    rows: int

    @property
    def label(self) -> str:
        return f"Limit {self.rows}"


@dataclass(frozen=True, eq=False)
class Sort(_SameRows):
    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...] = ()
    """One per key; none of them unless said."""

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return None if wanted is None else wanted | frozenset(self.keys)

    def in_order(self, frame: Frame) -> Frame:
        lasts = self.nulls_last or False
        return frame.sort(self.keys, descending=self.descending, nulls_last=lasts, maintain_order=True)

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return frames[0].sort(*self.keys)

    @property
    def label(self) -> str:
        shown = [f"{key} desc" if down else key for key, down in zip(self.keys, self.descending, strict=True)]
        if any(self.nulls_last):
            shown = [f"{key} nulls last" if last else key for key, last in zip(shown, self.nulls_last, strict=True)]
        return f"Sort by {', '.join(shown)}"


@dataclass(frozen=True, eq=False)
class Shuffle(_SameRows):
    seed: int | None


@dataclass(frozen=True, eq=False)
class Repartition(_SameRows):
    blocks: int

    @property
    def label(self) -> str:
        return f"Repartition into {self.blocks}"


@dataclass(frozen=True, eq=False)
class _Made(Node):
    """Exactly these columns, or, with `keep`, these besides the ones there are."""

    expressions: tuple[Expr, ...]
    keep: bool = False

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        used, made = all_roots(self.expressions), outputs(self.expressions)
        if not self.keep or used is None or made is None or wanted is None:
            return None if self.keep else used
        return (wanted - frozenset(made)) | used

    def without_unwanted(self, wanted: Wanted) -> tuple[Expr, ...]:
        if wanted is None or outputs(self.expressions) is None:
            return self.expressions
        left = tuple(expr for expr in self.expressions if output(expr) in wanted)
        if self.keep or any(reach(expr) is Reach.ROW for expr in left):
            return left
        # A constant alone, or no column at all, would lose the number of rows.
        return (*left, next(expr for expr in self.expressions if reach(expr) is Reach.ROW))

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return frames[0].with_columns(self.expressions) if self.keep else frames[0].select(self.expressions)

    @property
    def columns(self) -> list[str] | None:
        made = outputs(self.expressions)
        if not self.keep or made is None:
            return made
        below = self.inputs[0].columns
        return None if below is None else [*below, *(name for name in made if name not in below)]


@dataclass(frozen=True, eq=False)
class Project(_Made):
    """As many rows as below, each made of one: expressions that look further are in an `AllRows` (see `projecting`)."""

    def passes(self, names: frozenset[str]) -> bool:
        """Whether all these columns are the same above and below."""
        if outputs(self.expressions) is None:
            return False
        if self.keep:
            return not names & frozenset(map(output, self.expressions))
        return names <= frozenset(output(expr) for expr in self.expressions if is_plain(expr))

    @property
    def label(self) -> str:
        word = "With columns" if self.keep else "Select"
        return f"{word} {', '.join(map(str, self.expressions))}"


@dataclass(frozen=True, eq=False)
class Reshape(Node):
    """One column, of which each row below makes any number of values."""

    expression: Expr

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return roots(self.expression)

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return frames[0].select(self.expression)

    @property
    def columns(self) -> list[str] | None:
        return outputs([self.expression])

    @property
    def label(self) -> str:
        return f"Select {self.expression}"


@dataclass(frozen=True, eq=False)
class AllRows(_Made):
    """Expressions that look at all rows, in one task, which gets the columns that they read. With `keep` they have a
    value for each row, which is put beside the other columns; else they are all that is left, of whatever length."""

    @property
    def label(self) -> str:
        word = "with columns" if self.keep else "select"
        return f"Over all rows, {word} {', '.join(map(str, self.expressions))}"


@dataclass(frozen=True, eq=False)
class Drop(Node):
    names: tuple[str, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        if wanted is None or wanted - frozenset(self.names):
            return wanted
        left = self.columns  # something has to carry the number of rows, and it is none of those that go
        return frozenset(left[:1]) if left else None

    @property
    def columns(self) -> list[str] | None:
        below = self.inputs[0].columns
        return None if below is None else [name for name in below if name not in self.names]

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return frames[0].drop(self.names, strict=False)  # some may be pruned

    @property
    def label(self) -> str:
        return f"Drop {', '.join(self.names)}"


@dataclass(frozen=True, eq=False)
class Rename(Node):
    mapping: tuple[tuple[str, str], ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        if wanted is None:
            return None
        back = {new: old for old, new in self.mapping}
        return frozenset(back.get(name, name) for name in wanted) | frozenset(old for old, _ in self.mapping)

    @property
    def columns(self) -> list[str] | None:
        below = self.inputs[0].columns
        mapping = dict(self.mapping)
        return None if below is None else [mapping.get(name, name) for name in below]

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return frames[0].rename(dict(self.mapping))

    @property
    def label(self) -> str:
        return "Rename " + ", ".join(f"{old} to {new}" for old, new in self.mapping)


@dataclass(frozen=True, eq=False)
class Map(Node):
    """A user's function over rows or batches."""

    function: Function

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame | None:
        return frames[0] if self.function.kind == "filter" else None

    @property
    def label(self) -> str:
        return str(self.function)


@dataclass(frozen=True, eq=False)
class GroupBy(Node):
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return frozenset(self.keys) | frozenset(agg.column for agg in self.aggregates if agg.column is not None)

    @property
    def columns(self) -> list[str] | None:
        return [*self.keys, *(agg.name for agg in self.aggregates)]

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        return whole_frame(frames[0], self.keys, self.aggregates)

    @property
    def label(self) -> str:
        return f"Group by {', '.join(self.keys) or 'nothing'}: {', '.join(map(str, self.aggregates)) or 'unique'}"


@dataclass(frozen=True, eq=False)
class MapGroups(Node):
    keys: tuple[str, ...]
    function: Function

    def of(self, *frames: pl.LazyFrame) -> None:
        frames[0].select(self.keys).collect_schema()

    @property
    def label(self) -> str:
        return f"Map groups by {', '.join(self.keys)}: {self.function}"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Inputs are left and right. Columns that both have get `suffix` on the right."""

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str
    suffix: str
    nulls_equal: bool = False

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        if wanted is None:
            return None
        bare = frozenset(name.removesuffix(self.suffix) for name in wanted)
        return wanted | bare | frozenset(self.right_on if which else self.left_on)

    @property
    def columns(self) -> list[str] | None:
        left, right = (node.columns for node in self.inputs)
        if (is_filter := self.how in ("semi", "anti")) or left is None or right is None:
            return left if is_filter else None
        if self.how == "right":  # its keys are the right side's
            left = [name for name in left if name not in self.left_on]
        else:
            right = [name for name in right if name not in self.right_on]
        return [*left, *(name + self.suffix if name in left else name for name in right)]

    @property
    def joined(self) -> Joined:
        left, right = (node.schema for node in self.inputs)
        return Joined(self.left_on, self.right_on, self.how, self.suffix, left, right, self.nulls_equal)

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        for frame, keys in zip(frames, (self.left_on, self.right_on), strict=True):
            names = frame.collect_schema().names()
            missing = [key for key in keys if key not in names]
            if missing:
                side = "the left side" if frame is frames[0] else "the right side"
                raise no_such_column(self.label, side, missing[0], names)
        return self.joined(*frames)

    @property
    def label(self) -> str:
        pairs = zip(self.left_on, self.right_on, strict=True)
        keys = ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs)
        return f"Join {self.how} on {keys}"


@dataclass(frozen=True, eq=False)
class Union(_SameRows):
    """Of the same columns, in the order of the first; of the types that they have in common."""

    wanted: Wanted = None
    """What is not wanted may be of other types on each side, which then do not meet."""

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        if wanted or wanted is None:
            return wanted
        names = self.columns  # what carries the number of rows has to be the same in all
        return frozenset(names[:1]) if names else None

    def check(self) -> None:
        """ValueError names a column that not all have."""
        schemas = [child.schema for child in self.inputs]
        for number, schema in enumerate(schemas[1:], 2):
            other = sorted(set(schema) ^ set(schemas[0])) if schema is not None and schemas[0] is not None else []
            if other:
                has = f"number {number}" if schema is not None and other[0] in schema else "the first"
                raise ValueError(
                    f"union() needs the same columns in all datasets, but only {has} has {other[0]!r}: "
                    "select the same ones, or add it with with_column(name, lit(None))"
                )

    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        schemas = [frame.collect_schema() for frame in frames]  # one may have what it alone needs for a filter
        names = [name for name in schemas[0] if all(name in schema for schema in schemas)]
        if self.wanted is not None:
            names = [name for name in names if name in self.wanted]
        kept = (pl.Schema({name: schema[name] for name in names}) for schema in schemas)
        return pl.LazyFrame(schema=common_schema(kept, self.label))


@dataclass(frozen=True, eq=False)
class Zip(Node):
    def of(self, *frames: pl.LazyFrame) -> pl.LazyFrame:
        left, right = (frame.collect_schema() for frame in frames)
        return pl.LazyFrame(schema={**left, **dict(zip(beside(list(left), list(right)), right.values(), strict=True))})


@dataclass(frozen=True, eq=False)
class Write(Node):
    writer: Writer

    @property
    def label(self) -> str:
        return f"Write {self.writer}"


@dataclass(frozen=True, eq=False)
class Count(Node):
    """Of the rows below nothing is wanted but how many there are."""

    def wanted_below(self, wanted: Wanted, which: int) -> Wanted:
        return frozenset()


def beside(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """The names of the right columns beside the left ones: with a number behind them where they are taken."""
    taken, names = set(left), []
    for name in right:
        unique, number = name, 0
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        names.append(unique)
    return names


@dataclass
class Lines:
    """A plan as text, one node a line, inputs below and indented."""

    text: list[str] = field(default_factory=list)

    def add(self, node: Node, depth: int = 0) -> Lines:
        self.text.append("  " * depth + node.label)
        for child in node.inputs:
            self.add(child, depth + 1)
        return self


def rebuilt(node: Node, make: Callable[[Node], Node]) -> Node:
    """The node with `make` of each of its inputs."""
    from dataclasses import replace

    made = tuple(make(child) for child in node.inputs)
    return node if all(new is old for new, old in zip(made, node.inputs, strict=True)) else replace(node, inputs=made)


def describe(node: Node) -> str:
    return "\n".join(Lines().add(node).text)
