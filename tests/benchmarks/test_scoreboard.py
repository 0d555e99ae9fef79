"""The scoreboard: what is measured next, which figure counts, what a loss looks like, and where the page comes from."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ("scoreboard", "scoreboard_cases", "scoreboard_page")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        del sys.modules[name]


@pytest.fixture
def scoreboard(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["scoreboard"]


@pytest.fixture
def page(modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(modules["scoreboard_page"], "IMAGES", tmp_path / "images")
    return modules["scoreboard_page"]


def measured(scoreboard: ModuleType, contender: str, number: int, **rest: Any) -> Any:
    return scoreboard.Measurement("serve", contender, number, rest.pop("seconds", 10.0), 0.5, **rest)


def due(run: Any, rounds: int) -> list[tuple[str, int]]:
    return [(one.name, number) for _, one, number in run.due(["serve"], rounds)]


def test_every_peer_is_a_contender(modules: dict[str, ModuleType]) -> None:
    sections = modules["scoreboard_cases"].SECTIONS.values()
    assert {one.name for section in sections for one in section.contenders} >= {
        *("Ray", "Ray Tune", "Ray Serve", "Ray Data", "RLlib", "Dask", "ProcessPoolExecutor", "joblib", "loky"),
        *("MPI for Python", "Stable-Baselines3", "Optuna", "Modin on Ray", "bare uvicorn", "gloo"),
    }
    assert all(section.contenders[0].name == "Weft" for section in sections)


def test_an_interrupted_run_goes_on_with_what_is_missing(
    scoreboard: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoreboard, "FOLDER", tmp_path)
    interrupted = scoreboard.Run(short=False, pythons={}, budget_s=1000.0)
    interrupted.done.append(measured(scoreboard, "Weft", 0, figures={"1 connection": 5.0}))
    scoreboard.keep(interrupted)
    again = scoreboard.Run(short=False, pythons={}, budget_s=1000.0)
    scoreboard.resume(again)
    assert again.done == interrupted.done
    assert due(again, rounds=1) == [("bare uvicorn", 0), ("Ray Serve", 0)]


def test_a_run_of_small_sizes_does_not_go_on_with_one_of_full_sizes(
    scoreboard: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoreboard, "FOLDER", tmp_path)
    full, short = (scoreboard.Run(short=short, pythons={}, budget_s=1000.0) for short in (False, True))
    full.done.append(measured(scoreboard, "Weft", 0))
    scoreboard.keep(full)
    scoreboard.resume(short)
    assert short.done == []


def test_a_further_round_is_made_only_when_it_ends_in_time(scoreboard: ModuleType) -> None:
    run = scoreboard.Run(short=False, pythons={}, budget_s=15.0)
    assert [number for _, number in due(run, rounds=1)] == [0, 0, 0]
    run.done = [
        measured(scoreboard, name, 0, seconds=seconds)
        for name, seconds in (("Weft", 1.0), ("bare uvicorn", 1.0), ("Ray Serve", 10.0))
    ]
    assert due(run, rounds=2) == [("Weft", 1), ("bare uvicorn", 1)]
    run.budget_s = 30.0
    assert due(run, rounds=2) == [("Weft", 1), ("bare uvicorn", 1), ("Ray Serve", 1)]


def test_a_contender_that_failed_has_no_more_rounds(scoreboard: ModuleType) -> None:
    run = scoreboard.Run(short=False, pythons={}, budget_s=1000.0)
    run.done.append(measured(scoreboard, "Ray Serve", 0, failed="failed"))
    assert "Ray Serve" not in [name for name, _ in due(run, rounds=3)]


def test_a_contender_that_is_not_installed_says_so(scoreboard: ModuleType, modules: dict[str, ModuleType]) -> None:
    run = scoreboard.Run(short=True, pythons={sys.executable: {}}, budget_s=1.0)
    made = run.measure("pools", modules["scoreboard_cases"].contender("pools", "Dask"), 0)
    assert made.failed == "not installed (dask, distributed)"
    assert made.figures == {}


def test_a_contender_that_hangs_is_ended_with_all_that_it_started(scoreboard: ModuleType, tmp_path: Path) -> None:
    """Its child is in a session of its own, as those of some benchmarks are."""
    sleeper = "import time; time.sleep(600)"
    program = f"""
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {sleeper!r}], start_new_session=True)
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))
child.wait()
"""
    with pytest.raises(subprocess.TimeoutExpired):
        scoreboard.figures_of([sys.executable, "-c", program], limit_s=3.0)
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_figures_are_read_from_among_what_else_a_process_prints(scoreboard: ModuleType) -> None:
    program = "print('hello'); print('figures: {\"x\": 2.5}'); print('bye')"
    assert scoreboard.figures_of([sys.executable, "-c", program]) == {"x": 2.5}
    with pytest.raises(ValueError, match="no figures"):
        scoreboard.figures_of([sys.executable, "-c", "print('hello')"])


def found(*measurements: tuple[str, dict[str, float], str]) -> dict[str, Any]:
    return {
        "measurements": [
            {
                "contender": name,
                "round": 0,
                "seconds": 2.0,
                "load": 0.5,
                "version": "",
                "figures": figures,
                "failed": why,
            }
            for name, figures, why in measurements
        ],
        "short": False,
        "date": "today",
        "machine": "a machine",
    }


def test_the_median_of_the_rounds_counts(page: ModuleType) -> None:
    rounds = found(*(("Weft", {"1 connection": value}, "") for value in (1.0, 3.0, 2.5)))
    assert page.medians(page.SECTIONS["serve"], rounds)["Weft"] == {"1 connection": 2.5}


def test_more_than_one_is_a_loss_for_rates_and_for_times(page: ModuleType) -> None:
    rate, seconds = page.Case("rate", "a second"), page.Case("time", "s", less_is_better=True)
    assert page.times_as_good(rate, 100.0, 200.0) == page.times_as_good(seconds, 2.0, 1.0) == 2.0


def test_short_times_are_shown_in_small_units(page: ModuleType) -> None:
    seconds = page.Case("time", "s", less_is_better=True)
    assert [page.shown(seconds, value) for value in (2.0, 0.0345, 1.9e-05)] == ["2 s", "34.5 ms", "19 µs"]


def test_losses_and_what_was_not_measured_are_on_the_page(page: ModuleType, tmp_path: Path) -> None:
    section = found(
        ("Weft", {"1 connection": 10.0, "32 connections": 10.0}, ""),
        ("bare uvicorn", {"1 connection": 30.0, "32 connections": 5.0}, ""),
        ("Ray Serve", {}, "not installed (ray)"),
    )
    text = page.section_page("serve", section)
    assert "| 1 connection | 10 requests/s | **30 requests/s (3)** | not installed (ray) |" in text
    assert "| 32 connections | 10 requests/s | 5 requests/s (0.5) | not installed (ray) |" in text
    assert "load average 0.5 to 0.5; 6 s" in text
    drawn = (tmp_path / "images" / "serve.svg").read_text()
    assert drawn.count("not installed (ray)") == 2
    assert "- weft.serve: HTTP, 1 connection: bare uvicorn 3 times as good" in page.losses({"serve": section})


def test_the_page_in_the_docs_is_made_of_the_figures_that_are_there(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = (page.DOCS / "scoreboard.md").read_text()
    monkeypatch.setattr(page, "DOCS", tmp_path)
    assert page.write_page().read_text() == kept


@pytest.mark.filterwarnings("ignore")
def test_a_search_is_compared_with_optunas(modules: dict[str, ModuleType]) -> None:
    """The cases are those of another benchmark, so this notices when that one changes."""
    cases = modules["scoreboard_cases"]
    for engine in ("weft", "optuna"):
        assert cases.answers(engine, seeds=1).keys() == {cases.CROSSING.name, cases.HARTMANN.name}
