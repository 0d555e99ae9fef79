"""The examples of weft.pandas.modin run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.usefixtures("weft_session")
@pytest.mark.filterwarnings("ignore:.*efaulting to pandas")
@pytest.mark.parametrize("module", ["", ".exchange", ".journal", ".small"])
def test_what_the_documentation_shows_is_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"weft.pandas.modin{module}")).failed == 0
