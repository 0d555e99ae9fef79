"""Polars opens descriptors at its first queries that are its own and stay: before the checks for leaks begin."""

from __future__ import annotations

import io

import polars as pl


def wake_polars() -> None:
    file = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_parquet(file)
    file.seek(0)
    assert pl.scan_parquet(file).collect(engine="streaming").height == 1
    assert pl.scan_csv(io.BytesIO(b"a\n1\n")).collect(engine="streaming").height == 1
    assert pl.read_ndjson(io.BytesIO(b'{"a": 1}')).height == 1
