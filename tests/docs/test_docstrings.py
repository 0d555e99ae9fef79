"""The examples in the docstrings of the core run and give what they show; those of weft.pandas have an own test."""

from __future__ import annotations

import doctest
import importlib

import pytest

import weft

CORE = "actor_class actor_handle api checkpoints cluster explain generator remote_function timeline"


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize("name", CORE.split())
def test_the_examples_of_the_core_give_what_they_show(name: str) -> None:
    module = importlib.import_module(f"weft.engine.process.{name}")
    found = doctest.testmod(module, extraglobs={"weft": weft}, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
