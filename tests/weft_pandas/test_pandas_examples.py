"""The examples of weft.pandas run."""

from __future__ import annotations

import doctest
import importlib
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.usefixtures("weft_session")
@pytest.mark.filterwarnings("ignore:Distributing")
def test_the_quickstart_groups_its_trips() -> None:
    by_city = runpy.run_path(str(EXAMPLES / "pandas_quickstart.py"))["main"](6_000)
    assert by_city.index.tolist() == [0, 1, 2, 3, 4]
    assert (by_city["max"] > by_city["mean"]).all()


@pytest.mark.usefixtures("weft_session")
@pytest.mark.filterwarnings("ignore:.*efaulting to pandas")
@pytest.mark.parametrize("name", ["weft.pandas", "weft.pandas.exchange", "weft.pandas.journal", "weft.pandas.small"])
def test_what_the_documentation_shows_is_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
