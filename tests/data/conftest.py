"""What the tests of weft.data share."""

from __future__ import annotations

import io

import polars as pl
import pytest


@pytest.fixture(autouse=True, scope="session")
def _polars_is_awake() -> None:
    """Polars opens descriptors at its first query that are its own and stay: before the checks for leaks begin."""
    file = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_parquet(file)
    file.seek(0)
    assert pl.scan_parquet(file).collect(engine="streaming").height == 1
    assert pl.scan_csv(io.BytesIO(b"a\n1\n")).collect(engine="streaming").height == 1
    assert pl.read_ndjson(io.BytesIO(b'{"a": 1}')).height == 1
