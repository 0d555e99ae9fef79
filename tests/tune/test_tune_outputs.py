"""What people see: logs, the status table, data frames, plots, trackers."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from weft import tune
from weft.library.records import crc32c
from weft.tune.errors import TuneError
from weft.tune.schedulers import ASHAScheduler
from weft.tune.simulation import Simulation
from weft.tune.status import StatusTable, line_of, table_lines

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def train(config: dict[str, Any]) -> None:
    for step in range(1, 4):
        tune.report(score=config["x"] * step, info={"loss": 1 / step})


@pytest.fixture(scope="module")
def grid(shared_weft_session: Any, tmp_path_factory: pytest.TempPathFactory) -> tune.ResultGrid:
    return tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1, 3, 2]), "y": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="score", mode="max", seed=0),
        run_config=tune.RunConfig(storage_path=str(tmp_path_factory.mktemp("grid")), name="grid"),
    ).fit()


def test_json_and_csv_logs_have_every_result(grid: tune.ResultGrid) -> None:
    folder = Path(grid[1].path)
    lines = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [line["score"] for line in lines] == [3, 6, 9]
    rows = list(csv.DictReader(io.StringIO((folder / "progress.csv").read_text())))
    assert [row["info/loss"] for row in rows] == ["1.0", "0.5", "0.3333333333333333"]
    assert json.loads((folder / "params.json").read_text())["x"] == 3


def test_tensorboard_reads_our_event_files(grid: tune.ResultGrid) -> None:
    from tensorboardX.proto.event_pb2 import Event

    (path,) = Path(grid[1].path).glob("events.out.tfevents.*")
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + length]
        (stored,) = struct.unpack_from("<I", data, at + 12 + length)
        checksum = crc32c(body)
        assert stored == ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
        events.append(Event.FromString(body))
        at += length + 16
    assert events[0].file_version == "brain.Event:2"
    values = [{value.tag: value.simple_value for value in event.summary.value} for event in events[1:]]
    assert [value["score"] for value in values] == [3, 6, 9]
    assert [event.step for event in events[1:]] == [1, 2, 3]


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_data_frame_has_a_row_a_trial(grid: tune.ResultGrid) -> None:
    frame = grid.get_dataframe()
    assert list(frame["config/x"]) == [1, 3, 2]
    assert list(frame["score"]) == [3, 9, 6]
    assert list(grid.get_dataframe("score", "min")["score"]) == [1, 3, 2]
    assert list(grid[0].metrics_dataframe["training_iteration"]) == [1, 2, 3]


def test_the_best_by_scope_and_by_other_metrics(grid: tune.ResultGrid) -> None:
    assert grid.get_best_result().config["x"] == 3
    assert grid.get_best_result("score", "min", scope="all").config["x"] == 1
    assert grid.get_best_result("info/loss", "min").metrics["info"]["loss"] == pytest.approx(1 / 3)
    assert grid.best_config["x"] == 3 and grid.best_trial.trial_id == "00001"
    with pytest.raises(TuneError, match=r"metric 'acc' is not in the result of the trial, which reported: info, score"):
        grid.get_best_result("acc", "max")


def test_plots_are_drawn_also_of_a_restored_experiment(grid: tune.ResultGrid, tmp_path: Path) -> None:
    """In another process, since matplotlib keeps its fonts open."""
    code = f"""
from weft import tune
grid = tune.Tuner.restore({grid.experiment_path!r}).get_results()
for kind in ("curves", "parallel", "slices"):
    grid.plot(kind).savefig({str(tmp_path)!r} + "/" + kind + ".png")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert all((tmp_path / f"{kind}.png").stat().st_size > 5_000 for kind in ("curves", "parallel", "slices"))


def test_an_unknown_plot_lists_the_known(grid: tune.ResultGrid) -> None:
    with pytest.raises(TuneError, match="kind must be one of curves, parallel, slices, but got 'pie'"):
        grid.plot("pie")


