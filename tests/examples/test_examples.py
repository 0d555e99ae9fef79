"""The examples run in short form, give right answers, and stay short enough to be read at once.

Those of the libraries are run by the libraries' own tests.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALL = sorted(path.name for path in EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "notebook.ipynb"


def main_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / name))["main"]


@pytest.mark.parametrize("name", ALL)
def test_an_example_is_under_a_hundred_lines_and_says_what_it_shows(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) < 100
    assert ast.get_docstring(ast.parse(text))


def test_every_example_is_in_the_table() -> None:
    table = (EXAMPLES / "README.md").read_text()
    assert [name for name in [*ALL, NOTEBOOK.name] if f"({name})" not in table] == []


def test_the_cells_of_the_notebook_give_what_it_shows() -> None:
    async def run_cells() -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                shown = [output["data"]["text/plain"] for output in cell["outputs"] if "data" in output]
                found = await run_cell("".join(cell["source"]), names)
                assert shown == ([] if found is None else [[repr(found)]]), cell["source"]

    try:
        asyncio.run(run_cells())
    finally:
        weft.shutdown()


async def run_cell(source: str, names: dict[str, Any]) -> Any:
    """The value of its last line where that is an expression, as a notebook shows it; it may await."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    value = None
    for part in (tree, last and ast.Expression(last.value)):
        if part is not None:
            mode = "eval" if isinstance(part, ast.Expression) else "exec"
            value = eval(compile(part, NOTEBOOK.name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.iscoroutine(value):
                value = await value
    return value


@pytest.mark.usefixtures("shared_weft_session")
class TestOnOneMachine:
    def test_streams_of_words_are_counted(self) -> None:
        totals = main_of("streaming_map_reduce.py")(lines=40)
        assert totals.most_common(1)[0][0] == "the"

    def test_the_simulated_price_is_the_formulas(self) -> None:
        module = runpy.run_path(str(EXAMPLES / "monte_carlo.py"))
        price, error = module["main"](wanted_error=0.03, paths_a_task=5_000)
        assert error < 0.03
        assert abs(price - module["formula"]()) < 5 * error

    def test_halving_finds_a_setting_that_tells_the_rings_apart(self) -> None:
        accuracy, config = main_of("hyperparameter_search.py")(settings=8, epochs=4)
        assert accuracy > 0.9
        assert config["rate"] > 0.01

    def test_the_crawler_finds_every_page_and_every_dead_link(self) -> None:
        status = main_of("web_crawler.py")()
        assert sorted(status.values()) == [200] * 200 + [404] * 4

    def test_every_input_gets_a_class(self) -> None:
        assert main_of("batch_inference.py")(batches=5, size=64).sum() == 320

    def test_rooms_that_are_killed_lose_no_coin(self) -> None:
        standings = main_of("game_server.py")(rooms=2)
        assert [sum(standing.values()) for standing in standings] == [200, 200]

    def test_the_network_learns_from_its_own_games(self) -> None:
        scores = main_of("self_play.py")(rounds=3, games=24, visits=20)
        assert max(scores[1:]) > scores[0] + 0.1

    def test_tools_answer_refuse_and_crash(self) -> None:
        higher, unknown, crashed, also_higher = main_of("tool_calls.py")()
        assert (higher, also_higher) == ("38 m higher.", "234 m higher.")
        assert "no article on 'Tower of Babel'" in unknown
        assert crashed == "error: the tool crashed"

    def test_the_shared_model_beats_every_client_alone(self) -> None:
        alone, together = main_of("federated_averaging.py")(rounds=6)
        assert together > alone + 0.1

    def test_the_bodies_keep_their_energy(self) -> None:
        assert main_of("n_body.py")(bodies=100, steps=20) < 1e-3

    def test_ppo_trains_and_acts(self) -> None:
        assert main_of("rl_ppo.py")(iterations=1) > 5


def test_the_program_of_2018_runs(tmp_path: Path) -> None:
    results = {**os.environ, "WEFT_TUNE_RESULTS": str(tmp_path)}
    program = [sys.executable, str(EXAMPLES / "tune_2018.py")]
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, timeout=280, env=results)
    assert done.stdout.count("TERMINATED") == 8
