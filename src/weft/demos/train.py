"""`weft demo train`: two workers train one model; one is killed, and it goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from weft import train
from weft.demos import Options, chart
from weft.demos.story import chapter, say, session

STEPS, KILLED_AT = 100, 55


def loop(config: dict[str, Any]) -> None:
    """Linear regression: each worker has a share of the points, and both have the same weights at every step."""
    context, points = train.get_context(), train.get_dataset_shard("points")
    state: dict[str, Any] = {"weights": np.zeros(10), "step": 0}
    if (checkpoint := train.get_checkpoint()) is not None:
        state = checkpoint.to_dict()
    deed = Path(config["deed"])
    for step in range(state["step"], STEPS):
        if step == KILLED_AT and context.get_world_rank() == 1 and not deed.exists():
            deed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        error = points[:, :10] @ state["weights"] - points[:, 10]
        gradient = context.group.all_reduce(points[:, :10].T @ error / len(points), "mean")
        state = {"weights": state["weights"] - config["rate"] * gradient, "step": step + 1}
        train.report({"loss": float((error**2).mean())}, checkpoint=state if step % 10 == 9 else None)


def main(options: Options) -> None:
    rows = 2_000 if options.short else 200_000
    inputs = np.random.default_rng(0).normal(size=(rows, 10))
    points = np.column_stack([inputs, inputs @ np.arange(10)])
    with session(), tempfile.TemporaryDirectory() as folder:
        with chapter(f"{rows:,} points in two workers; worker 1 kills itself at step {KILLED_AT}"):
            trainer = train.Trainer(
                loop,
                2,
                config={"rate": 0.2, "deed": str(Path(folder) / "deed")},
                datasets={"points": points},
                storage_path=folder,
                failures=1,
            )
            result = trainer.fit()
            assert (Path(folder) / "deed").exists()
        assert result.checkpoint is not None
        learned = result.checkpoint.to_dict()["weights"]
        say(f"learned, of 0 to 9: {', '.join(f'{weight:.2f}' for weight in learned)}")
        losses = [float(report["loss"]) for report in result.history]
        print(chart.sketch({"loss over steps": list(enumerate(losses))}))
