"""The scripts that measure the paper's figures again: their parts that need no cluster, and their page."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

PAPER = Path(__file__).resolve().parents[2] / "benchmarks" / "paper"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules by name; they import each other, and other benchmarks, by their bare names."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(PAPER), str(PAPER.parent), *sys.path])
    names = "reproduction page flushing simulation evolution chain fault_tasks".split()
    yield {name: importlib.import_module(name) for name in names}
    for name in set(sys.modules) - before:
        if str(PAPER.parent) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_page_has_a_section_and_drawings_for_every_script(scripts: dict[str, ModuleType]) -> None:
    written = {path.stem for path in PAPER.glob("*.py")} - {"reproduction", "page"}
    assert written == set(scripts["page"].ORDER)
    page = scripts["page"].PAGE.read_text()
    for name in written:
        found = json.loads((PAPER / "results" / f"{name}.json").read_text())
        assert f"## {found['title']} ({found['where']})" in page
        assert found["drawings"]
        for file in found["drawings"]:
            assert (scripts["reproduction"].IMAGES / file).exists()
            assert f"(images/paper/{file})" in page


def test_the_page_in_the_docs_is_made_of_the_results_that_are_there(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = scripts["page"].PAGE.read_text()
    monkeypatch.setattr(scripts["page"], "PAGE", tmp_path / "paper.md")
    assert scripts["page"].write_page().read_text() == kept


def test_a_task_that_runs_a_second_time_counts_as_run_again(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("102.5 0 1\n101.0 0 1\n101.2 1 1\n")
    all_runs, again = scripts["fault_tasks"].by_second(log, began=100.0)
    assert (all_runs, again) == ({1: 2, 2: 1}, {1: 0, 2: 1})


def test_memory_is_told_from_a_tenth_of_the_run_on(scripts: dict[str, ModuleType]) -> None:
    found = [(tasks / 10, 20.0 + (tasks == 7)) for tasks in range(20)]
    assert scripts["flushing"].told(found) == ("20.0 MiB after 0.2 million tasks, 20.0 after 1.9; 21.0 at most")


def test_episodes_of_a_plan_are_as_many_as_three_rounds_need(scripts: dict[str, ModuleType]) -> None:
    plan = scripts["simulation"].lengths(4, 100, seed=1)
    assert len(plan) == 12
    assert all(100 <= steps <= 1000 for steps in plan)


def test_evolution_balances_the_pole_better_than_no_policy(scripts: dict[str, ModuleType]) -> None:
    evolution = scripts["evolution"]
    weights = np.zeros(4)
    first = evolution.episode(weights, 0)[0]
    for generation in range(4):
        weights = evolution.improved(
            weights, evolution.evaluate(weights, list(range(generation * 8, generation * 8 + 8)))
        )
    assert evolution.episode(weights, 0)[0] > first


def test_the_slowest_call_of_each_moment_is_kept(scripts: dict[str, ModuleType]) -> None:
    assert scripts["chain"].worst([(0.0, 0.001), (0.1, 0.5), (10.0, 0.002)], bins=2) == [(0.0, 500.0), (10.0, 2.0)]
