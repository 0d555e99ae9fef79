"""Datasets larger than the arena: what flows is bounded, what must be gathered is spilled, and nothing fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import data

ARENA_BYTES = 32 * 2**20
ROWS_A_BLOCK, BLOCKS = 250_000, 40
"""Of 16 bytes: 160 MB, five times the arena."""


@pytest.fixture(autouse=True)
def small_arena() -> Any:
    weft.init(num_cpus=2, object_store_memory=ARENA_BYTES)
    yield
    weft.shutdown()


def widened(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": batch["id"], "x": (batch["id"] * 7919 % 1_000_003).astype(np.float64)}


def large() -> data.Dataset:
    return data.range(ROWS_A_BLOCK * BLOCKS, blocks=BLOCKS).map_batches(widened)


def test_what_flows_through_stays_within_its_share_of_the_arena() -> None:
    ds = large()
    rows = 0
    for batch in ds.iter_batches(batch_size=None):
        rows += len(batch["id"])
    assert rows == ROWS_A_BLOCK * BLOCKS
    assert ds.statistics is not None
    assert ds.statistics.most_held_bytes <= ARENA_BYTES // 2


def test_a_sort_of_five_arenas_is_spilled_and_right(tmp_path: Path) -> None:
    last, rows = -1.0, 0
    for batch in large().sort("x").iter_batches(batch_size=None):
        assert batch["x"][0] >= last
        assert np.all(np.diff(batch["x"]) >= 0)
        last = batch["x"][-1]
        rows += len(batch["x"])
    assert rows == ROWS_A_BLOCK * BLOCKS
