"""Datasets through real tasks: what comes out is what pandas or plain Python would give."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft import data
from weft.data import plan, small
from weft.data.execute import Execution
from weft.data.functions import Function, Placement
from weft.data.optimize import optimize
from weft.data.physical import Planner
from weft.data.writers import SaveParquet, Writer

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def table(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(rows),
            "key": random.integers(0, 7, rows),
            "name": [f"name {number}" for number in random.integers(0, 50, rows)],
            "value": random.normal(size=rows),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files of 1,000 rows, in row groups of 300."""
    path = tmp_path_factory.mktemp("parquet")
    for number in range(5):
        whole = table(1000, number)
        whole = whole.set_column(0, "id", pa.array(np.arange(1000) + 1000 * number))
        pq.write_table(whole, path / f"{number}.parquet", row_group_size=300)
    return path


@pytest.fixture
def whole(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(folder / f"{number}.parquet") for number in range(5)], ignore_index=True)


def same(left: pd.DataFrame, right: pd.DataFrame, by: list[str]) -> None:
    left, right = (frame.sort_values(by).reset_index(drop=True) for frame in (left, right))
    pd.testing.assert_frame_equal(left[sorted(left)], right[sorted(right)], check_dtype=False)


# ---- reading and row-wise steps ---------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_files(folder: Path) -> None:
    ids = [row["id"] for row in data.read_parquet(str(folder)).select("id")]
    assert ids == list(range(5000))


def test_row_groups_of_one_large_file_are_read_by_several_tasks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.data.sources.parquet.LEAST_SPLIT_BYTES", 1)
    ds = data.read_parquet(str(folder / "0.parquet")).filter(data.col("id") % 2 == 0)
    made = ds.materialize()
    assert made.num_blocks() > 1
    assert [row["id"] for row in made.take_all()] == list(range(0, 1000, 2))


def test_many_small_files_are_read_by_fewer_tasks_which_still_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(small.VARIABLE, "0")
    for number in range(300):
        (tmp_path / f"{number:03d}.csv").write_text(f"x,y\n{number},1\n{number},2\n")
    ds = data.read_csv(str(tmp_path))
    assert [row["x"] for row in ds] == [number for number in range(300) for _ in range(2)]
    assert ds.statistics is not None
    assert 2 <= sum(stage.tasks for stage in ds.statistics.stages.values()) <= 150
    with pytest.raises(data.RowError) as caught:
        ds.map(lambda row: {"z": 1 / (row["x"] - 217)}).take_all()
    assert (caught.value.where, caught.value.row) == (f"{tmp_path}/217.csv", 0)


def test_many_small_blocks_are_taken_together(tmp_path: Path) -> None:
    small = data.range(1000, blocks=500).materialize()
    assert small.num_blocks() < 250
    assert [row["id"] for row in small] == list(range(1000))


def test_polars_takes_one_thread_in_a_worker(folder: Path) -> None:
    def threads(batch: dict[str, Any]) -> dict[str, Any]:
        import polars

        return {"threads": [polars.thread_pool_size()]}

    assert data.read_parquet(str(folder)).map_batches(threads).unique("threads") == [1]


def test_filters_by_expression_sql_and_function_agree(folder: Path, whole: pd.DataFrame) -> None:
    ds = data.read_parquet(str(folder))
    expected = len(whole[(whole.key > 3) & whole.name.str.startswith("name 1")])
    assert ds.filter((data.col("key") > 3) & data.col("name").str.starts_with("name 1")).count() == expected
    assert ds.filter("key > 3 AND name LIKE 'name 1%'").count() == expected
    assert ds.filter(lambda row: row["key"] > 3 and row["name"].startswith("name 1")).count() == expected


def test_columns_are_added_replaced_renamed_and_dropped(folder: Path) -> None:
    ds = data.read_parquet(str(folder)).with_column("double", data.col("value") * 2).with_column("key", "key + 1")
    ds = ds.rename({"id": "number"}).drop("name")
    row = ds.take(1)[0]
    assert list(row) == ["number", "key", "value", "double"]
    assert row["double"] == row["value"] * 2
    assert ds.columns() == ds.schema().names == list(row)


