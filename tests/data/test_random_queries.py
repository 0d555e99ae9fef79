"""Random queries give what DuckDB gives. A longer run: `make plans`."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb")
import random_queries

SEEDS = 30


@pytest.mark.usefixtures("shared_weft_session")
def test_random_queries_give_what_duckdb_gives() -> None:
    for seed in range(SEEDS):
        random_queries.check(seed)
