"""The scoreboard: which figure counts, what a loss looks like, and that the page is of the figures that are there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def scoreboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    yield importlib.import_module("scoreboard")
    del sys.modules["scoreboard"]


def test_the_better_figure_of_several_rounds_counts(scoreboard: ModuleType) -> None:
    rate, seconds = scoreboard.Case("rate", "a second"), scoreboard.Case("time", "s", less_is_better=True)
    for value in (1.0, 3.0, 2.0):
        rate.add("Weft", lambda value=value: value)
        seconds.add("Weft", lambda value=value: value)
    assert (rate.figures, seconds.figures) == ({"Weft": 3.0}, {"Weft": 1.0})


def test_more_than_one_is_a_loss_for_rates_and_for_times(scoreboard: ModuleType) -> None:
    rate = scoreboard.Case("rate", "a second", figures={"Weft": 100.0, "other": 200.0})
    seconds = scoreboard.Case("time", "s", less_is_better=True, figures={"Weft": 2.0, "other": 1.0})
    assert rate.speed("other") == seconds.speed("other") == 2.0


def test_what_failed_is_on_the_page_without_paths(
    scoreboard: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoreboard, "IMAGES", tmp_path)
    case = scoreboard.Case("tasks", "tasks/s", figures={"Weft": 10.0, "fast": 30.0})

    def fail() -> float:
        raise subprocess.CalledProcessError(3, [sys.executable])

    case.add("slow", fail)
    found = {
        "cases": [vars(case)],
        "short": True,
        "rounds": 1,
        "date": "today",
        "machine": "a machine",
        "load": [1, 2],
        "seconds": 3,
    }
    page = scoreboard.section_page("engine", found)
    assert "| tasks | 10 tasks/s | fast 30; slow: not measured (its process ended with status 3) | **3.00** |" in page
    assert "load average 1 before and 2 after" in page
    assert (tmp_path / "engine.svg").read_text().count("fast: tasks") == 1


def test_the_page_in_the_docs_is_made_of_the_figures_that_are_there(
    scoreboard: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = (scoreboard.DOCS / "scoreboard.md").read_text()
    monkeypatch.setattr(scoreboard, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(scoreboard, "DOCS", tmp_path)
    assert scoreboard.write_page().read_text() == kept


@pytest.mark.filterwarnings("ignore")
def test_a_search_is_compared_with_optunas(scoreboard: ModuleType) -> None:
    """The cases are those of another benchmark, so this notices when that one changes."""
    cases = list(scoreboard.tune_quality(seeds=1))
    assert [sorted(case.figures) for case in cases] == [["Optuna", "Weft"]] * 2
    assert not any(case.failed for case in cases)
