"""Frames that the tests of deferred frames share, and how two results are compared: to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas

ROWS = 1_000


def columns(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """What a constructor takes: ints, floats with holes, bools, texts with holes, times, categories, nullable ints."""
    random = np.random.default_rng(seed)
    price = random.normal(size=rows) * 10.0 ** random.integers(-6, 6, rows)
    price[::17] = np.nan
    word = random.choice(["warp", "weft", "loom"], rows).astype(object)
    word[: rows // 4 : 23] = None
    nullable = pandas.array(random.integers(0, 9, rows), dtype="Int64")
    nullable[::29] = pandas.NA
    return {
        "key": random.integers(0, 50, rows),
        "number": np.arange(rows),
        "price": price,
        "flag": random.integers(0, 2, rows).astype(bool),
        "word": word,
        "day": pandas.Timestamp("2026-01-01") + pandas.to_timedelta(random.integers(0, 90, rows), unit="D"),
        "zoned": pandas.date_range("2026-01-01", periods=rows, freq="h", tz="Europe/Paris"),
        "kind": pandas.Categorical(random.choice(["a", "b"], rows)),
        "whole": nullable,
    }


def assert_same(ours: Any, theirs: Any) -> None:
    assert isinstance(ours, type(theirs))
    if isinstance(theirs, pandas.DataFrame):
        pandas.testing.assert_frame_equal(ours, theirs, check_exact=True, check_index_type="exact")
    elif isinstance(theirs, pandas.Series):
        pandas.testing.assert_series_equal(ours, theirs, check_exact=True, check_index_type="exact")
    elif isinstance(theirs, pandas.Index):
        pandas.testing.assert_index_equal(ours, theirs, exact=True)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs or (ours != ours and theirs != theirs)
