"""An experiment's board: what the dashboard's page is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import tune
from weft.engine.cluster.client import Client
from weft.engine.process.session import context_state


def boards(page: str) -> dict[str, Any]:
    found = Client(context_state.state.address).ask("boards")
    return {row["name"]: json.loads(row["board"]) for rows in found for row in rows if row["page"] == page}


def objective(config: dict[str, Any]) -> None:
    if config["x"] == 3:
        raise ValueError("three is not wanted")
    for step in range(3):
        tune.report({"loss": config["x"] + step if config["x"] != 2 else float("nan")})


@pytest.mark.usefixtures("weft_session")
def test_the_board_has_every_trial_with_its_curve_and_how_it_ended(tmp_path: Path) -> None:
    tune.Tuner(
        objective,
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="seen", storage_path=str(tmp_path)),
    ).fit()
    shown = boards("tune")["seen"]
    assert (shown["metric"], shown["mode"]) == ("loss", "min")
    trials = {trial["config"]["x"]: trial for trial in shown["trials"]}
    assert trials[1]["curve"] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert (trials[1]["state"], trials[1]["best"], trials[1]["iterations"]) == ("TERMINATED", 1, 3)
    assert trials[2]["curve"] == [[1.0, None], [2.0, None], [3.0, None]]
    assert trials[3]["state"] == "ERROR" and "three is not wanted" in trials[3]["error"]
    assert weft.is_initialized()
