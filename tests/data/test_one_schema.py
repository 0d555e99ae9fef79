"""Blocks of one dataset that differ in types and columns, and datasets of no rows at all."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft import data
from weft.data import col
from weft.data.schemas import common_type
from weft.data.sizing import Sizing


@pytest.fixture(scope="module", autouse=True)
def _session(shared_weft_session: ModuleType) -> None:
    pass


def mixed(*batches: dict[str, list[Any]]) -> data.Dataset:
    """A dataset with a block for each batch, each of its own types."""
    columns = [pa.table(batch) for batch in batches]
    return data.range(len(batches), blocks=len(batches)).map_batches(lambda ids: columns[int(ids["id"][0])])


def rows(dataset: data.Dataset) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in dataset.take_all()), key=repr)


INTS_AND_FLOATS = (
    {"k": [1, 2, 3], "v": [1, 1, 1]},
    {"k": [1.0, 2.0, 3.5], "v": [2.5, 2.5, 2.5]},
    {"k": [None, None], "v": [1, 1]},
)


def test_equal_keys_of_other_types_are_one_group() -> None:
    found = dict(rows(mixed(*INTS_AND_FLOATS).groupby("k").sum("v")))
    assert found == {1.0: 3.5, 2.0: 3.5, 3.0: 1, 3.5: 2.5, None: 2}
    assert sorted(mixed(*INTS_AND_FLOATS).unique("k"), key=repr) == sorted([1.0, 2.0, 3.0, 3.5, None], key=repr)
    counted = mixed(*INTS_AND_FLOATS).groupby("k").agg(v=["n_unique", "median"])
    assert {row["k"]: row["v_n_unique"] for row in counted.take_all()} == {1.0: 2, 2.0: 2, 3.0: 1, 3.5: 1, None: 1}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_equal_keys_of_other_types_are_joined(how: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr("weft.data.exchanges.BROADCAST_BYTES", -1)
    left = mixed({"k": [1, 2]}, {"k": [3.0, 2.0]}).with_column("l", col("k") * 10)
    right = mixed({"k": [2.0, 9.5], "r": [1, 2]}, {"k": [1, 8], "r": [3, 4]})
    frames = [
        pl.DataFrame({"k": [1.0, 2, 3, 2], "l": [10.0, 20, 30, 20]}),
        pl.DataFrame({"k": [2.0, 9.5, 1, 8], "r": [1, 2, 3, 4]}),
    ]
    coalesce = True if how in ("left", "right", "full") else None
    expected = frames[0].join(frames[1], on="k", how=how, coalesce=coalesce)  # type: ignore[arg-type]
    made = left.join(right, on="k", how=how)
    assert sorted(map(str, made.to_polars().select(expected.columns).rows())) == sorted(map(str, expected.rows()))


def test_blocks_of_other_types_are_sorted_together() -> None:
    made = mixed({"k": [5, 1]}, {"k": [2.5, float("nan")]}, {"k": [None]}, {"k": [3]}).sort("k")
    found = made.to_polars()["k"].to_list()
    assert found[:5] == [None, 1.0, 2.5, 3.0, 5.0] and math.isnan(found[5])
    assert {bundle.report.schema.field("k").type for bundle in made._bundles()} == {pa.float64()}


@pytest.mark.parametrize("step", ["shuffle", "repartition", "zip", "sort"])
def test_an_exchange_gives_blocks_of_one_schema(step: str) -> None:
    ds = mixed({"a": [1, 2]}, {"a": [0.5, 1.5], "b": ["x", "y"]}, {"a": [3, 4]})
    made = {
        "shuffle": lambda: ds.random_shuffle(seed=1),
        "repartition": lambda: ds.repartition(4),
        "zip": lambda: data.range(6, blocks=2).zip(ds),
        "sort": lambda: ds.sort("a"),
    }[step]()
    schemas = {str(bundle.report.schema.field("a").type) for bundle in made._bundles()}
    assert schemas == {"double"}
    assert sorted(made.to_polars()["a"].to_list()) == [0.5, 1, 1.5, 2, 3, 4]
    assert sorted(map(str, made.to_polars()["b"].to_list())) == ["None"] * 4 + ["x", "y"]


def test_a_number_and_a_text_have_nothing_in_common_and_the_column_is_named() -> None:
    with pytest.raises(data.RowError, match="Int64 in one and String in another") as caught:
        mixed({"k": [1]}, {"k": ["1"]}).groupby("k").count().take_all()
    assert caught.value.column == "k"
    with pytest.raises(data.RowError, match="Int64 on the left and String on the right") as caught:
        data.from_items([{"k": 1}]).join(data.from_items([{"k": "1"}]), on="k")
    assert caught.value.column == "k"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pl.Int64(), pl.Float64(), pl.Float64()),
        (pl.Int8(), pl.Int32(), pl.Int32()),
        (pl.Int64(), pl.UInt64(), pl.Int64()),
        (pl.Null(), pl.String(), pl.String()),
        (pl.Int64(), pl.String(), None),
        (pl.Categorical(), pl.String(), pl.String()),
        (pl.Date(), pl.Datetime("us"), pl.Datetime("us")),
        (pl.List(pl.Int64), pl.Array(pl.Float64, 2), pl.List(pl.Float64)),
        (pl.List(pl.Int64), pl.Int64(), None),
        (pl.Struct({"a": pl.Int64}), pl.Struct({"b": pl.Int8}), pl.Struct({"a": pl.Int64, "b": pl.Int8})),
        (pl.Struct({"a": pl.Int64}), pl.Struct({"a": pl.String}), None),
    ],
)
def test_types_have_in_common_what_loses_nothing(left: pl.DataType, right: pl.DataType, expected: Any) -> None:
    assert common_type(left, right) == expected
    if not isinstance(left, pl.Struct):  # whose fields come in the order of the first
        assert common_type(right, left) == expected


def test_structs_of_other_fields_meet_with_all_of_them() -> None:
    made = mixed({"s": [{"a": 1}, None]}, {"s": [{"b": "x"}]}, {"s": [{"a": 0.5}]}).repartition(1)
    assert made.to_polars()["s"].to_list() == [{"a": 1, "b": None}, None, {"a": None, "b": "x"}, {"a": 0.5, "b": None}]
    nested = mixed({"s": [[{"a": 1}], []]}, {"s": [[{"b": 2}, None]]}).repartition(1)
    assert nested.to_polars()["s"].to_list() == [[{"a": 1, "b": None}], [], [{"a": None, "b": 2}, None]]


# ---- no rows, no columns ----------------------------------------------------------------------------


def nothing() -> data.Dataset:
    return data.from_items([{"a": 1, "b": "x"}]).filter(col("a") > 5)


def test_an_empty_dataset_keeps_its_columns_behind_a_function_that_filters() -> None:
    ds = nothing().filter(lambda row: True)
    assert ds.columns() == ["a", "b"] and ds.to_arrow().column_names == ["a", "b"]
    assert ds.unique("a") == [] and ds.sum("a") == 0 and ds.max("a") is None and ds.count() == 0
    assert ds.sort("a").with_column("c", col("a").cum_sum()).to_arrow().column_names == ["a", "b", "c"]
    right = data.from_items([{"a": 1, "c": 2}])
    assert ds.join(right, on="a", how="right").take_all() == [{"b": None, "a": 1, "c": 2}]


def test_an_empty_dataset_behind_any_function_has_no_values_and_raises_nothing() -> None:
    ds = nothing().map(lambda row: row)
    assert ds.unique("a") == [] and ds.count() == 0 and ds.take_all() == []
    assert ds.aggregate(
        data.Aggregate("sum", "a", "s"), data.Aggregate("len", None, "n"), data.Aggregate("max", "a", "m")
    ) == {"s": 0, "n": 0, "m": None}
    assert ds.sort("a").take_all() == [] and ds.groupby("a").count().take_all() == []


def test_a_side_of_a_join_without_rows_gives_its_columns() -> None:
    right = data.from_items([{"a": 1, "c": 2}])
    assert nothing().join(right, on="a", how="full").take_all() == [{"a": 1, "b": None, "c": 2}]
    assert right.join(nothing(), on="a", how="left").take_all() == [{"a": 1, "c": 2, "b": None}]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_side_whose_function_saw_no_row_hides_no_column_of_a_join(
    how: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr("weft.data.exchanges.BROADCAST_BYTES", -1)
    other = data.from_items([{"a": 1, "c": 2}, {"a": 3, "c": 4}])
    unknown = nothing().map(lambda row: row)
    left, right = unknown.join(other, on="a", how=how), other.join(unknown, on="a", how=how)
    if how not in ("right", "full"):  # there is no row: what is done with the columns of any side does nothing
        assert left.with_column("c", col("a") + 1).sort("b").take_all() == []
        assert left.groupby("b").agg(a="sum").take_all() == [] and left.unique("b") == [] and left.count() == 0
    if how in ("inner", "right", "semi"):
        assert right.filter(col("a") > 0).sort("c", "a").drop("a").take_all() == []
    if how in ("right", "full"):
        assert left.sort("a").take_all() == other.take_all()
    if how in ("left", "full", "anti"):
        assert right.sort("c").take_all() == other.take_all()


@pytest.mark.parametrize("how", ["inner", "left", "full", "anti"])
def test_a_key_of_nothing_but_nulls_is_joined_with_numbers(how: str) -> None:
    nulls = data.from_arrow(pa.table({"k": pa.nulls(2), "v": [1, 2]}))
    numbers = data.from_items([{"k": 1, "w": 3}])
    expected = {"inner": 0, "left": 2, "full": 3, "anti": 2}[how]
    assert nulls.join(numbers, on="k", how=how).count() == expected
    assert len(numbers.join(nulls, on="k", how=how).take_all()) == {"inner": 0, "left": 1, "full": 3, "anti": 1}[how]


def test_a_union_of_other_columns_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="only number 2 has 'y'"):
        data.from_items([{"x": 1}]).union(data.from_items([{"x": 1, "y": 2}]))


def test_a_union_has_the_types_that_its_datasets_have_in_common() -> None:
    made = data.from_items([{"x": 1, "y": "a"}]).union(data.from_items([{"y": "b", "x": 0.5}]))
    assert made.with_column("z", col("x") / 2).take_all() == [
        {"x": 1.0, "y": "a", "z": 0.5},
        {"x": 0.5, "y": "b", "z": 0.25},
    ]
    assert {str(bundle.report.schema.field("x").type) for bundle in made._bundles()} == {"double"}


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "arrow"])
def test_integers_above_the_signed_ones_are_written_and_read_back(kind: str, tmp_path: Path) -> None:
    values = [2**64 - 1, 5]
    getattr(data.from_arrow(pa.table({"x": pa.array(values, pa.uint64())})), f"write_{kind}")(str(tmp_path))
    found = getattr(data, f"read_{kind}")(str(tmp_path))
    assert sorted(row["x"] for row in found.take_all()) == sorted(values)
    assert found.max("x") == 2**64 - 1


def test_binary_values_are_refused_for_text_formats_by_name(tmp_path: Path) -> None:
    ds = data.from_arrow(pa.table({"x": [1], "raw": pa.array([b"\xff"])}))
    for kind in ("json", "csv"):
        with pytest.raises(data.WriteError, match="column 'raw'"):
            getattr(ds, f"write_{kind}")(str(tmp_path / kind))


def test_parquet_files_without_rows_have_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), tmp_path / "a.parquet")
    ds = data.read_parquet(str(tmp_path))
    assert ds.select("b").to_arrow().column_names == ["b"] and ds.sum("a") == 0 and ds.sort("a").count() == 0


def test_empty_blocks_take_no_part_in_a_zip() -> None:
    ds = data.range(6, blocks=6).map_batches(lambda batch: {"a": batch["id"][batch["id"] % 3 == 1]})
    assert ds.zip(ds).take_all() == [{"a": 1, "a_1": 1}, {"a": 4, "a_1": 4}]


def test_a_union_is_counted_whatever_its_sides_read() -> None:
    ds = data.from_items([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    assert ds.union(ds.filter(col("b") > 2)).filter(col("a") > 0).count() == 3
    assert ds.union(ds.filter(col("b") > 2)).aggregate(data.Aggregate("len", None, "n")) == {"n": 3}


def test_one_group_of_all_rows_is_not_divided_however_small_the_arena_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.data.execute.cluster_sizing", lambda: Sizing(2, 2**14))
    assert data.range(2000, blocks=4).aggregate(data.Aggregate("n_unique", "id", "n")) == {"n": 2000}


def test_blocks_of_other_types_that_were_materialized_are_of_one() -> None:
    made = mixed({"k": [1]}, {"k": [2.5]}).materialize()
    assert made.with_column("t", col("k").cast(pl.String)).take_all() == [
        {"k": 1.0, "t": "1.0"},
        {"k": 2.5, "t": "2.5"},
    ]


def test_sides_of_a_union_may_differ_in_what_nobody_wants() -> None:
    ds = data.from_items([{"a": 1, "b": 2}]).map(lambda row: row).with_column("b", col("b").cast(pl.String))
    both = ds.union(ds.filter(col("b") > "1"))
    assert both.aggregate(data.Aggregate("n_unique", "a", "n")) == {"n": 1}


TIMES = {
    "date": pl.Date,
    "micro": pl.Datetime("us"),
    "nano": pl.Datetime("ns"),
    "zoned": pl.Datetime("us", "Europe/Zurich"),
    "took": pl.Duration("ms"),
    "at": pl.Time,
}


def times(rows: int) -> pl.DataFrame:
    """Values whose mean is exact, and nulls."""
    numbers = pl.int_range(rows, eager=True)
    seconds = (numbers * 40).set(numbers % 7 == 3, None)
    scale = {"date": 1, "micro": 10**6, "nano": 10**9, "zoned": 10**6, "took": 10**3, "at": 10**9}
    made = {name: (seconds * scale[name]).cast(pl.Int64).cast(kind) for name, kind in TIMES.items()}
    return pl.DataFrame({"k": numbers % 3, **made})


@pytest.mark.parametrize("kind", TIMES)
def test_a_mean_of_times_is_a_time(kind: str) -> None:
    frame = times(60)
    nulls = pa.table({"k": [0, 5], kind: pa.nulls(2)})
    parts = [frame.select("k", kind).slice(at, 20).to_arrow() for at in (0, 20, 40)]
    dataset = data.range(4, blocks=4).map_batches(lambda ids: [*parts, nulls][int(ids["id"][0])])
    expected = pl.concat([frame.select("k", kind), pl.DataFrame(pl.from_arrow(nulls)).cast({kind: TIMES[kind]})])
    found = dataset.groupby("k").mean(kind).to_polars().sort("k")
    assert found.equals(expected.group_by("k").agg(pl.col(kind).mean().alias(f"{kind}_mean")).sort("k"))
    over_all = dataset.groupby().agg(data.Aggregate("mean", kind, kind)).to_polars()
    assert over_all.equals(expected.select(pl.col(kind).mean()))


@pytest.mark.parametrize("kind", ["mean", "std", "var"])
@pytest.mark.parametrize(
    "values", [["1", "2"], [b"1"], [[1, 2]], [{"a": 1}]], ids=["texts", "bytes", "lists", "structs"]
)
def test_what_is_no_number_has_no_mean(kind: str, values: list[Any]) -> None:
    dataset = data.from_items([{"k": 1, "v": value} for value in values])
    for asked in (
        lambda: dataset.groupby("k").agg(v=kind).take_all(),
        lambda: dataset.aggregate(data.Aggregate(kind, "v", "a")),
    ):
        with pytest.raises(data.RowError, match=rf"{kind}\(v\) failed at column 'v'.*only .*numbers.*cast it"):
            asked()


def test_times_have_no_spread() -> None:
    with pytest.raises(data.RowError, match=r"column 'date'.*only numbers have a std"):
        data.from_polars(times(9)).std("date")


def test_what_kernels_refuse_is_told_by_step_and_block_without_a_traceback() -> None:
    texts = data.from_items([{"k": 1, "v": "a"}])
    with pytest.raises(data.RowError, match=r"^groups failed at block \d: InvalidOperationError: `median`"):
        texts.groupby("k").agg(v="median").take_all()
    wide = data.from_polars(pl.DataFrame({"u": pl.Series([2**63], dtype=pl.UInt64), "i": [1]}))
    with pytest.raises(data.RowError, match=r"column 'd'.*128 bits.*cast it"):
        wide.with_column("d", col("u") - col("i")).take_all()


def test_tables_that_have_no_type_in_common_are_told_by_column() -> None:
    with pytest.raises(data.RowError, match=r"column 'k'.*Int64 in one and String in another; cast it"):
        data.from_arrow([pa.table({"k": [1]}), pa.table({"k": ["a"]})])


def test_categories_of_several_blocks_are_written_to_one_arrow_file(tmp_path: Path) -> None:
    names = [
        pl.DataFrame({"c": values}, schema={"c": pl.Categorical}).to_arrow() for values in (["x", "y"], ["z"], ["y"])
    ]
    data.from_arrow(names).repartition(1).write_arrow(str(tmp_path / "out"))
    assert [row["c"] for row in data.read_arrow(str(tmp_path / "out")).take_all()] == ["x", "y", "z", "y"]


def test_texts_of_parquet_files_are_texts_whether_they_are_large_or_not(tmp_path: Path) -> None:
    kinds = (pa.string(), pa.list_(pa.string())), (pa.large_string(), pa.large_list(pa.large_string()))
    for number, (text, several) in enumerate(kinds):
        columns = {"s": pa.array(["a", None], text), "l": pa.array([["x"], None], several)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    assert rows(data.read_parquet(str(tmp_path)).sort("s")) == [("a", ["x"]), ("a", ["x"]), (None, None), (None, None)]


@pytest.mark.parametrize("what", ["parquet", "csv", "arrow", "orc", "avro"])
def test_a_dataset_of_no_rows_is_written_with_its_columns(tmp_path: Path, what: str) -> None:
    none = data.from_items([{"a": 1, "b": "x"}]).filter(col("a") > 5)
    paths = getattr(none, f"write_{what}")(str(tmp_path))
    assert len(paths) == 1
    read = getattr(data, f"read_{what}")
    assert read(str(tmp_path)).to_polars().columns == ["a", "b"]
    if what == "parquet":
        data.from_items([{"a": 1, "b": "x"}]).write_parquet(str(tmp_path))
        assert rows(read(str(tmp_path))) == [(1, "x")]


def test_two_columns_of_one_name_are_told_when_the_step_is_written(tmp_path: Path) -> None:
    one = data.from_items([{"a": 1, "b": 2}])
    for make in (lambda: one.rename({"a": "b"}), lambda: one.select(col("a"), (col("a") + 1).alias("b"), col("b"))):
        with pytest.raises(data.RowError, match=r"column 'b'.*two columns would have this name"):
            make()
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(data.ReadError, match=r"two of its columns are called 'a'"):
        data.read_parquet(str(tmp_path)).take()


def test_lists_are_no_csv(tmp_path: Path) -> None:
    with pytest.raises(data.WriteError, match=r"column 'l' is list.*select its parts, or write JSON or Parquet"):
        data.from_arrow(pa.table({"l": [[1]]})).write_csv(str(tmp_path))
