"""What a notebook shows: tables for what has rows, what to call, and lines that are drawn over in the cell."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import train, tune
from weft.terminal import status_line
from weft.util.html_table import html_table

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
class Oven:
    def bake(self, minutes: int) -> int:
        return minutes


def test_refs_and_handles_say_what_can_be_done_with_them() -> None:
    ref: Any = weft.put(1)
    assert "weft.get(ref)" in ref._repr_html_() and ref.hex() in ref._repr_html_()
    assert "handle.bake.remote(...)" in Oven.remote()._repr_html_()


def test_results_of_tuning_and_training_are_tables(tmp_path: Path) -> None:
    def measure(config: dict[str, Any]) -> dict[str, Any]:
        if config["x"] == 2:
            raise ValueError("two is bad")
        return {"loss": config["x"]}

    grid = tune.Tuner(
        measure,
        param_space={"x": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(verbose=0, storage_path=str(tmp_path)),
    ).fit()
    shown = grid._repr_html_()
    assert "<th>trial</th><th>status</th><th>x</th><th>loss</th>" in shown
    assert "2 trials, 1 failed" in shown and "two is bad" in shown and "hostname" not in shown
    assert "<td>config/x</td><td>1</td>" in grid[0]._repr_html_()
    trained = train.Result({"loss": 0.5}, None, [{"loss": 0.5}], str(tmp_path))
    assert "<td>loss</td><td>0.5</td>" in trained._repr_html_()


def test_what_is_shown_is_escaped_and_long_values_are_cut() -> None:
    made = html_table(["<a>"], [["x" * 100], [1 / 3]], "a & b")
    assert "&lt;a&gt;" in made and "a &amp; b" in made and "x" * 81 not in made and "0.33333" in made


def test_a_line_in_a_cell_is_drawn_over_and_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Cell:
        def update(self, html: str) -> None:
            drawn.append(html)

    def display(html: str, display_id: bool) -> Cell:
        drawn.append(html)
        return Cell()

    notebook = types.ModuleType("IPython")
    notebook.get_ipython = lambda: types.SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    page = types.ModuleType("IPython.display")
    page.HTML, page.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", page)
    monkeypatch.delenv(status_line.VARIABLE, raising=False)
    assert status_line.is_wanted()
    line = status_line.Line()
    line.show("1 < 2")
    line.show("done")
    line.wipe()
    assert drawn == ["<code>weft: 1 &lt; 2</code>", "<code>weft: done</code>", ""]
