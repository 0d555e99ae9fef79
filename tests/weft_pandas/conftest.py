"""Everything that can be deferred is, on three parts in the test's own process, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.polars_awake import wake_polars

import weft.pandas as pd
from weft.pandas.moves import Moves, moves
from weft.pandas.parts import in_this_process


@pytest.fixture(autouse=True, scope="session")
def _polars_is_awake() -> None:
    """Little data of a dataset that a frame is made of is computed in this process."""
    wake_polars()


@pytest.fixture(autouse=True)
def _all_deferred() -> Iterator[None]:
    pd.set_rows(0)
    moves.__dict__.update(Moves().__dict__)
    with in_this_process(3):
        yield
    pd.set_rows(None)
