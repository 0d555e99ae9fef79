"""Datasets larger than the arena: what flows is bounded, what must be gathered is spilled, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import weft
from weft import data

ARENA_BYTES = 16 * 2**20
ROWS_A_BLOCK, BLOCKS = 125_000, 40
ROWS = ROWS_A_BLOCK * BLOCKS
"""Of 16 bytes: 80 MB, five times the arena."""
KEYS = 1_000_003


@pytest.fixture(autouse=True)
def small_arena() -> Any:
    weft.init(num_cpus=2, object_store_memory=ARENA_BYTES)
    yield
    weft.shutdown()


def widened(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": batch["id"], "x": (batch["id"] * 7919 % KEYS).astype(np.float64)}


def large() -> data.Dataset:
    return data.range(ROWS, blocks=BLOCKS).map_batches(widened)


def ids_of(ds: data.Dataset) -> np.ndarray[Any, Any]:
    """Copied, since a batch is a view of a block, which stays in the arena as long as there is one."""
    return np.concatenate([batch["id"].copy() for batch in ds.iter_batches(batch_size=None)])


def test_what_flows_through_stays_within_its_share_of_the_arena() -> None:
    ds = large()
    assert len(ids_of(ds)) == ROWS
    assert ds.statistics is not None
    assert ds.statistics.most_held_bytes <= ARENA_BYTES // 2


def test_a_scan_of_five_arenas_is_right() -> None:
    assert large().filter(data.col("x") < 1000).sum("id") == sum(n for n in range(ROWS) if n * 7919 % KEYS < 1000)


def test_a_sort_of_five_arenas_is_spilled_and_right() -> None:
    last, rows = -1.0, 0
    for batch in large().sort("x").iter_batches(batch_size=None):
        assert batch["x"][0] >= last
        assert np.all(np.diff(batch["x"]) >= 0)
        last = batch["x"][-1]
        rows += len(batch["x"])
    assert rows == ROWS


def test_a_shuffle_of_five_arenas_is_spilled_and_loses_nothing() -> None:
    ids = ids_of(large().random_shuffle(seed=3))
    assert np.mean(np.diff(ids) == 1) < 0.001
    assert np.array_equal(np.sort(ids), np.arange(ROWS))


def test_groups_of_five_arenas_are_spilled_and_right() -> None:
    counts = large().groupby("x").agg(id=["count", "max"]).to_polars().sort("x")
    assert counts.height == KEYS
    assert counts["id_count"].sum() == ROWS
    assert counts["id_max"].max() == ROWS - 1


def test_a_join_of_five_arenas_with_as_many_is_spilled_and_right() -> None:
    other = data.range(ROWS, blocks=BLOCKS).map_batches(lambda batch: {"id": batch["id"], "half": batch["id"] // 2})
    rows = total = 0
    for batch in large().join(other, "id").iter_batches(batch_size=None):
        assert np.array_equal(batch["half"], batch["id"] // 2)
        rows += len(batch["id"])
        total += int(batch["id"].sum())
    assert (rows, total) == (ROWS, ROWS * (ROWS - 1) // 2)


def test_an_exchange_of_what_has_no_known_size_takes_several_passes() -> None:
    def batches() -> Iterator[pa.Table]:
        for start in range(0, ROWS, ROWS_A_BLOCK):
            yield pa.table({"id": np.arange(start, start + ROWS_A_BLOCK), "x": np.zeros(ROWS_A_BLOCK)})

    shuffled = data.from_generator(batches).random_shuffle(seed=1)
    assert np.array_equal(np.sort(ids_of(shuffled)), np.arange(ROWS))
    assert "pieces → divide at random" in shuffled.stats()


def test_equal_keys_of_more_than_a_part_end_in_one_block() -> None:
    same = data.range(ROWS // 10, blocks=10).map_batches(lambda batch: {"id": batch["id"], "k": batch["id"] * 0})
    assert same.groupby("k").agg(id="median").take_all() == [{"k": 0, "id_median": (ROWS // 10 - 1) / 2}]


def test_a_function_that_makes_much_of_a_block_gives_several_blocks() -> None:
    def multiplied(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in batch["id"]:
            yield {"id": np.full(50_000, number)}

    ds = data.range(100, blocks=2).map_batches(multiplied)
    sizes = [len(batch["id"]) for batch in ds.iter_batches(batch_size=None)]
    assert sum(sizes) == 5_000_000
    assert max(sizes) * 8 <= ARENA_BYTES // 4
    assert ds.map_batches(lambda batch: {"n": batch["id"][:1]}).count() >= 10


def test_what_a_task_made_too_large_is_written_as_several_files(tmp_path: Path) -> None:
    def multiplied(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": np.repeat(batch["id"], 20_000)}

    files = data.range(100, blocks=2).map_batches(multiplied).write_parquet(str(tmp_path / "out"))
    assert len(set(files)) == len(files) > 4
    assert (
        data.read_parquet(str(tmp_path / "out")).groupby("id").count().to_pandas()["count"].tolist() == [20_000] * 100
    )


def test_blocks_that_were_cut_go_on_to_actors_one_by_one() -> None:
    class Half:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            assert batch["id"].nbytes <= ARENA_BYTES // 4
            return {"id": batch["id"][::2]}

    wide = data.range(40, blocks=2).map_batches(lambda batch: {"id": np.repeat(batch["id"], 50_000)})
    assert wide.map_batches(Half, concurrency=1).count() == 1_000_000


def test_a_result_larger_than_the_arena_can_be_taken_whole() -> None:
    assert large().to_arrow().num_rows == ROWS


def test_a_table_of_several_arenas_is_cut_when_it_is_put() -> None:
    table = pa.table({"id": np.arange(ROWS)})
    assert data.from_arrow(table).filter(data.col("id") % 2 == 0).count() == ROWS // 2
