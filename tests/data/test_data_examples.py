"""The examples of weft.data run."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.usefixtures("shared_weft_session")
def test_the_quickstart_groups_its_trips() -> None:
    rows = runpy.run_path(str(EXAMPLES / "data_quickstart.py"))["main"]()
    assert [row["city"] for row in rows] == [0, 1, 2, 3, 4]
    assert all(row["fare_max"] <= 99.9 for row in rows)
