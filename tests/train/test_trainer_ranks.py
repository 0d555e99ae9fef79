"""Checkpoints of all ranks, runs with another config, ranks that hang, losses that are no numbers."""

from __future__ import annotations

import math
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import train


def files_of(checkpoint: Any) -> dict[str, str]:
    with checkpoint.as_directory() as folder:
        paths = [path for path in Path(folder).rglob("*.txt") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_text() for path in paths}


def save_files() -> None:
    import tempfile

    context = train.get_context()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"shard_{context.rank}.txt").write_text(f"of {context.rank}")
        Path(folder, "all.txt").write_text("the same")
        Path(folder, "own.txt").write_text(f"of {context.rank}")
        train.report({"rank": context.rank}, checkpoint=folder)


@pytest.mark.parametrize("storage_path", ["", "memory://ranks"])
def test_every_ranks_files_are_in_one_checkpoint(weft_session: Any, tmp_path: Path, storage_path: str) -> None:
    result = train.Trainer(save_files, workers=2, storage_path=storage_path or tmp_path, name="files").fit()
    assert files_of(result.checkpoint) == {
        "shard_0.txt": "of 0",
        "shard_1.txt": "of 1",
        "all.txt": "the same",
        "own.txt": "of 0",
        "rank_00001/own.txt": "of 1",
    }
    assert result.history == [{"rank": 0}]


def sharded(config: dict[str, Any]) -> None:
    """Each rank has its part of the weights alone, and saves that."""
    context = train.get_context()
    weights = np.arange(6.0)[context.share(6)]
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        states = train.states_of_ranks(checkpoint)
        weights = np.concatenate([state["weights"] for state in states])[context.share(6)]
        first = states[0]["step"]
    for step in range(first, 4):
        total = float(context.group.all_reduce(np.array([weights.sum()]))[0])
        weights = weights + 1
        saved = {"weights": weights, "step": step + 1} if config["in_rank"](context.rank) else None
        train.report({"total": total, "size": context.size}, checkpoint=saved)
        if "hook" in config:
            config["hook"](context, step)


def test_shards_of_all_ranks_are_loaded_with_another_number_of_ranks(weft_session: Any, tmp_path: Path) -> None:
    def stop(context: Any, step: int) -> None:
        if step == 1 and context.size == 2:
            raise ZeroDivisionError("after the second checkpoint")

    config = {"in_rank": lambda rank: True, "hook": stop}
    with pytest.raises(ZeroDivisionError):
        train.Trainer(sharded, workers=2, config=config, storage_path=tmp_path, name="run").fit()
    result = train.Trainer(sharded, workers=1, config=config, storage_path=tmp_path, name="run").fit()
    assert [one["total"] for one in result.history] == [15.0, 21.0, 27.0, 33.0]
    assert [one["size"] for one in result.history] == [2, 2, 1, 1]


def test_a_rank_that_dies_leaves_no_half_checkpoint(weft_session: Any, tmp_path: Path) -> None:
    marker = tmp_path / "died"

    def die(context: Any, step: int) -> None:
        if step == 2 and context.rank == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    config = {"in_rank": lambda rank: True, "hook": die}
    result = train.Trainer(sharded, workers=2, config=config, storage_path=tmp_path).fit()
    assert marker.exists()
    assert [one["total"] for one in result.history] == [15.0, 21.0, 27.0, 33.0]


