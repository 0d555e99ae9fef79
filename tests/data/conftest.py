"""What the tests of weft.data share."""

from __future__ import annotations

import io

import polars as pl
import pytest

from weft.data import small

AS_CHOSEN = ("test_datasets", "test_small_data", "test_sql", "test_random_plans", "test_random_queries")
"""Where little data may be computed in the process of the test."""


@pytest.fixture(autouse=True, scope="session")
def _polars_is_awake() -> None:
    """Polars opens descriptors at its first query that are its own and stay: before the checks for leaks begin."""
    file = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_parquet(file)
    file.seek(0)
    assert pl.scan_parquet(file).collect(engine="streaming").height == 1
    assert pl.scan_csv(io.BytesIO(b"a\n1\n")).collect(engine="streaming").height == 1
    assert pl.read_ndjson(io.BytesIO(b'{"a": 1}')).height == 1


@pytest.fixture(autouse=True)
def _by_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests of tasks and blocks have is little, and is for tasks all the same."""
    if request.module.__name__.rpartition(".")[2] not in AS_CHOSEN:
        monkeypatch.setattr(small, "MOST_BYTES", 0)