def test_maps_over_rows_give_rows() -> None:
    ds = data.range(10, blocks=3).map(lambda row: {"n": row["id"], "square": row["id"] ** 2})
    assert ds.take(3) == [{"n": 0, "square": 0}, {"n": 1, "square": 1}, {"n": 2, "square": 4}]
    many = ds.flat_map(lambda row: [{"n": row["n"]}] * row["n"])
    assert many.count() == 45


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "arrow", "polars"])
def test_batches_come_in_the_form_that_was_asked_for(batch_format: str) -> None:
    kinds = {"numpy": dict, "pandas": pd.DataFrame, "arrow": pa.Table, "polars": pl.DataFrame}

    def check(batch: Any) -> Any:
        assert isinstance(batch, kinds[batch_format])
        return batch

    ds = data.range(100, blocks=4).map_batches(check, batch_size=10, batch_format=batch_format)
    assert ds.sum("id") == 4950


def test_a_function_may_yield_several_batches_and_take_arguments() -> None:
    def twice(batch: dict[str, Any], amount: int, *, factor: int) -> Any:
        yield {"n": batch["id"] * factor + amount}
        yield {"n": batch["id"] * 0}

    ds = data.range(10).map_batches(twice, fn_args=[1], fn_kwargs={"factor": 10})
    assert sorted(row["n"] for row in ds) == sorted([0] * 10 + [10 * i + 1 for i in range(10)])


def test_a_class_is_made_once_an_actor_and_keeps_its_state() -> None:
    class Model:
        def __init__(self, offset: int) -> None:
            self.offset = offset
            self.calls = 0

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            self.calls += 1
            return {"n": batch["id"] + self.offset, "calls": np.full(len(batch["id"]), self.calls)}

    ds = data.range(1000, blocks=10).map_batches(Model, fn_constructor_args=[5], concurrency=1)
    rows = ds.take_all()
    assert [row["n"] for row in rows] == list(range(5, 1005))
    assert rows[-1]["calls"] == 10


def test_arrays_of_more_dimensions_survive() -> None:
    pixels = np.arange(4 * 3 * 2).reshape(4, 3, 2)
    ds = data.from_numpy(pixels).map_batches(lambda batch: {"data": batch["data"] + 1})
    np.testing.assert_array_equal(ds.take_batch(4)["data"], pixels + 1)


def test_a_chain_that_leaves_no_rows_still_ends() -> None:
    ds = data.range(100).map(lambda row: {"x": row["id"]}).filter(lambda row: False).filter(data.col("x") > 1)
    assert ds.take_all() == []
    assert ds.sort("x").take_all() == []
    assert ds.groupby("x").count().take_all() == []
    assert ds.count() == 0


# ---- exchanges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_what_pandas_gives(folder: Path, whole: pd.DataFrame, descending: bool) -> None:
    made = data.read_parquet(str(folder)).sort("value", descending=descending).to_pandas()
    expected = whole.sort_values("value", ascending=not descending, ignore_index=True)
    pd.testing.assert_frame_equal(made, expected, check_dtype=False)


def test_sorting_by_several_keys_and_text(folder: Path, whole: pd.DataFrame) -> None:
    made = data.read_parquet(str(folder)).sort("name", "value", descending=[True, False]).to_pandas()
    expected = whole.sort_values(["name", "value"], ascending=[False, True], ignore_index=True)
    pd.testing.assert_frame_equal(made, expected, check_dtype=False)


def test_sorting_puts_nulls_first_and_nans_last() -> None:
    values = [3.0, None, 1.0, float("nan"), 2.0, None] * 20
    made = data.from_items([{"x": value} for value in values], parallelism=6).sort("x").to_polars()["x"]
    assert made[:40].null_count() == 40
    assert made[40:100].to_list() == [1.0] * 20 + [2.0] * 20 + [3.0] * 20
    assert made[100:].is_nan().all()


def test_the_first_rows_of_a_sort_are_found(folder: Path, whole: pd.DataFrame) -> None:
    made = data.read_parquet(str(folder)).sort("value").limit(7).to_pandas()
    pd.testing.assert_frame_equal(made, whole.nsmallest(7, "value").reset_index(drop=True), check_dtype=False)


def test_a_shuffle_keeps_all_rows_and_changes_their_order() -> None:
    ids = [row["id"] for row in data.range(1000).random_shuffle(seed=1)]
    assert sorted(ids) == list(range(1000)) != ids
    assert ids == [row["id"] for row in data.range(1000).random_shuffle(seed=1)]
    assert ids != [row["id"] for row in data.range(1000).random_shuffle(seed=2)]


def test_rows_with_equal_keys_keep_their_order_in_a_sort() -> None:
    made = data.range(5000, blocks=8).with_column("key", data.col("id") % 3).sort("key").to_pandas()
    assert made.id.tolist() == sorted(range(5000), key=lambda number: number % 3)