def test_states_that_are_the_same_in_all_ranks_are_kept_once(weft_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        train.report({}, checkpoint={"weights": np.ones(3)})

    result = train.Trainer(loop, workers=2, storage_path=tmp_path, name="run").fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert [path.name for path in Path(folder).rglob("*.pkl")] == ["state.pkl"]
    first, second = train.states_of_ranks(result.checkpoint)
    assert np.array_equal(first["weights"], np.ones(3)) and np.array_equal(second["weights"], np.ones(3))


def test_a_checkpoint_of_torch_is_written_by_all_ranks_and_read_by_another_number(
    weft_session: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")

    def loop() -> None:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        context = train.get_context()
        mesh = init_device_mesh("cpu", (context.size,))
        zeros = distribute_tensor(torch.zeros(6, 2), mesh, [Shard(0)])
        state: dict[str, Any] = {"weights": zeros, "step": 0}
        if not train.load_sharded(state):
            state["weights"] = distribute_tensor(torch.arange(12.0).reshape(6, 2), mesh, [Shard(0)])
        state["step"] += 1
        total = float(state["weights"].full_tensor().sum())
        train.report_sharded({"total": total, "rows": len(state["weights"].to_local())}, state)
        train.report({"total": total, "step": state["step"], "rows": len(state["weights"].to_local())})

    def trainer(workers: int) -> train.Trainer:
        return train.Trainer(loop, workers=workers, backend="gloo", storage_path=tmp_path, name="run")

    first = trainer(2).fit()
    assert first.metrics == {"total": 66.0, "step": 1, "rows": 3}
    assert first.checkpoint is not None
    with first.checkpoint.as_directory() as folder:
        assert {path.name for path in Path(folder).glob("__*")} == {"__0_0.distcp", "__1_0.distcp"}
    assert trainer(1).fit().metrics == {"total": 66.0, "step": 2, "rows": 6}


def test_a_name_with_another_config_is_refused(weft_session: Any, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"rate": config["rate"]}, checkpoint={"step": 1})

    def trainer(**config: Any) -> train.Trainer:
        return train.Trainer(loop, config=config, storage_path=tmp_path, name="run")

    assert trainer(rate=1.0, weights=np.ones(2)).fit().metrics == {"rate": 1.0}
    trainer(rate=1.0, weights=np.ones(2)).fit()
    with pytest.raises(ValueError, match=r"run in .*run has another config: 'rate' is 2.0, but was 1.0"):
        trainer(rate=2.0, weights=np.ones(2)).fit()
    with pytest.raises(ValueError, match="'more' is 3, but was not there"):
        trainer(rate=1.0, weights=np.ones(2), more=3).fit()
    assert trainer(rate=2.0).fit(resume=True).history[-1] == {"rate": 2.0}
    assert trainer(rate=3.0).fit(resume=False).history == [{"rate": 3.0}]


def test_a_rank_that_hangs_is_told_with_the_stacks_of_all(weft_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        context = train.get_context()
        context.group.barrier()
        if context.rank == 1:
            stuck_here()
        context.group.all_reduce(np.ones(1))

    def stuck_here() -> None:
        threading.Event().wait()

    with pytest.raises(train.HangError) as caught:
        train.Trainer(loop, workers=2, hang_timeout_s=1.0, storage_path=tmp_path).fit()
    words = str(caught.value)
    assert "no rank has reported for 1 s" in words and "rank 1" in words.splitlines()[0]
    of_rank_0, of_rank_1 = words.split("rank 1 (")
    assert "stuck_here" in of_rank_1 and "stuck_here" not in of_rank_0
    assert "all_reduce" in of_rank_0.split("rank 0 (")[1]
    assert caught.value.suspects == (1,)


def test_a_rank_that_cannot_say_where_it_is_is_named(weft_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        context = train.get_context()
        context.group.barrier()
        if context.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        context.group.all_reduce(np.ones(1))

    with pytest.raises(train.HangError, match=r"rank 1 .* did not answer"):
        train.Trainer(loop, workers=2, hang_timeout_s=1.0, storage_path=tmp_path).fit()


@pytest.mark.parametrize(("bad", "guards"), [(math.nan, ["loss"]), (math.inf, ["loss"]), (11.0, {"loss": 10.0})])
def test_a_guarded_metric_that_is_no_number_ends_the_training(
    weft_session: Any, tmp_path: Path, bad: float, guards: Any
) -> None:
    def loop() -> None:
        for step, loss in enumerate([1.0, bad, 1.0]):
            train.report({"loss": loss, "other": math.nan}, checkpoint={"step": step})

    trainer = train.Trainer(loop, workers=1, guards=guards, storage_path=tmp_path, name="run")
    with pytest.raises(train.DivergedError, match=r"'loss' is .* at report 2.*checkpoint_000000") as caught:
        trainer.fit()
    assert caught.value.metric == "loss" and caught.value.checkpoint == "checkpoint_000000"
    assert not (tmp_path / "run" / "checkpoint_000001").exists()
