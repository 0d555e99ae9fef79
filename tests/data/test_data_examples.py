"""The examples of weft.data run."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


pytestmark = pytest.mark.usefixtures("shared_weft_session")


def test_the_quickstart_groups_its_trips() -> None:
    rows = runpy.run_path(str(EXAMPLES / "data_quickstart.py"))["main"]()
    assert [row["city"] for row in rows] == [0, 1, 2, 3, 4]
    assert all(row["fare_max"] <= 99.9 for row in rows)


def test_the_online_learning_loop_learns_and_serves_what_it_learned() -> None:
    last, version, fan, other = runpy.run_path(str(EXAMPLES / "data_online_learning.py"))["main"](count=8_000)
    assert last.events == 8_000
    assert 1 <= version <= last.number
    assert fan > 0.5 > other