def test_groups_are_aggregated_as_pandas_does(folder: Path, whole: pd.DataFrame) -> None:
    ds = data.read_parquet(str(folder)).groupby("key", "name")
    made = ds.agg(value=["sum", "mean", "min", "max", "std", "count"], id=["median", "n_unique"])
    grouped = whole.groupby(["key", "name"])
    expected = pd.concat(
        [
            grouped.value.agg(["sum", "mean", "min", "max", "std", "count"]).add_prefix("value_"),
            grouped.id.agg(["median", "nunique"]).rename(columns={"median": "id_median", "nunique": "id_n_unique"}),
        ],
        axis=1,
    ).reset_index()
    same(made.to_pandas(), expected, ["key", "name"])


def test_aggregates_that_combine_are_combined(folder: Path, whole: pd.DataFrame) -> None:
    made = data.read_parquet(str(folder)).groupby("key").agg(value=["sum", "mean", "var", "count"], name="max")
    expected = whole.groupby("key").agg(
        value_sum=("value", "sum"),
        value_mean=("value", "mean"),
        value_var=("value", "var"),
        value_count=("value", "count"),
        name_max=("name", "max"),
    )
    same(made.to_pandas(), expected.reset_index(), ["key"])


def test_aggregates_over_everything(folder: Path, whole: pd.DataFrame) -> None:
    ds = data.read_parquet(str(folder))
    assert ds.sum("id") == whole.id.sum()
    assert ds.mean("value") == pytest.approx(whole.value.mean())
    assert ds.std("value") == pytest.approx(whole.value.std())
    assert (ds.min("name"), ds.max("name")) == (whole.name.min(), whole.name.max())
    assert sorted(ds.unique("key")) == sorted(whole.key.unique())


def test_functions_over_groups_see_whole_groups(folder: Path, whole: pd.DataFrame) -> None:
    def spread(group: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"key": group.key[:1], "spread": [group.value.max() - group.value.min()]})

    made = data.read_parquet(str(folder)).groupby("key").map_groups(spread, batch_format="pandas").to_pandas()
    grouped = whole.groupby("key").value
    same(made, (grouped.max() - grouped.min()).rename("spread").reset_index(), ["key"])


