"""What a part of a query gives: a Dataset with column names of its own, and what the query calls them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from weft.data import plan
from weft.data.dataset import Dataset
from weft.data.projecting import selected

_numbers = itertools.count()
_UNKNOWN = 2**62


def fresh(name: str) -> str:
    """A column name that no other has, and that tells what it holds."""
    return f"{name}#{next(_numbers)}"


def refused(what: str, instead: str) -> ValueError:
    """What the query has and weft.data has not."""
    return ValueError(f"sql() does not support {what}: {instead}")


def no_such_table(name: str, there: Iterable[str]) -> ValueError:
    shown = ", ".join(there) or "none"
    return ValueError(f"sql() has no table {name}: pass it, sql(…, {name}=dataset); there are: {shown}")


def only_args(node: Any, *names: str) -> None:
    """ValueError where a node of the tree says more than what is read of it: nothing is left out in silence."""
    for name, found in node.args.items():
        if name not in names and found not in (None, False, []):
            text = node.sql("duckdb")
            raise refused(f"{name.rstrip('_').upper()} of {type(node).__name__} in {text[:120]}", "leave it out")


@dataclass(frozen=True)
class Field:
    """A column of a relation, by what the query calls it."""

    table: str
    name: str
    column: str


@dataclass(frozen=True)
class Relation:
    dataset: Dataset
    fields: tuple[Field, ...]

    @property
    def schema(self) -> pl.Schema:
        schema = self.dataset._plan.schema
        if schema is None:
            raise ValueError(
                f"sql() has found no types for {self.dataset._plan.label}: cast the operands to types that fit together"
            )
        return schema

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(field.table for field in self.fields)

    @property
    def rows(self) -> int:
        """At most about; only for an order of joins."""
        return _rows(self.dataset._plan)

    def type_of(self, expr: pl.Expr) -> pl.DataType:
        """ValueError: there is none."""
        try:
            return pl.LazyFrame(schema=self.schema).select(expr.alias("value")).collect_schema()["value"]
        except pl.exceptions.PolarsError as error:
            raise ValueError(f"sql() cannot compute {expr}: {str(error).splitlines()[0]}") from None

    def then(self, dataset: Dataset, *fields: Field) -> Relation:
        return Relation(dataset, (*self.fields, *fields))

    def filter(self, predicate: pl.Expr) -> Relation:
        return replace(self, dataset=self.dataset.filter(predicate))

    def with_columns(self, exprs: Iterable[pl.Expr]) -> Relation:
        """All of them see the columns as they are now, and look at one row each."""
        made = tuple(exprs)
        if not made:
            return self
        return replace(self, dataset=self.dataset._then(plan.Project((self.dataset._plan,), made, keep=True)))

    def only(self, exprs: Sequence[pl.Expr]) -> Dataset:
        """Exactly these columns, for each row, even where all of them are constants."""
        carrier = fresh("row")
        counted = self.dataset._then(
            plan.Project((self.dataset._plan,), (pl.col(next(iter(self.schema))).is_null().alias(carrier),), keep=True)
        )
        constant = not any(expr.meta.root_names() for expr in exprs)
        if not constant:
            return self.dataset._then(selected(self.dataset._plan, exprs))
        return counted._then(plan.Project((counted._plan,), (*exprs, pl.col(carrier)))).drop(carrier)

    def distinct(self, columns: Sequence[str]) -> Dataset:
        return self.dataset._then(plan.GroupBy((self.dataset._plan,), tuple(columns), ()))

    def join(self, other: Relation, pairs: Sequence[Pair], how: str) -> Relation:
        """Rows of both for which all pairs are equal; all rows with all where there is no pair. Keys are copies, so
        that both sides keep their own: an outer join leaves nulls in them, and types may differ."""
        if how == "right":
            swapped = [Pair(pair.right, pair.left, pair.null_safe) for pair in pairs]
            return other.join(self, swapped, "left")
        if not pairs:
            pairs = [Pair(pl.lit(1, pl.Int64), pl.lit(1, pl.Int64))]
        names = [(fresh("left"), fresh("right")) for _ in pairs]
        left = self.with_columns(pair.left.alias(name) for pair, (name, _) in zip(pairs, names, strict=True))
        right = other.with_columns(pair.right.alias(name) for pair, (_, name) in zip(pairs, names, strict=True))
        safe = [pair.null_safe for pair in pairs]
        if any(safe) and not all(safe):  # of the others a null is equal to nothing
            plain = [name for (_, name), pair in zip(names, pairs, strict=True) if not pair.null_safe]
            right = right.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in plain))
            if how not in ("inner", "left", "semi", "anti"):
                raise refused(f"a {how} join of such conditions", "split the query")
        node = plan.Join(
            (left.dataset._plan, right.dataset._plan),
            tuple(name for name, _ in names),
            tuple(name for _, name in names),
            how,
            "#right",
            nulls_equal=any(safe),
        )
        joined = self.dataset._then(node).drop(*(name for name, _ in names))
        if how in ("semi", "anti"):
            return Relation(joined, self.fields)
        return Relation(joined, (*self.fields, *other.fields))


@dataclass(frozen=True)
class Pair:
    """Expressions of the left and of the right side of a join that must be equal."""

    left: pl.Expr
    right: pl.Expr
    null_safe: bool = False


def _rows(node: plan.Node) -> int:
    if isinstance(node, plan.Read):
        known = node.source.row_count()
        return _UNKNOWN if known is None else known
    if isinstance(node, plan.GroupBy) and not node.keys:
        return 1
    most = max((_rows(child) for child in node.inputs), default=_UNKNOWN)
    if isinstance(node, plan.Limit):
        return min(node.rows, most)
    return most // 4 if isinstance(node, plan.Filter) else most


def named(relation: Relation, table: str, names: Sequence[str]) -> Relation:
    """The same rows under another table name, with names of columns in their order."""
    made = [Field(table, name, field.column) for name, field in zip(names, relation.fields, strict=True)]
    return Relation(relation.dataset, tuple(made))


def copied(relation: Relation, fields: Sequence[Field]) -> Relation:
    """These columns under new names of their own, so that the relation can be joined with itself."""
    made = [replace(field, column=fresh(field.name)) for field in fields]
    exprs: list[Any] = [pl.col(old.column).alias(new.column) for old, new in zip(fields, made, strict=True)]
    return Relation(relation.dataset._then(plan.Project((relation.dataset._plan,), tuple(exprs))), tuple(made))
