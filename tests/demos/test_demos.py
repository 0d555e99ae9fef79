"""Every demo runs, in short form, and says what it should."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from weft import demos
from weft.cli.main import main
from weft.demos import chart

SAID = {
    "engine": ["0 + 1 + … + 127 = 8128", "attempt 2 in process"],
    "tune": ["trials ended early", "the best: rate"],
    "rl": ["after 3,072 steps", "one game:"],
    "serve": ["all 200 were answered", "the answer is 20.0 now"],
    "train": ["learned, of 0 to 9: 0.00, 1.00, 2.00, 3.00, 4.00, 5.00, 6.00, 7.00, 8.00, 9.00"],
    "data": ["city 0.00  fare_mean 75.00"],
    "pandas": ["Essen"],
}


def run(*arguments: str) -> str:
    """What the command prints, as a process of its own: some of the libraries keep threads and descriptors for good."""
    command = [sys.executable, "-m", "weft.cli", "demo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SAID)
def test_each_library_has_a_demo_that_runs(name: str) -> None:
    printed = run(name, "--short")
    assert [said for said in SAID[name] if said not in printed] == []
    assert "The dashboard is open all the while: http://" in printed


def test_the_loop_simulates_trains_serves_and_survives_a_kill(tmp_path: Path) -> None:
    printed = run("--short", "--plot", str(tmp_path / "plot.svg"))
    assert "killed simulation actor 0" in printed
    assert "workers replaced after a death: 1" in printed
    assert " live steps were learned from" in printed
    assert "    0 live episodes" not in printed
    assert "live, against the served policy" in (tmp_path / "plot.svg").read_text()


def test_the_list_names_a_demo_for_each_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("loop", "engine", "tune", "rl", "serve", "train", "data", "pandas"))


def test_a_demo_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = dataclasses.replace(demos.BY_NAME["rl"], needs=("gymnasium", "no_such_package"))
    monkeypatch.setitem(demos.BY_NAME, "rl", lacking)
    assert main(["demo", "rl"]) == 1
    assert "needs no_such_package, not installed here: pip install 'weft[rl]'" in capsys.readouterr().err


def test_charts_have_a_line_for_each_series_and_escape_names() -> None:
    drawn = chart.lines({"a < b": [(1, 10), (100, 1e6)], "c": [(1, 1)]}, "title", "x", "y", log_x=True, log_y=True)
    assert drawn.count("<polyline") == 2
    assert "a &lt; b" in drawn
    assert chart.bars({"Weft": 3.0, "other": 0.0}, "title", "x", log=True).count("<rect") == 3
