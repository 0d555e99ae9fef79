"""train.Trainer: the same curve whoever dies or comes, checkpoints, datasets, backends."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import train

STEPS = 12
BATCH = 21
ROWS = 84


def points() -> tuple[Any, Any]:
    inputs = np.random.default_rng(1).normal(size=(ROWS, 5))
    return inputs, inputs @ np.arange(5.0) + np.sin(inputs[:, 0])


def curve_of_one_process() -> list[float]:
    (inputs, targets), weights, losses = points(), np.zeros(5), []
    for step in range(STEPS):
        batch = np.arange(step * BATCH, (step + 1) * BATCH) % ROWS
        errors = inputs[batch] @ weights - targets[batch]
        losses.append(float(errors @ errors / BATCH))
        weights -= 0.1 * inputs[batch].T @ errors / BATCH
    return losses


def loop(config: dict[str, Any]) -> None:
    """Full steps of the global batch, whatever the number of workers."""
    context, (inputs, targets) = train.get_context(), points()
    state: dict[str, Any] = {"weights": np.zeros(5), "step": 0}
    if (checkpoint := train.get_checkpoint()) is not None:
        state = checkpoint.to_dict()
    for step in range(state["step"], STEPS):
        batch = (np.arange(step * BATCH, (step + 1) * BATCH) % ROWS)[context.share(BATCH)]
        errors = inputs[batch] @ state["weights"] - targets[batch]
        sums = context.group.all_reduce(np.append(inputs[batch].T @ errors, errors @ errors)) / BATCH
        state = {"weights": state["weights"] - 0.1 * sums[:5], "step": step + 1}
        saved = state if step % config.get("every", 1) == 0 else None
        train.report({"loss": sums[5], "step": step, "size": context.size}, checkpoint=saved)
        if "hook" in config:
            config["hook"](context, step, state)


@pytest.fixture
def one_cpu_taken(weft_session: Any) -> Any:
    @weft.remote(num_cpus=1)
    class Holder:
        def is_there(self) -> bool:
            return True

    holder = Holder.remote()
    assert weft.get(holder.is_there.remote())
    return holder


def die_once(marker: Path, rank: int, at_step: int) -> Any:
    def hook(context: Any, step: int, state: Any) -> None:
        if context.rank == rank and step == at_step and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def assert_same_curve(result: train.Result) -> None:
    """The sums of two or three parts differ from the sum of the whole by rounding alone."""
    assert [metrics["step"] for metrics in result.history] == list(range(STEPS))
    losses = [metrics["loss"] for metrics in result.history]
    np.testing.assert_allclose(losses, curve_of_one_process(), rtol=1e-10)


def test_two_workers_have_the_curve_of_one_process(weft_session: Any, tmp_path: Path) -> None:
    result = train.Trainer(loop, workers=2, storage_path=tmp_path, name="run").fit()
    assert_same_curve(result)
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == STEPS
    assert result.path == str(tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run").glob("checkpoint_*"))
    assert kept == ["checkpoint_000010", "checkpoint_000011"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_is_killed_is_replaced_and_the_curve_stays(weft_session: Any, tmp_path: Path, rank: int) -> None:
    config = {"hook": die_once(tmp_path / "died", rank, 5), "every": 3}
    result = train.Trainer(loop, workers=2, config=config, storage_path=tmp_path).fit()
    assert (tmp_path / "died").exists()
    assert_same_curve(result)


def test_a_worker_that_comes_later_is_taken_in_and_the_curve_stays(one_cpu_taken: Any, tmp_path: Path) -> None:
    def hook(context: Any, step: int, state: Any) -> None:
        if context.size == 1 and step == 3:
            weft.kill(one_cpu_taken)
            while True:  # until the loop is ended, to start anew with two
                train.report({"waiting": True}, checkpoint=state)
                threading.Event().wait(0.05)

    trainer = train.Trainer(loop, workers=2, min_workers=1, config={"hook": hook}, storage_path=tmp_path)
    result = trainer.fit()
    steps = [metrics for metrics in result.history if "waiting" not in metrics]
    assert [metrics["size"] for metrics in steps] == [1] * 4 + [2] * 8
    assert_same_curve(dataclasses.replace(result, history=steps))


def test_what_a_loop_raises_is_raised_by_fit(weft_session: Any, tmp_path: Path) -> None:
    def hook(context: Any, step: int, state: Any) -> None:
        if context.rank == 1 and step == 2:
            raise ZeroDivisionError("in the loop")

    with pytest.raises(ZeroDivisionError, match="in the loop"):
        train.Trainer(loop, workers=2, config={"hook": hook}, storage_path=tmp_path).fit()


def test_a_run_that_failed_is_resumed_where_it_was(weft_session: Any, tmp_path: Path) -> None:
    def hook(context: Any, step: int, state: Any) -> None:
        if step == 7:
            raise ZeroDivisionError("in the loop")

    trainer = train.Trainer(loop, workers=2, storage_path=tmp_path, name="run", config={"hook": hook, "every": 3})
    with pytest.raises(ZeroDivisionError):
        trainer.fit()
    assert (tmp_path / "run" / "checkpoint_000002").is_dir()
    result = train.Trainer(loop, workers=1, storage_path=tmp_path, name="run").fit(resume=True)
    assert_same_curve(result)
    assert [metrics["size"] for metrics in result.history] == [2] * 7 + [1] * 5


def test_a_name_that_was_used_goes_on_and_says_so(weft_session: Any, tmp_path: Path, capfd: Any) -> None:
    failed = tmp_path / "failed"

    def hook(context: Any, step: int, state: Any) -> None:
        if step == 7 and not failed.exists():
            failed.touch()
            raise ZeroDivisionError("in the loop")

    trainer = train.Trainer(loop, workers=1, storage_path=tmp_path, name="run", config={"hook": hook, "every": 3})
    with pytest.raises(ZeroDivisionError):
        trainer.fit()
    assert "goes on" not in capfd.readouterr().err
    result = trainer.fit()
    assert_same_curve(result)
    assert "goes on after report 7, from checkpoint_000002" in capfd.readouterr().err


def test_a_name_that_was_used_begins_anew_if_it_is_told(weft_session: Any, tmp_path: Path, capfd: Any) -> None:
    trainer = train.Trainer(loop, workers=1, storage_path=tmp_path, name="run", keep_checkpoints=None)
    first = trainer.fit()
    (tmp_path / "run" / "checkpoint_000000" / "of the first").touch()
    again = trainer.fit(resume=False)
    assert_same_curve(again)
    assert len(again.history) == len(first.history)
    assert not (tmp_path / "run" / "checkpoint_000000" / "of the first").exists()
    assert "is deleted and begins anew" in capfd.readouterr().err


def test_workers_that_keep_dying_end_the_training(weft_session: Any, tmp_path: Path) -> None:
    def doomed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(train.WorkersLostError, match=r"lost 2 times since the last checkpoint \(None\)"):
        train.Trainer(doomed, workers=1, failures=1, storage_path=tmp_path).fit()


def test_workers_for_which_there_is_no_room_end_the_training(one_cpu_taken: Any, tmp_path: Path) -> None:
    trainer = train.Trainer(loop, workers=2, timeout_s=3.0, storage_path=tmp_path)
    with pytest.raises(train.WorkersLostError, match=r"of at least 2 workers could be started within 3 s"):
        trainer.fit()


def test_workers_for_which_no_node_is_large_enough_are_refused(weft_session: Any, tmp_path: Path) -> None:
    with pytest.raises(weft.exceptions.ActorUnschedulableError, match="9 CPU is asked for, but the node has 2"):
        train.Trainer(loop, resources={"CPU": 9}, storage_path=tmp_path).fit()


def test_a_folder_is_a_checkpoint_and_may_be_deleted_once_reported(weft_session: Any, tmp_path: Path) -> None:
    def save_folder() -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model.txt").write_text("weights")
            train.report({"loss": 1.0}, checkpoint=folder)

    result = train.Trainer(save_folder, storage_path=tmp_path).fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert Path(folder, "model.txt").read_text() == "weights"


def test_checkpoints_behind_a_url_that_workers_can_not_see_travel(weft_session: Any) -> None:
    result = train.Trainer(loop, workers=2, storage_path="memory://runs", name="seen-by-the-driver").fit()
    assert_same_curve(result)
    assert result.checkpoint is not None
    again = train.Trainer(loop, workers=1, storage_path="memory://runs", name="seen-by-the-driver").fit(resume=True)
    assert again.history == result.history


def test_each_worker_has_its_part_of_the_datasets(weft_session: Any, tmp_path: Path) -> None:
    from weft import data

    def count() -> None:
        context = train.get_context()
        ids = [row["id"] for row in train.get_dataset_shard("rows").iter_rows()]
        assert not set(ids) & set(context.group.all_gather(np.array(ids))[1 - context.rank])
        numbers = context.group.all_reduce(np.array([sum(train.get_dataset_shard("numbers"))]))
        train.report({"rows": len(ids), "numbers": numbers[0]})

    datasets = {"rows": data.range(100), "numbers": [1, 2, 3, 4, 5]}
    result = train.Trainer(count, workers=2, datasets=datasets, storage_path=tmp_path).fit()
    assert result.metrics["numbers"] == 15
    assert result.metrics["rows"] >= 45  # equal parts, whose few left-over rows are left out


def test_a_dataset_that_is_not_there_is_named(weft_session: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="the trainer has no dataset 'text', only: none"):
        train.Trainer(lambda: train.get_dataset_shard("text"), storage_path=tmp_path).fit()


def test_a_loop_can_be_tried_without_a_trainer(weft_session: Any) -> None:
    loop({})
    assert train.get_context().share(10) == slice(0, 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 2, "min_workers": 3}, "min_workers must be from 1 to 2, but got 3"),
        ({"backend": "mpi"}, "backend must be one of weft, torch, nccl, gloo, jax, xgboost, lightgbm, but got 'mpi'"),
        ({"backend": "nccl"}, r"needs a GPU for every worker: resources=.* but got resources=\{'CPU': 1\}"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        train.Trainer(loop, **options)
