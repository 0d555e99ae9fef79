"""Random plans of weft.data against Polars on the same rows: the answers must be the same, bit for bit.

A plan begins with a random table (nulls, NaN, duplicates, no row, one row) in 1 to 50 blocks, some of them empty, some
of other types than their neighbours, or in files, and has up to 8 steps of all kinds. Each step is a pair: what it does
to a Dataset, and what it does to a Polars frame. Numbers are such that their sums do not depend on the order of adding.

    python tests/data/random_plans.py --seeds 0:1000      # or --minutes 60 from a seed on
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import weft
from weft import data
from weft.data import exchanges, execute, plan, small
from weft.data.optimize import optimize
from weft.data.schemas import schema_of
from weft.data.sizing import Sizing
from weft.data.sources.memory import BlockSource

KINDS: dict[str, Any] = {"int": pl.Int64, "float": pl.Float64, "str": pl.String, "bool": pl.Boolean, "date": pl.Date}
MOST_ROWS = 120
FOLDER = ""
"""For the files of one plan."""


@dataclass
class Column:
    name: str
    kind: str
    exact: bool = True
    """Whether its sum is the same in any order."""


@dataclass
class Pair:
    """A Dataset and the frame that it must be equal to."""

    dataset: data.Dataset
    frame: pl.DataFrame
    columns: list[Column]
    ordered: bool = True
    """Whether the order of the rows is defined."""
    story: list[str] = field(default_factory=list)

    def of(self, *kinds: str, exact: bool = False) -> list[Column]:
        return [one for one in self.columns if one.kind in (kinds or KINDS) and (one.exact or not exact)]

    def then(
        self,
        story: str,
        dataset: data.Dataset,
        frame: pl.DataFrame,
        columns: list[Column] | None = None,
        ordered: bool | None = None,
    ) -> Pair:
        return Pair(
            dataset,
            frame,
            self.columns if columns is None else columns,
            self.ordered if ordered is None else ordered,
            [*self.story, story],
        )


# ---- tables -----------------------------------------------------------------------------------------


def value(rng: random.Random, kind: str) -> Any:
    if rng.random() < 0.15:
        return None
    if kind == "int":
        return rng.choice([rng.randint(-5, 5), rng.randint(-1000, 1000)])
    if kind == "float":
        return rng.choice([rng.randint(-20, 20) / 4, rng.randint(-2, 2) * 1.0, float("nan"), 0.0, -0.0])
    if kind == "str":
        return rng.choice(["", "a", "b", "ab", "Zürich", "x" * 30, str(rng.randint(0, 9))])
    if kind == "bool":
        return rng.random() < 0.5
    return datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randint(0, 40))


def table(rng: random.Random, names: str = "") -> tuple[pl.DataFrame, list[Column]]:
    rows = rng.choice([0, 1, 2, rng.randint(3, 20), *[rng.randint(20, MOST_ROWS)] * 4])
    chosen = ["int", *rng.choices(list(KINDS), k=rng.randint(1, 5))]
    columns = [Column(f"{names}{kind[0]}{number}", kind) for number, kind in enumerate(chosen)]
    made = {one.name: pl.Series([value(rng, one.kind) for _ in range(rows)], dtype=KINDS[one.kind]) for one in columns}
    return pl.DataFrame(made), columns


def blocks_of(rng: random.Random, frame: pl.DataFrame) -> list[pa.Table]:
    count = rng.choice([1, 2, rng.randint(2, 8), rng.randint(1, 50)])
    cuts = sorted(rng.randint(0, frame.height) for _ in range(count - 1))
    bounds = [0, *cuts, frame.height]
    return [frame.slice(low, high - low).to_arrow() for low, high in itertools.pairwise(bounds)]


def of_other_types(rng: random.Random, block: pa.Table) -> pa.Table:
    """The same values in other types, where that loses nothing."""
    frame = pl.DataFrame(pl.from_arrow(block))
    for name, kind in frame.schema.items():
        values = frame[name]
        if rng.random() < 0.5:
            continue
        if values.null_count() == values.len():
            frame = frame.with_columns(pl.lit(None, pl.Null).alias(name))
        elif kind == pl.Int64:
            frame = frame.with_columns(values.cast(rng.choice([pl.Int16, pl.Int32])))
        elif kind == pl.Float64 and bool((values == values.round()).all()) and not values.is_nan().any():
            frame = frame.with_columns(values.cast(pl.Int64))
    return frame.to_arrow()


def dataset_of(rng: random.Random, frame: pl.DataFrame) -> tuple[str, data.Dataset]:
    blocks = blocks_of(rng, frame)
    how = rng.choice(["blocks", "blocks", "mixed", "function", "parquet"])
    if how == "parquet":
        folder = tempfile.mkdtemp(dir=FOLDER)
        for number, block in enumerate(blocks[:8]):
            rest = block if number < 7 else pa.concat_tables(blocks[7:])
            pq.write_table(rest, f"{folder}/{number}.parquet", row_group_size=rng.choice([1, 5, 100]))
        return f"{frame.height} rows in {min(8, len(blocks))} files", data.read_parquet(folder)
    if how == "mixed":  # of the types that their values have in common, which are those of the frame
        blocks = [frame.clear().to_arrow(), *(of_other_types(rng, block) for block in blocks)]
    refs = [weft.put(block) for block in blocks]
    rows, sizes = [block.num_rows for block in blocks], [block.nbytes for block in blocks]
    kinds = schema_of(frame.clear().to_arrow().schema)
    source = BlockSource(refs, rows, sizes, frame.columns, "blocks", kinds, differ=how == "mixed")
    made = data.Dataset(plan.Read((), source))
    if how == "function" and frame.height:  # behind which no schema is known; of no row it would have no columns
        made = made.map_batches(lambda batch: batch, batch_format="arrow")
    return f"{frame.height} rows in {len(blocks)} blocks ({how})", made


# ---- expressions ------------------------------------------------------------------------------------


def by_row(rng: random.Random, pair: Pair) -> tuple[pl.Expr, str, bool]:
    """An expression that looks at one row; its kind, and whether it is exact."""
    one = rng.choice(pair.columns)
    column = pl.col(one.name)
    other = pl.col(rng.choice(pair.of(one.kind)).name)
    made: list[tuple[Any, str]] = [(column, one.kind), (column.is_null(), "bool")]
    if one.kind == "int":
        wide = (column * rng.randint(-3, 3) + other) % 1009
        made += [
            (wide, "int"),
            (column.abs(), "int"),
            (column.fill_null(rng.randint(0, 3)), "int"),
            (pl.when(column > 0).then(column).otherwise(other), "int"),
            (column / 4, "float"),
            (column > other, "bool"),
            (column.is_in([1, 2, 3, 700]), "bool"),
            (column.cast(pl.String), "str"),
            (column.replace({1: 2, 3: None}), "int"),
        ]
    if one.kind == "float":
        made += [
            (column.fill_nan(0.5), "float"),
            (column.fill_null(1.25), "float"),
            (column.is_nan(), "bool"),
            (column > 0.5, "bool"),
            (-column, "float"),
            (pl.max_horizontal(column, other), "float"),
        ]
    if one.kind == "str":
        made += [
            (column.str.len_chars().cast(pl.Int64), "int"),
            (column.str.to_uppercase(), "str"),
            (pl.concat_str(column, pl.lit("-"), other), "str"),
            (column > other, "bool"),
        ]
    if one.kind == "bool":
        made += [(~column, "bool"), (column & other, "bool"), (column.cast(pl.Int64), "int")]
    if one.kind == "date":
        made += [
            (column.dt.day().cast(pl.Int64), "int"),
            (column.dt.offset_by("3d"), "date"),
            (column > datetime.date(2024, 1, 20), "bool"),
        ]
    expression, kind = rng.choice(made)
    return expression, kind, one.exact


def over_all(rng: random.Random, pair: Pair) -> tuple[pl.Expr, str, bool] | None:
    """One that looks at all rows, a value a row."""
    one = rng.choice(pair.columns)
    column = pl.col(one.name)
    key = rng.choice(pair.columns).name
    made: list[tuple[Any, str, bool]] = [
        (pl.len().cast(pl.Int64) + pl.lit(0), "int", True),
        (column.n_unique().cast(pl.Int64), "int", True),
        (column.count().over(key).cast(pl.Int64), "int", True),
        (column.is_duplicated(), "bool", True),
        (column.null_count().cast(pl.Int64), "int", True),
    ]
    if one.kind in ("int", "float"):
        made += [
            (column.rank("dense").cast(pl.Int64), "int", True),
            (column == column.max(), "bool", True),
            (column.min().over(key), one.kind, one.exact),
        ]
        if one.exact:
            made += [
                (column - column.sum(), one.kind, True),
                (column > column.mean(), "bool", True),
                (column.sum().over(key), one.kind, True),
            ]
    if pair.ordered:
        made += [
            (column.shift(rng.randint(-3, 3)), one.kind, one.exact),
            (column.fill_null(strategy="forward"), one.kind, one.exact),
            (column.is_first_distinct(), "bool", True),
            (pl.int_range(pl.len()), "int", True),
            (column.reverse(), one.kind, one.exact),
            (column.cum_count().cast(pl.Int64), "int", True),
            (column.first().over(key), one.kind, one.exact),
            (column.rle_id().cast(pl.Int64), "int", True),
        ]
        if one.kind in ("int", "float") and one.exact:
            made += [
                (column.cum_sum(), one.kind, True),
                (column.diff(), one.kind, True),
                (column.cum_sum().over(key), one.kind, True),
                (column.rolling_sum(2), one.kind, True),
            ]
    return rng.choice(made)


# ---- steps ------------------------------------------------------------------------------------------

Step = Callable[[random.Random, Pair], Pair | None]


def step_filter(rng: random.Random, pair: Pair) -> Pair | None:
    found = by_row(rng, pair) if rng.random() < 0.7 else over_all(rng, pair)
    if found is None or found[1] != "bool":
        return None
    return pair.then(f"filter({found[0]})", pair.dataset.filter(found[0]), pair.frame.filter(found[0]))


def step_with_column(rng: random.Random, pair: Pair) -> Pair | None:
    found = by_row(rng, pair) if rng.random() < 0.5 else over_all(rng, pair)
    if found is None:
        return None
    expression, kind, exact = found
    name = rng.choice([rng.choice(pair.columns).name, f"{kind[0]}_{rng.randint(0, 99)}"])
    columns = [one for one in pair.columns if one.name != name]
    at = [one.name for one in pair.columns].index(name) if len(columns) < len(pair.columns) else len(columns)
    columns.insert(at, Column(name, kind, exact))
    return pair.then(
        f"with_column({name}, {expression})",
        pair.dataset.with_column(name, expression),
        pair.frame.with_columns(expression.alias(name)),
        columns,
    )


def step_select(rng: random.Random, pair: Pair) -> Pair | None:
    columns, expressions = [], []
    for number in range(rng.randint(1, 4)):
        found = by_row(rng, pair) if rng.random() < 0.8 or number == 0 else over_all(rng, pair)
        if found is not None:
            columns.append(Column(f"{found[1][0]}{number}s", found[1], found[2]))
            expressions.append(found[0].alias(columns[-1].name))
    return pair.then(
        f"select({expressions})", pair.dataset.select(*expressions), pair.frame.select(expressions), columns
    )


def step_totals(rng: random.Random, pair: Pair) -> Pair | None:
    columns, expressions = [], []
    for number, one in enumerate(rng.sample(pair.columns, min(3, len(pair.columns)))):
        kind = rng.choice(["count", "n_unique", "min", "max"])
        expression = getattr(pl.col(one.name), kind)()
        counts = kind in ("count", "n_unique")
        columns.append(Column(f"t{number}", "int" if counts else one.kind, one.exact))
        expressions.append((expression.cast(pl.Int64) if counts else expression).alias(f"t{number}"))
    return pair.then(
        f"select({expressions})", pair.dataset.select(*expressions), pair.frame.select(expressions), columns, True
    )


def step_explode(rng: random.Random, pair: Pair) -> Pair | None:
    one = rng.choice(pair.columns)
    expression = rng.choice([pl.col(one.name).drop_nulls(), pl.concat_list(one.name, one.name).explode()])
    return pair.then(f"select({expression})", pair.dataset.select(expression), pair.frame.select(expression), [one])


def step_drop(rng: random.Random, pair: Pair) -> Pair | None:
    if len(pair.columns) < 2:
        return None
    one = rng.choice(pair.columns)
    columns = [other for other in pair.columns if other is not one]
    return pair.then(f"drop({one.name})", pair.dataset.drop(one.name), pair.frame.drop(one.name), columns)


def step_rename(rng: random.Random, pair: Pair) -> Pair | None:
    one, other = rng.choice(pair.columns), rng.choice(pair.columns)
    mapping = {one.name: f"{one.name}r"}
    if other is not one and rng.random() < 0.5:
        mapping = {one.name: other.name, other.name: one.name}
    elif f"{one.name}r" in pair.frame.columns:
        return None
    columns = [Column(mapping.get(each.name, each.name), each.kind, each.exact) for each in pair.columns]
    return pair.then(f"rename({mapping})", pair.dataset.rename(mapping), pair.frame.rename(mapping), columns)


def step_sort(rng: random.Random, pair: Pair) -> Pair | None:
    names = [one.name for one in pair.columns]
    keys = rng.sample(names, rng.randint(1, len(names)))
    if not pair.ordered:  # by all columns, rows that are equal are the same
        keys = rng.sample(names, len(names))
    downs = [rng.random() < 0.4 for _ in keys]
    return pair.then(
        f"sort({keys}, {downs})",
        pair.dataset.sort(*keys, descending=downs),
        pair.frame.sort(*keys, descending=downs, maintain_order=True),
        ordered=True,
    )


def step_limit(rng: random.Random, pair: Pair) -> Pair | None:
    if not pair.ordered:
        return None
    rows = rng.choice([0, 1, 5, 50, 1000])
    return pair.then(f"limit({rows})", pair.dataset.limit(rows), pair.frame.head(rows))


def step_repartition(rng: random.Random, pair: Pair) -> Pair | None:
    blocks = rng.randint(1, 9)
    return pair.then(f"repartition({blocks})", pair.dataset.repartition(blocks), pair.frame)


def step_shuffle(rng: random.Random, pair: Pair) -> Pair | None:
    return pair.then("random_shuffle()", pair.dataset.random_shuffle(seed=3), pair.frame, ordered=False)


def step_materialize(rng: random.Random, pair: Pair) -> Pair | None:
    if pair.frame.height == 0:
        return None
    return pair.then("materialize()", pair.dataset.materialize(), pair.frame)


def step_group(rng: random.Random, pair: Pair) -> Pair | None:
    keys = [one.name for one in rng.sample(pair.columns, rng.randint(1, min(2, len(pair.columns))))]
    columns = [one for one in pair.columns if one.name in keys]
    columns.sort(key=lambda one: keys.index(one.name))
    count = f"n{rng.randint(0, 9999)}"
    aggregates, expressions = [data.Aggregate("len", None, count)], [pl.len().alias(count)]
    columns.append(Column(count, "count"))
    for number, one in enumerate(rng.sample(pair.columns, min(3, len(pair.columns)))):
        kinds = ["count", "n_unique", "min", "max"]
        if one.kind in ("int", "float"):
            kinds += ["median"] + (["sum", "mean"] if one.exact else [])
        if one.kind == "bool":
            kinds += ["any", "all", "sum"]
        kind, name = rng.choice(kinds), f"a{number}_{rng.randint(0, 9999)}"
        aggregate = data.Aggregate(kind, one.name, name)
        aggregates.append(aggregate)
        expressions.append(aggregate.whole())
        counts = kind in ("count", "n_unique") or (kind == "sum" and one.kind == "bool")
        of_kind = "count" if counts else "float" if kind in ("mean", "median") else one.kind
        columns.append(Column(name, of_kind, one.exact and kind not in ("mean", "median")))
    made = pair.then(
        f"groupby({keys}).agg({', '.join(map(str, aggregates))})",
        pair.dataset.groupby(*keys).agg(*aggregates),
        pair.frame.group_by(*keys).agg(expressions),
        columns,
        False,
    )
    counts_as_ints = [one.name for one in columns if one.kind == "count"]
    for name in counts_as_ints:  # of what width a count is depends on how it was made
        as_int = pl.col(name).cast(pl.Int64)
        made = made.then(f"with {name} as int", made.dataset.with_column(name, as_int), made.frame.with_columns(as_int))
    made.columns = [Column(one.name, "int" if one.kind == "count" else one.kind, one.exact) for one in columns]
    return made


def step_map_groups(rng: random.Random, pair: Pair) -> Pair | None:
    one = rng.choice(pair.columns)
    name = one.name

    def first(group: pl.DataFrame) -> pl.DataFrame:
        return group.select(pl.col(name).first(), pl.len().cast(pl.Int64).alias("rows"))

    if pair.frame.height == 0 or name == "rows":
        return None
    frame = pair.frame.group_by(name).agg(pl.len().cast(pl.Int64).alias("rows"))
    made = pair.dataset.groupby(name).map_groups(first, batch_format="polars")
    return pair.then(f"groupby({name}).map_groups(first)", made, frame, [one, Column("rows", "int")], False)


def step_join(rng: random.Random, pair: Pair) -> Pair | None:
    frame, columns = table(rng, rng.choice(["", "r"]))
    keys = [(one, other) for one in pair.columns for other in columns if one.kind == other.kind and one.exact]
    numbers = [(one, other) for one in pair.of("int") for other in columns if other.kind == "float"]
    if not keys:
        return None
    left, right = rng.choice(keys + numbers if rng.random() < 0.3 else keys)
    how: Any = rng.choice(["inner", "left", "right", "full", "semi", "anti"])
    if pair.frame.height * frame.height > 6000 and how not in ("semi", "anti"):
        return None
    told, dataset = dataset_of(rng, frame)
    mine, other = pair.frame, frame
    if left.kind != right.kind:
        mine = mine.with_columns(pl.col(left.name).cast(pl.Float64))
    coalesce = True if how in ("left", "right", "full") else None
    names = {"left_on": left.name, "right_on": right.name}
    try:
        expected = mine.lazy().join(other.lazy(), how=how, coalesce=coalesce, suffix="_r", **names).collect()
    except pl.exceptions.DuplicateError:
        return None
    if expected.height > 5 * MOST_ROWS or len(set(expected.columns)) < expected.width:
        return None
    made = pair.dataset.join(dataset, on=left.name, right_on=right.name, how=how, suffix="_r")
    by_type = {kind: name for name, kind in KINDS.items()}
    inexact = {one.name for one in pair.columns if not one.exact}
    kept = [Column(name, by_type[kind], name not in inexact) for name, kind in expected.schema.items()]
    return pair.then(f"join({told}, {names}, {how})", made, expected, kept, False)


def step_union(rng: random.Random, pair: Pair) -> Pair | None:
    found = by_row(rng, pair)
    if found[1] != "bool":
        return None
    names = [one.name for one in pair.columns]
    again = rng.sample(names, len(names))
    dataset = pair.dataset.union(pair.dataset.filter(found[0]).select(*again))
    if pair.dataset._plan.schema is None:
        dataset = pair.dataset.union(pair.dataset.filter(found[0]))
    frame = pl.concat([pair.frame, pair.frame.filter(found[0])])
    return pair.then(f"union(itself.filter({found[0]}))", dataset, frame) if frame.height < 5 * MOST_ROWS else None


def step_zip(rng: random.Random, pair: Pair) -> Pair | None:
    one = rng.choice(pair.columns)
    if not pair.ordered or f"{one.name}_1" in pair.frame.columns:
        return None
    dataset = pair.dataset.zip(pair.dataset.select(one.name))
    frame = pair.frame.with_columns(pl.col(one.name).alias(f"{one.name}_1"))
    columns = [*pair.columns, Column(f"{one.name}_1", one.kind, one.exact)]
    return pair.then(f"zip({one.name})", dataset, frame, columns)


def step_function(rng: random.Random, pair: Pair) -> Pair | None:
    ints = pair.of("int")
    if not ints or pair.frame.height == 0:
        return None
    name = rng.choice(ints).name
    odd = pl.col(name).fill_null(0) % 2 == 1
    which = rng.randint(0, 3)
    if which == 0:
        made = pair.dataset.filter(lambda row: (row[name] or 0) % 2 == 1)
        return pair.then(f"filter(lambda: {name} is odd)", made, pair.frame.filter(odd))
    if which == 1:
        made = pair.dataset.map_batches(lambda batch: batch.filter(odd), batch_format="polars", batch_size=7)
        return (
            pair.then(f"map_batches(filter {name} odd)", made, pair.frame.filter(odd)) if odd_rows(pair, odd) else None
        )
    if which == 2:
        made = pair.dataset.map_batches(lambda batch: batch.with_columns(odd=odd), batch_format="polars")
        columns = [one for one in pair.columns if one.name != "odd"] + [Column("odd", "bool")]
        if "odd" in pair.frame.columns:
            return None
        return pair.then(f"map_batches(with odd of {name})", made, pair.frame.with_columns(odd=odd), columns)
    twice = pair.dataset.map_batches(lambda batch: pl.concat([batch, batch]), batch_format="polars", batch_size=1)
    frame = pair.frame[[row for number in range(pair.frame.height) for row in (number, number)]]
    return pair.then("map_batches(each twice)", twice, frame) if frame.height < 5 * MOST_ROWS else None


def step_map(rng: random.Random, pair: Pair) -> Pair | None:
    """Rows through Python; an empty column, or one of nulls, would come back without a type."""
    ints = [one.name for one in pair.of("int") if pair.frame[one.name].null_count() == 0]
    if not ints or pair.frame.height == 0:
        return None
    name = rng.choice(ints)
    if rng.random() < 0.5:
        made = pair.dataset.map(lambda row: {"m": row[name] + 1})
        return pair.then(f"map({name} + 1)", made, pair.frame.select(m=pl.col(name) + 1), [Column("m", "int")])
    made = pair.dataset.flat_map(lambda row: [{"m": row[name]}] * (row[name] % 3))
    frame = pair.frame.select(m=pl.col(name).repeat_by(pl.col(name) % 3).explode(empty_as_null=False))
    return (
        pair.then(f"flat_map({name})", made, frame, [Column("m", "int")]) if 0 < frame.height < 5 * MOST_ROWS else None
    )


def odd_rows(pair: Pair, odd: pl.Expr) -> bool:
    return pair.frame.filter(odd).height > 0


STEPS: list[Step] = [
    step_filter,
    step_filter,
    step_with_column,
    step_with_column,
    step_with_column,
    step_select,
    step_totals,
    step_explode,
    step_drop,
    step_rename,
    step_sort,
    step_sort,
    step_limit,
    step_repartition,
    step_shuffle,
    step_materialize,
    step_group,
    step_group,
    step_map_groups,
    step_join,
    step_join,
    step_union,
    step_zip,
    step_function,
    step_map,
]


# ---- one plan ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def settings_of(rng: random.Random) -> Iterator[str]:
    """Now and then an arena so small that blocks are cut and parts divided again, and joins that copy no side."""
    arena_bytes = rng.choice([2**30, 2**30, 2**18, 2**15])
    broadcast_bytes = rng.choice([exchanges.BROADCAST_BYTES, -1])
    top_rows = rng.choice([exchanges.TOP_ROWS, 0])
    with (
        tempfile.TemporaryDirectory(prefix="weft-plans-") as folder,
        mock.patch.object(sys.modules[__name__], "FOLDER", folder),
        mock.patch.object(exchanges, "BROADCAST_BYTES", broadcast_bytes),
        mock.patch.object(exchanges, "TOP_ROWS", top_rows),
        mock.patch.object(execute, "cluster_sizing", return_value=Sizing(2, arena_bytes)),
    ):
        yield f"arena {arena_bytes}, broadcast {broadcast_bytes}, top {top_rows}"


def plan_of(rng: random.Random) -> Pair:
    frame, columns = table(rng)
    told, dataset = dataset_of(rng, frame)
    pair = Pair(dataset, frame, columns, True, [told])
    for _ in range(rng.randint(1, 8)):
        made = rng.choice(STEPS)(rng, pair)
        pair = pair if made is None else made
    return pair


def told(cell: Any) -> Any:
    """NaN is equal to itself here."""
    return "NaN" if isinstance(cell, float) and math.isnan(cell) else cell


def rows_of(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(map(told, row)) for row in frame.rows()]


def difference(pair: Pair) -> str | None:
    """What is wrong with the Dataset; None where it is what Polars gives."""
    found = pair.dataset.to_polars()
    if found.height == 0 and found.width == 0 and pair.frame.height == 0:
        return None  # behind a function of no rows
    if found.columns != pair.frame.columns:
        return f"columns {found.columns} instead of {pair.frame.columns}"
    if pair.dataset._plan.columns not in (None, found.columns):
        return f"the plan has columns {pair.dataset._plan.columns} instead of {found.columns}"
    for name, kind in pair.frame.schema.items():
        if found.schema[name] != kind and not (found.height == 0 or found[name].dtype == pl.Null):
            return f"{name} is {found.schema[name]} instead of {kind}"
    mine, theirs = rows_of(found), rows_of(pair.frame)
    if pair.ordered and mine != theirs:
        at = next(
            (n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
        )
        return f"row {at} of {len(mine)} and {len(theirs)}: {mine[at : at + 1]} instead of {theirs[at : at + 1]}"
    if Counter(mine) != Counter(theirs):
        more, less = Counter(mine) - Counter(theirs), Counter(theirs) - Counter(mine)
        return f"{len(mine)} rows instead of {len(theirs)}: {list(more)[:3]} instead of {list(less)[:3]}"
    counted = pair.dataset.count()
    if counted != pair.frame.height:
        return f"count() is {counted} instead of {pair.frame.height}"
    return totals_differ(pair)


def totals_differ(pair: Pair) -> str | None:
    """`aggregate` and `unique` of the first column."""
    one = pair.columns[0]
    kinds = ["count", "n_unique", "min", "max", "len"] + (["sum", "mean"] if one.kind == "int" and one.exact else [])
    aggregates = [data.Aggregate(kind, None if kind == "len" else one.name, kind) for kind in kinds]
    expected = pair.frame.select([aggregate.whole() for aggregate in aggregates]).row(0, named=True)
    found = pair.dataset.aggregate(*aggregates)
    if {name: told(cell) for name, cell in found.items()} != {name: told(cell) for name, cell in expected.items()}:
        return f"aggregate() of {one.name} is {found} instead of {expected}"
    unique = Counter(map(told, pair.dataset.unique(one.name)))
    wanted = Counter(map(told, pair.frame[one.name].unique()))
    return None if unique == wanted else f"unique({one.name}) is {unique} instead of {wanted}"


def both_ways(check: Callable[[int], None]) -> Callable[[int], None]:
    """By tasks, and, what is small enough, in this process."""

    def checked(seed: int) -> None:
        for most_bytes in (0, small.MOST_BYTES):
            with mock.patch.object(small, "MOST_BYTES", most_bytes):
                check(seed)

    return checked


def is_small(dataset: data.Dataset) -> bool:
    return small.Small(execute.cluster_sizing()).query(optimize(dataset._plan)) is not None


def check(seed: int) -> None:
    """AssertionError tells the plan that differs."""
    rng = random.Random(seed)
    with settings_of(rng) as settings:
        with mock.patch.object(small, "MOST_BYTES", 0):
            pair = plan_of(rng)
            wrong = told_difference(pair)
        if wrong is None and is_small(pair.dataset):
            wrong = told_difference(pair)
            settings = f"{settings}, in this process"
    if wrong is not None:
        raise AssertionError("\n  ".join([f"seed {seed} ({settings}): {wrong}", *pair.story]))


def told_difference(pair: Pair) -> str | None:
    try:
        return difference(pair)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(check: Callable[[int], None] = check, what: str = "plans") -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:last")
    parser.add_argument("--minutes", type=float, help="as many as fit, from the first seed on")
    chosen = parser.parse_args()
    first, last = (int(part) for part in chosen.seeds.split(":"))
    weft.init(num_cpus=2, log_to_driver=False)
    begun, failed, seed = time.monotonic(), 0, first
    while seed < last if chosen.minutes is None else time.monotonic() - begun < 60 * chosen.minutes:
        try:
            check(seed)
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
        seed += 1
    took_s = time.monotonic() - begun
    print(f"{seed - first} {what} in {took_s:.0f} s, {failed} differ")
    weft.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
