"""The examples in docstrings that begin a session of their own."""

from __future__ import annotations

import pytest
from test_docstrings import SESSIONS, run_examples

import weft


@pytest.mark.parametrize("name", sorted(SESSIONS))
def test_examples_that_begin_a_session_give_what_they_show(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        run_examples(name, capsys)
    finally:
        weft.shutdown()
