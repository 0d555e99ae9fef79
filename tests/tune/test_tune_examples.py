"""The examples run, in short form; and the answers are good, in short form."""

from __future__ import annotations

import runpy
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / path))


def test_the_quickstart_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, shared_weft_session: Any
) -> None:
    monkeypatch.setenv("WEFT_TUNE_RESULTS", str(tmp_path))
    load("examples/tune_quickstart.py")["main"]()
    assert "12 trials; the best has alpha=0.6" in capsys.readouterr().out


def test_a_jax_network_is_tuned(tmp_path: Path, shared_weft_session: Any) -> None:
    grid = load("examples/tune_jax.py")["main"](num_samples=4, epochs=4, storage_path=str(tmp_path))
    assert grid.num_errors == 0
    assert grid.get_best_result().metrics["accuracy"] > 0.8


def test_an_algorithm_of_weft_rl_is_tuned_by_name(tmp_path: Path, shared_weft_session: Any) -> None:
    trials = load("examples/tune_rl.py")["main"](iterations=2, storage_path=str(tmp_path))
    assert [trial.status for trial in trials] == ["TERMINATED", "TERMINATED"]
    assert all(trial.last_result["episode_reward_mean"] > 5 for trial in trials)


def test_pbts_toy_problem_reproduces_its_figure() -> None:
    module = load("benchmarks/tune_toy.py")
    found = {
        kind: statistics.median(module["toy"](kind, seed).best_value for seed in range(5)) for kind in module["KINDS"]
    }
    assert found["Grid search"] == found["Exploit only"] == pytest.approx(0.39, abs=0.01)
    assert found["Grid search"] < found["Explore only"] < found["PBT"]
    assert found["PBT"] > 1.15


def test_the_figure_of_pbts_toy_problem_is_drawn(tmp_path: Path) -> None:
    """In another process, since matplotlib keeps its fonts open."""
    path = tmp_path / "figure.svg"
    subprocess.run([sys.executable, ROOT / "benchmarks/tune_quality.py", "--figure", path], check=True, timeout=280)
    assert "<svg" in path.read_text()


@pytest.mark.filterwarnings("ignore")
def test_early_stopping_is_no_worse_than_optunas_at_the_same_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    quality = load("benchmarks/tune_quality.py")
    ours, theirs, _ = quality["contenders"]()["ASHA"]
    for side in ("Crossing", "Hartmann"):
        medians = [
            statistics.median(run(quality[side], seed, 800).at(800) for seed in range(7)) for run in (ours, theirs)
        ]
        assert medians[0] <= medians[1] + 0.01
