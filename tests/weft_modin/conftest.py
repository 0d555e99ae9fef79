"""What the tests of weft.pandas.modin share: frames that are large enough to be cut, on an engine with two CPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.polars_awake import wake_polars


@pytest.fixture(autouse=True, scope="session")
def _polars_is_awake() -> None:
    """Little data of a dataset that a frame is made of is computed in this process."""
    wake_polars()


@pytest.fixture(autouse=True)
def _several_blocks() -> Iterator[None]:
    """So that frames of a few thousand rows and five columns are cut both ways."""
    import modin.config

    import weft.pandas.modin as pd

    pd.set_small_rows(None)
    with modin.config.context(NPartitions=3, MinRowPartitionSize=16, MinColumnPartitionSize=2):
        yield