@pytest.mark.parametrize("limit_bytes", [0, 2**25])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_joins_are_what_pandas_gives(how: str, limit_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once by copying the small side, once by exchanging both."""
    monkeypatch.setattr("weft.data.exchanges.BROADCAST_BYTES", limit_bytes)
    left = pd.DataFrame({"k": np.arange(100) % 30, "a": np.arange(100), "x": 1})
    right = pd.DataFrame({"k": np.arange(20, 40).astype("int32"), "b": np.arange(20) * 1.5, "x": 2})
    made = data.from_pandas(left).join(data.from_pandas(right), "k", how=how).to_pandas()
    if how in ("semi", "anti"):
        expected = left[left.k.isin(right.k) == (how == "semi")]
    else:
        expected = left.merge(right, on="k", how="outer" if how == "full" else how, suffixes=("", "_right"))
    same(made, expected, [name for name in ("k", "a", "b") if name in expected])


def test_joins_by_columns_of_different_names_need_only_what_is_selected() -> None:
    left = data.from_items([{"id": i, "who": i % 3, "unused": 0} for i in range(10)])
    right = data.from_items([{"person": i, "name": f"p{i}", "unused": 1} for i in range(3)])
    made = left.join(right, "who", right_on="person").select("id", "name")
    assert sorted((row["id"], row["name"]) for row in made) == [(i, f"p{i % 3}") for i in range(10)]


def test_unions_zips_limits_and_repartitions() -> None:
    first, second = data.range(10), data.range(5).with_column("id", data.col("id") + 10)
    assert [row["id"] for row in first.union(second)] == list(range(15))
    assert first.zip(data.range(10, blocks=3)).take(2) == [{"id": 0, "id_1": 0}, {"id": 1, "id_1": 1}]
    with pytest.raises(ValueError, match="10 and 5"):
        first.zip(second).take_all()
    assert [row["id"] for row in first.limit(4)] == [0, 1, 2, 3]
    again = data.range(100, blocks=7).repartition(3).materialize()
    assert again.num_blocks() == 3 and [row["id"] for row in again] == list(range(100))


# ---- consuming --------------------------------------------------------------------------------------


def test_batches_cross_the_borders_of_blocks() -> None:
    sizes = [len(batch["id"]) for batch in data.range(103, blocks=7).iter_batches(batch_size=10)]
    assert sizes == [10] * 10 + [3]
    kept = list(data.range(103, blocks=7).iter_batches(batch_size=10, drop_last=True))
    assert np.concatenate([batch["id"] for batch in kept]).tolist() == list(range(100))


def test_a_local_shuffle_keeps_all_rows() -> None:
    batches = data.range(1000, blocks=5).iter_batches(
        batch_size=64, local_shuffle_buffer_size=200, local_shuffle_seed=3
    )
    ids = np.concatenate([batch["id"] for batch in batches]).tolist()
    assert sorted(ids) == list(range(1000)) != ids


def test_a_loop_that_stops_early_leaves_nothing_running() -> None:
    for batch in data.range(10**6, blocks=100).iter_batches(batch_size=10):
        assert batch["id"].tolist() == list(range(10))
        break


def test_splits_have_equal_numbers_of_rows() -> None:
    parts = data.range(100, blocks=3).split(4)
    assert [part.count() for part in parts] == [25] * 4
    assert [row["id"] for part in parts for row in part] == list(range(100))


@pytest.mark.parametrize("equal", [False, True])
def test_a_streaming_split_shares_each_epoch(shared_weft_session: ModuleType, equal: bool) -> None:
    @shared_weft_session.remote(num_cpus=0)
    def consume(share: data.DataIterator) -> list[list[int]]:
        return [[int(n) for batch in share.iter_batches(batch_size=7) for n in batch["id"]] for _ in range(2)]

    shares = data.range(1000, blocks=10).streaming_split(2, equal=equal)
    got = shared_weft_session.get([consume.remote(share) for share in shares])
    for epoch in range(2):
        assert sorted(got[0][epoch] + got[1][epoch]) == list(range(1000))
    if equal:
        assert len(got[0][0]) == len(got[1][0]) == 500


def test_what_an_equal_streaming_split_leaves_out_is_counted(shared_weft_session: ModuleType) -> None:
    @shared_weft_session.remote(num_cpus=0)
    def consume(share: data.DataIterator) -> int:
        return sum(len(batch["id"]) for batch in share.iter_batches())

    shares = data.range(101, blocks=7).streaming_split(3, equal=True)
    assert shared_weft_session.get([consume.remote(share) for share in shares]) == [33, 33, 33]
    assert "skipped by streaming_split(equal=True), as the rest of a division: 2" in shares[0].stats()


def test_a_dataset_can_be_used_inside_a_task(shared_weft_session: ModuleType) -> None:
    ds = data.range(100).with_column("double", data.col("id") * 2)

    @shared_weft_session.remote
    def total() -> int:
        return int(ds.sum("double"))

    assert shared_weft_session.get(total.remote()) == 9900


def test_counts_of_plain_files_read_no_rows(folder: Path) -> None:
    ds = data.read_parquet(str(folder)).sort("value").select("id")
    assert ds.count() == 5000 and ds.statistics is None


def test_figures_say_what_ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(small.VARIABLE, "0")
    ds = data.read_parquet(str(folder)).filter(data.col("key") == 1)
    assert ds.stats() == "it has not run yet"
    rows = len(ds.take_all())
    assert ds.statistics is not None
    assert sum(stage.rows for stage in ds.statistics.stages.values()) == rows
    assert "read parquet, 5 files → filter" in ds.stats()


def test_progress_is_told_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.data.progress.TOLD_EVERY_S", 0.0)
    monkeypatch.setenv(small.VARIABLE, "0")
    told = io.StringIO()
    data.show_progress(file=told)
    try:
        data.range(1000, blocks=4).sort("id").take_all()
    finally:
        data.show_progress(False)
    assert "read range(1000)" in told.getvalue() and "rows/s" in told.getvalue()
    before = told.getvalue()
    data.range(10).take_all()
    assert told.getvalue() == before


def test_the_plan_can_be_explained_without_running(folder: Path) -> None:
    ds = data.read_parquet(str(folder)).join(data.range(5), "key", right_on="id").filter(data.col("value") > 0)
    text = ds.select("name").explain()
    assert "columns ['key', 'name', 'value']" in text
    assert text.index("Join inner", text.index("optimised")) < text.index("Filter", text.index("optimised"))


# ---- other sources and sinks ------------------------------------------------------------------------


def test_sql_is_read_and_written_in_one_transaction(tmp_path: Path) -> None:
    file = str(tmp_path / "base.db")

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(file)

    connection = connect()
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    connection.commit()
    connection.close()
    ds = data.range(10).with_column("name", data.lit("n") + data.col("id").cast(pl.String))
    assert ds.write_sql("INSERT INTO t VALUES (?, ?)", connect) == 10
    made = data.read_sql("SELECT * FROM t WHERE id >= ?", connect, parameters=(7,))
    assert made.take_all() == [{"id": i, "name": f"n{i}"} for i in (7, 8, 9)]
    with pytest.raises(sqlite3.IntegrityError):
        data.range(20).with_column("name", data.lit("x")).sort("id", descending=True).write_sql(
            "INSERT INTO t VALUES (?, ?)", connect
        )
    assert data.read_sql("SELECT * FROM t", connect).count() == 10


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_what_is_written_is_read_back(tmp_path: Path, kind: str) -> None:
    ds = data.from_arrow(table(200), parallelism=3)
    paths = getattr(ds, f"write_{kind}")(str(tmp_path / "out"))
    assert len(paths) == 3 and all(Path(path).exists() for path in paths)
    again = getattr(data, f"read_{kind}")(str(tmp_path / "out")).to_pandas()
    pd.testing.assert_frame_equal(again, table(200).to_pandas(), check_dtype=False)


def test_text_numpy_images_and_bytes_are_read_and_written(tmp_path: Path) -> None:
    data.from_items([{"text": f"line {i}"} for i in range(5)], parallelism=1).write_text(str(tmp_path / "text"))
    assert [row["text"] for row in data.read_text(str(tmp_path / "text"))] == [f"line {i}" for i in range(5)]
    data.from_numpy(np.eye(3)).write_numpy(str(tmp_path / "numpy"), "data")
    np.testing.assert_array_equal(data.read_numpy(str(tmp_path / "numpy")).take_batch(3)["data"], np.eye(3))
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    data.from_numpy(pixels, "image").write_images(str(tmp_path / "images"))
    made = data.read_images(str(tmp_path / "images"), mode="RGB")
    np.testing.assert_array_equal(np.stack([row["image"] for row in made.iter_rows()]).reshape(pixels.shape), pixels)
    assert data.read_binary_files(str(tmp_path / "text")).take(1)[0]["bytes"].startswith(b"line 0")


def test_globs_lists_and_urls_of_fsspec_are_found(folder: Path) -> None:
    assert data.read_parquet(str(folder / "[01].parquet")).count() == 2000
    assert data.read_parquet([folder / "0.parquet", str(folder / "4.parquet")]).count() == 2000
    assert data.read_parquet(f"local://{folder}/2.parquet").filter(data.col("id") >= 2500).count() == 500
    with pytest.raises(FileNotFoundError, match="no-such"):
        data.read_parquet(str(folder / "no-such*.parquet"))


def test_generators_are_read_only_as_far_as_needed() -> None:
    def forever() -> Any:
        number = 0
        while True:
            yield {"n": number}
            number += 1

    assert data.from_generator(forever).limit(3).take_all() == [{"n": 0}, {"n": 1}, {"n": 2}]
    two = data.from_generator(lambda: iter([1, 2]), lambda: iter([3]))
    assert [row["item"] for row in two] == [1, 2, 3]


def test_large_text_files_are_read_as_a_sequence_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.data.sources.files.TARGET_BLOCK_BYTES", 1000)
    file = tmp_path / "a.csv"
    file.write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(500)))
    made = data.read_csv(str(file)).filter(data.col("a") >= 100)
    assert [row["a"] for row in made] == list(range(100, 500))
    assert made.statistics is not None and "read csv" not in made.stats()


def test_tensors_come_out_for_torch() -> None:
    torch = pytest.importorskip("torch")
    batch = next(iter(data.range(10).iter_torch_batches(batch_size=4, dtypes=torch.float32)))
    assert batch["id"].dtype == torch.float32 and batch["id"].tolist() == [0, 1, 2, 3]


def test_a_task_with_a_gpu_does_nothing_but_its_functions(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "a.parquet")
    on_device = {"num_gpus": 1, "num_cpus": 0}
    ds = data.read_parquet(str(tmp_path)).filter(data.col("x") > 1).map_batches(lambda batch: batch, **on_device)
    ds = ds.map_batches(lambda batch: batch, **on_device).filter(data.col("x") > 2)
    stages = Planner(Execution(runs=False)).branches(optimize(ds._plan))[0].stages
    assert [(stage.placement.num_gpus, len(stage.steps)) for stage in stages] == [(0, 1), (1, 2), (0, 1)]
    mapped = plan.Map((ds._plan,), Function("map", lambda row: row, placement=Placement(num_gpus=1)))
    written = plan.Write((mapped,), Writer(str(tmp_path), "parquet", SaveParquet()))
    last = Planner(Execution(runs=False)).branches(written)[0].stages[-1]
    assert last.placement.num_gpus == 0
