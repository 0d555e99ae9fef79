"""Frames that the tests of weft.pandas.modin share, and how two results are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas

ROWS = 4_000


def made(rows: int = ROWS, seed: int = 0) -> pandas.DataFrame:
    """Ints, floats with holes, strings, times and categories."""
    random = np.random.default_rng(seed)
    price = random.normal(size=rows)
    price[::17] = np.nan
    return pandas.DataFrame(
        {
            "key": random.integers(0, 50, rows),
            "price": price,
            "word": random.choice(["warp", "weft", "loom"], rows),
            "day": pandas.Timestamp("2026-01-01") + pandas.to_timedelta(random.integers(0, 90, rows), unit="D"),
            "kind": pandas.Categorical(random.choice(["a", "b"], rows)),
        }
    )


def plain(value: Any) -> Any:
    """The same in pandas."""
    return value.modin.to_pandas() if hasattr(value, "modin") else value


def assert_same(ours: Any, theirs: Any) -> None:
    ours = plain(ours)
    if isinstance(theirs, pandas.DataFrame):
        pandas.testing.assert_frame_equal(ours, theirs, check_freq=False)
    elif isinstance(theirs, pandas.Series):
        pandas.testing.assert_series_equal(ours, theirs, check_freq=False)
    elif isinstance(theirs, pandas.Index):
        pandas.testing.assert_index_equal(ours, theirs)
    else:
        assert ours == theirs or (pandas.isna(ours) and pandas.isna(theirs))
