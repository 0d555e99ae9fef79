"""Nothing is lost: kill -9 of the driver or a trial's process at random moments, a torn ledger, a dead node."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from tune_models import Walker

import weft
from weft import tune
from weft.library.storage import LocalStorage, UrlStorage, open_storage
from weft.tune.errors import LedgerError, TuneError
from weft.tune.ledger import Ledger, read_entries

DRIVER = Path(__file__).with_name("tune_driver.py")
KILLS = int(os.environ.get("WEFT_TUNE_KILLS", "3"))
"""How often each experiment is killed before it may end."""


def start(path: Path, kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(DRIVER), str(path), kind], stdout=subprocess.PIPE, text=True)


def finish(path: Path, kind: str) -> dict[str, Any]:
    process = start(path, kind)
    out, _ = process.communicate(timeout=280)
    assert process.returncode == 0, out
    line = next(line for line in out.splitlines() if line.startswith("best "))
    outcome: dict[str, Any] = json.loads(line.removeprefix("best "))
    return outcome


def kill_after(process: subprocess.Popen[str], delay_s: float, victim: Any) -> None:
    """Once trials run, wait a random while and kill; a process that was faster has ended already."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.startswith("began"):
            break
    try:
        process.wait(delay_s)
    except subprocess.TimeoutExpired:
        victim(process)
    process.stdout.read()
    process.wait()
    process.stdout.close()


