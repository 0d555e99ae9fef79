"""What the libraries share: a pace, boards that never disturb a run, a line at the terminal, names listed once."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import pytest

import weft
from weft._lazy import homes_of
from weft.library import board as boards
from weft.library.board import Board
from weft.library.checks import above, at_least, at_most
from weft.library.pace import Pace
from weft.library.progress import ProgressLine

PACKAGES = ("tune", "tune.schedulers", "tune.search", "rl", "serve", "train", "data", "util")


def test_a_pace_that_begins_later_is_not_due_at_once_and_showing_begins_it_anew() -> None:
    assert not Pace(0.0, after_s=3600).is_due()
    pace = Pace(3600)
    pace.restart()
    assert not pace.is_due()


def test_a_board_without_a_session_starts_none() -> None:
    assert Board("tune", "nobody sees it").show({"trials": []})
    assert not weft.is_initialized()


@pytest.mark.usefixtures("shared_weft_session")
def test_a_board_that_does_not_fit_says_so_and_one_of_a_busy_node_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board("tune", "large")
    assert not board.show({"text": "x" * (5 << 20)})

    def busy(page: str, name: str, board: object) -> None:
        raise weft.exceptions.RpcError("the node is busy")

    monkeypatch.setattr(boards, "publish", busy)
    assert board.show({})


def test_a_progress_line_leaves_what_was_told_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PROGRESS", "1")
    out = io.StringIO()
    line = ProgressLine("run", out)
    for report in range(1000):
        line.tell(f"report {report}")
    line.close()
    assert "run: report 999, " in out.getvalue() and out.getvalue().count("\r") < 1000


@pytest.mark.parametrize("name", PACKAGES)
def test_every_line_of_a_stub_names_something_that_is_there(name: str) -> None:
    package = importlib.import_module(f"weft.{name}")
    stub = Path(package.__path__[0], "__init__.pyi").read_text().splitlines()
    imports = [line for line in stub if "import" in line]
    assert len(homes_of(stub)) == len(imports)
    assert {*package.__all__} <= {*dir(package)}
    for listed in homes_of(stub):
        assert getattr(package, listed) is not None


@pytest.mark.parametrize("check", [at_least, at_most, above])
@pytest.mark.parametrize("value", ["2", None])
def test_a_text_in_the_place_of_a_number_is_told_with_the_settings_name(check: Any, value: object) -> None:
    with pytest.raises(ValueError, match=f"workers must be a number, but got {value!r}"):
        check("workers", value, 1)
