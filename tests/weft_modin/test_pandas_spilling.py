"""A frame three times as large as object memory is sorted, grouped and joined by spilling."""

from __future__ import annotations

from collections.abc import Iterator

import modin.config
import numpy as np
import pandas
import pytest
from frames import plain

import weft
import weft.pandas.modin as pd

ARENA_BYTES = 64 * 2**20
PIECES, ROWS = 16, 200_000


@pytest.fixture
def _small_arena() -> Iterator[None]:
    """What one task reads has to fit, so a frame is cut into more parts than usual."""
    weft.init(num_cpus=2, object_store_memory=ARENA_BYTES)
    with modin.config.context(NPartitions=32):
        yield
    weft.shutdown()


def piece(number: int) -> pandas.DataFrame:
    random = np.random.default_rng(number)
    return pandas.DataFrame({"x": random.random(ROWS), **{name: random.integers(0, 1000, ROWS) for name in "abcdefg"}})


@pytest.mark.slow
@pytest.mark.usefixtures("_small_arena")
def test_a_frame_three_times_the_arena_is_grouped_and_joined() -> None:
    from modin.pandas.io import from_map

    assert PIECES * ROWS * 8 * 8 >= 3 * ARENA_BYTES
    frame = from_map(piece, range(PIECES))
    assert len(frame) == PIECES * ROWS
    total = sum(int(piece(number).b.sum()) for number in range(PIECES))
    assert int(frame.groupby("a").b.sum().sum()) == total
    joined = frame.merge(pd.DataFrame({"a": range(1000), "twice": range(0, 2000, 2)}), on="a")
    assert int(joined.twice.sum()) == 2 * int(frame.a.sum())


@pytest.mark.slow
@pytest.mark.usefixtures("_small_arena")
def test_a_frame_three_times_the_arena_is_sorted() -> None:
    from modin.pandas.io import from_map

    frame = from_map(piece, range(PIECES))
    ordered = frame.sort_values("x")
    places = [0, 1, ROWS, PIECES * ROWS // 2, PIECES * ROWS - 1]
    expected = np.sort(np.concatenate([piece(number).x.to_numpy() for number in range(PIECES)]))
    assert plain(ordered.x.iloc[places]).tolist() == expected[places].tolist()
    assert int(ordered.b.sum()) == int(frame.b.sum())
