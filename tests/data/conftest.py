"""What the tests of weft.data share."""

from __future__ import annotations

import pytest
from tests.polars_awake import wake_polars

from weft.data import small

AS_CHOSEN = ("test_datasets", "test_small_data", "test_sql", "test_random_plans", "test_random_queries")
"""Where little data may be computed in the process of the test."""


@pytest.fixture(autouse=True, scope="session")
def _polars_is_awake() -> None:
    wake_polars()


@pytest.fixture(autouse=True)
def _by_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests of tasks and blocks have is little, and is for tasks all the same."""
    if request.module.__name__.rpartition(".")[2] not in AS_CHOSEN:
        monkeypatch.setattr(small, "MOST_BYTES", 0)