class Resources:
    used = {"CPU": 1.0}  # noqa: RUF012
    total = {"CPU": 2.0}  # noqa: RUF012


def some_state() -> Any:
    from tune_models import Walker

    space = {"speed": tune.grid_search([1.0, 2.0, 3.0])}
    simulation = Simulation(Walker, space, tune.search.GridRandomSearch(), ASHAScheduler(max_t=9), "distance", "max")
    state = simulation.state(1, 0)
    first, _ = state.next_trial()
    state.started(first)
    first.pid = 6778
    state.reported(first, {"distance": 7.29, "training_iteration": 1, "time_total_s": 209.0})
    state.next_trial()
    return state


def test_the_status_table_is_the_one_people_know() -> None:
    assert table_lines(some_state(), Resources(), "distance", "/results/demo") == [
        "== Status ==",
        "Using ASHA scheduling algorithm. Trials at rungs: 4: 0, 1: 1",
        "Resources requested: 1/2 CPUs, 0/0 GPUs",
        "Result logdir: /results/demo",
        "PENDING trials:",
        " - model_1_speed=2:\tPENDING",
        "  ... 1 more PENDING",
        "RUNNING trials:",
        " - model_0_speed=1:\tRUNNING [pid=6778], 209 s, 1 iter, 7.29 distance",
    ]
    assert line_of(some_state(), "distance") == ("tune: 2 PENDING, 1 RUNNING; best distance=7.29 (model_0_speed=1)")


def test_the_table_shows_the_key_of_the_stop_condition_if_there_is_no_metric(
    tmp_path: Path, capsys: Any, shared_weft_session: Any
) -> None:
    experiment = {
        "run": lambda config: {"mean_accuracy": 12.5},
        "stop": {"mean_accuracy": 100, "training_iteration": 9},
    }
    tune.run_experiments({"known": {**experiment, "local_dir": str(tmp_path)}}, verbose=2)
    assert "1 iter, 12.5 mean_accuracy" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_status_is_drawn_in_place_at_a_terminal_and_not_at_all_in_a_pipe() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for out in (terminal, pipe):
        table = StatusTable(None, "distance", "/results", out)
        table.update(some_state(), Resources())
        table.finish(some_state(), Resources())
    assert pipe.getvalue() == ""
    assert terminal.getvalue().count("== Status ==") == 2
    assert "\x1b[9F\x1b[J" in terminal.getvalue()


def test_importing_tune_imports_no_optional_library() -> None:
    code = "import sys, weft.tune; weft.tune.Tuner, weft.tune.search, weft.tune.schedulers; print([m for m in " + (
        "('optuna', 'pandas', 'matplotlib', 'fsspec', 'torch', 'jax') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_wandb_gets_a_run_for_each_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the package, which needs a server."""
    runs: list[Any] = []

    class Run:
        def __init__(self, **options: Any) -> None:
            self.options, self.logged, self.exit_code = options, [], None
            runs.append(self)

        def log(self, metrics: dict[str, Any], step: int) -> None:
            self.logged.append((step, metrics["score"]))

        def finish(self, exit_code: int) -> None:
            self.exit_code = exit_code

    module: Any = types.ModuleType("wandb")
    module.init = Run
    monkeypatch.setitem(sys.modules, "wandb", module)
    callback = tune.loggers.WandbLoggerCallback(project="p")
    run = tune.RunConfig(storage_path=str(tmp_path), name="e", callbacks=[callback])
    tune.Tuner(train, param_space={"x": tune.grid_search([1, 2])}, run_config=run).fit()
    assert [each.logged for each in runs] == [[(1, 1), (2, 2), (3, 3)], [(1, 2), (2, 4), (3, 6)]]
    assert all(each.exit_code == 0 and each.options["group"] == "e" for each in runs)


def test_a_tracker_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(ModuleNotFoundError, match="MLflowLoggerCallback needs mlflow: pip install mlflow"):
        tune.loggers.MLflowLoggerCallback()