def kill_driver(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kind", ["function", "short", "class", "asha", "hyperband", "pbt"])
def test_a_driver_killed_at_random_moments_ends_with_the_same_best_trial(tmp_path: Path, kind: str) -> None:
    undisturbed = finish(tmp_path / "undisturbed", kind)
    assert undisturbed["statuses"] == ["TERMINATED"]
    rng = random.Random(os.urandom(8))
    for _ in range(KILLS):
        kill_after(start(tmp_path / "killed", kind), rng.uniform(0.0, 0.6), kill_driver)
    outcome = finish(tmp_path / "killed", kind)
    assert outcome["statuses"] == ["TERMINATED"] and outcome["trials"] == (600 if kind == "short" else 9)
    if kind in ("function", "short", "class"):
        assert outcome == undisturbed
        steps = 1 if kind == "short" else 12
        assert all(history == list(range(1, steps + 1)) for history in outcome["histories"])
    if kind != "pbt":  # whose outcome depends on who was compared with whom when
        assert outcome["best"][1:] == undisturbed["best"][1:]


def trial_processes(path: Path, driver: int) -> list[psutil.Process]:
    """Those that wrote results and are still alive."""
    pids = set()
    for log in path.glob("*/*/result.json"):  # not below: checkpoints come and go
        pids |= {json.loads(line)["pid"] for line in log.read_text().splitlines() if line.endswith("}")}
    try:
        family = psutil.Process(driver).children(recursive=True)
    except psutil.Error:
        return []  # the driver has ended
    return [process for process in family if process.pid in pids]


def test_workers_killed_at_random_moments_do_not_change_the_outcome(tmp_path: Path) -> None:
    undisturbed = finish(tmp_path / "undisturbed", "function")
    process = start(tmp_path / "killed", "function")
    stop = threading.Event()
    rng = random.Random(os.urandom(8))
    killed: list[int] = []

    def murder() -> None:
        while len(killed) < KILLS and not stop.wait(rng.uniform(0.02, 0.2)):
            found = [victim for victim in trial_processes(tmp_path / "killed", process.pid) if victim.pid not in killed]
            if found:
                victim = rng.choice(found)
                killed.append(victim.pid)
                victim.kill()

    thread = threading.Thread(target=murder)
    thread.start()
    out, _ = process.communicate(timeout=280)
    stop.set()
    thread.join()
    outcome = json.loads(next(line for line in out.splitlines() if line.startswith("best ")).removeprefix("best "))
    assert killed
    assert outcome == undisturbed


def test_a_ledger_torn_at_any_byte_is_read_up_to_the_last_whole_entry(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = Ledger(storage)
    result = {"loss": float("inf")}
    entries = [("added", "00000", {"x": 1, "f": max}), ("started", "00000"), ("reported", "00000", result)]
    for entry in entries:
        ledger.add(*entry)
    ledger.sync()
    storage.close()
    whole = (tmp_path / "ledger.bin").read_bytes()
    assert list(read_entries(storage)) == entries
    counts = []
    for length in range(len(whole) + 1):
        (tmp_path / "ledger.bin").write_bytes(whole[:length])
        found = list(read_entries(LocalStorage(str(tmp_path))))
        assert found == entries[: len(found)]
        counts.append(len(found))
        again = Ledger(storage)
        again.add("started", "after")
        again.flush()
        storage.close()
        assert list(read_entries(storage)) == [*found, ("started", "after")]
    assert counts == sorted(counts) and counts[-1] == 3


def test_configurations_come_back_from_the_ledger_as_they_were(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = Ledger(storage)
    config = {"hidden": (64, (32, max)), "listed": [1, (2,)], "deep": {"empty": (), "x": 0.5}, "name": "a"}
    ledger.add("added", "00000", config)
    ledger.flush()
    storage.close()
    ((_, _, found),) = read_entries(storage)
    assert found == config, "a tuple became a list, or a list a tuple"


def test_a_flipped_bit_in_the_ledger_is_noticed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = Ledger(storage)
    ledger.add("added", "00000", {"x": 1})
    ledger.add("started", "00000")
    ledger.flush()
    storage.close()
    data = bytearray((tmp_path / "ledger.bin").read_bytes())
    data[-3] ^= 1
    (tmp_path / "ledger.bin").write_bytes(data)
    assert list(read_entries(storage)) == [("added", "00000", {"x": 1})]


def test_restoring_where_nothing_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"there is no experiment at .*: it has no experiment\.pkl"):
        tune.Tuner.restore(tmp_path)


def test_a_finished_experiment_is_restored_without_running_anything(tmp_path: Path, weft_session: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        (tmp_path / f"ran-{config['x']}").touch()
        tune.report(score=config["x"])

    run = tune.RunConfig(name="done", storage_path=str(tmp_path))
    space = {"x": tune.grid_search([1, 2])}
    best = tune.TuneConfig(metric="score", mode="max")
    first = tune.Tuner(train, param_space=space, tune_config=best, run_config=run)
    before = first.fit()
    for mark in tmp_path.glob("ran-*"):
        mark.unlink()
    tuner = tune.Tuner.restore(first.path)
    assert tuner.get_results().get_best_result().metrics == before.get_best_result().metrics
    assert len(tuner.fit()) == 2
    assert not list(tmp_path.glob("ran-*"))


def test_failed_trials_can_be_tried_again(tmp_path: Path, weft_session: Any) -> None:
    mended = tmp_path / "mended"

    def train(config: dict[str, Any]) -> None:
        if config["x"] == 1 and not mended.exists():
            raise RuntimeError("not yet")
        tune.report(score=config["x"])

    run = tune.RunConfig(name="errored", storage_path=str(tmp_path))
    tuner = tune.Tuner(train, param_space={"x": tune.grid_search([0, 1])}, run_config=run)
    assert tuner.fit().num_errors == 1
    mended.touch()
    assert tune.Tuner.restore(tuner.path).fit().num_errors == 1
    assert tune.Tuner.restore(tuner.path, resume_errored=True).fit().num_errors == 0
    assert tune.Tuner.restore(tuner.path).get_results().num_terminated == 2


def test_an_experiment_behind_a_url_is_written_and_restored(tmp_path: Path, weft_session: Any) -> None:
    pytest.importorskip("fsspec")
    url = f"local://{tmp_path}/exp"
    tuner = tune.Tuner(
        Walker,
        param_space={"speed": tune.grid_search([1.0, 2.0])},
        tune_config=tune.TuneConfig(metric="distance", mode="max"),
        run_config=tune.RunConfig(
            name="remote",
            storage_path=url,
            stop={"training_iteration": 5},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
        ),
    )
    grid = tuner.fit()
    assert isinstance(open_storage(tuner.path), UrlStorage)
    best = grid.get_best_result()
    assert best.checkpoint is not None and best.checkpoint.to_dict() == {"distance": 10.0}
    assert (tmp_path / "exp" / "remote" / best.path.rpartition("/")[2] / "progress.csv").exists()
    restored = tune.Tuner.restore(tuner.path).get_results()
    assert restored.get_best_result().config == {"speed": 2.0}
    assert [row["distance"] for row in restored[1].history] == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_a_change_of_the_search_space_is_found_when_the_ledger_does_not_fit(tmp_path: Path, weft_session: Any) -> None:
    run = tune.RunConfig(name="one", storage_path=str(tmp_path))
    tuner = tune.Tuner(lambda config: {"x": 1}, run_config=run)
    tuner.fit()
    storage = LocalStorage(tuner.path)
    ledger = Ledger(storage)
    ledger.add("added", "00007", {})
    ledger.flush()
    storage.close()
    with pytest.raises(TuneError, match="the ledger names trial 00007 where 00001 should be"):
        tune.Tuner.restore(tuner.path).get_results()


def test_a_trial_goes_on_elsewhere_when_its_node_dies(tmp_path: Path) -> None:
    from weft.testing import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        weft.init(address=cluster.address)
        cluster.wait_for_nodes()

        def train(config: dict[str, Any]) -> None:
            checkpoint = tune.get_checkpoint()
            step = checkpoint.to_dict()["step"] if checkpoint else 0
            while step < 5:
                step += 1
                tune.report({"step": step, "x": config["x"]}, checkpoint={"step": step})
                if step == 3:
                    (tmp_path / f"three-{config['x']}").touch()
                    while not (tmp_path / "killed").exists():
                        threading.Event().wait(0.01)

        class KillNode(tune.Callback):
            done = False

            def flush(self) -> None:
                if not self.done and len(list(tmp_path.glob("three-*"))) == 2:
                    self.done = True
                    cluster.remove_node(second)
                    (tmp_path / "killed").touch()

        grid = tune.Tuner(
            train,
            param_space={"x": tune.grid_search([0, 1])},
            tune_config=tune.TuneConfig(metric="step", mode="max"),
            run_config=tune.RunConfig(storage_path=str(tmp_path / "results"), callbacks=[KillNode()]),
        ).fit()
        assert [result.status for result in grid] == ["TERMINATED", "TERMINATED"]
        assert [[row["step"] for row in result.history] for result in grid] == [[1, 2, 3, 4, 5]] * 2
    finally:
        weft.shutdown()
        cluster.shutdown()
