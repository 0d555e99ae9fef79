"""train.Trainer: the same loop in every worker, gradients averaged, checkpoints, any number of workers.

python examples/train_quickstart.py
"""

from __future__ import annotations

import tempfile

import numpy as np

import weft
from weft import train


def loop(config: dict[str, float]) -> None:
    context, data = train.get_context(), train.get_dataset_shard("points")
    state = {"weights": np.zeros(10), "step": 0}
    if (checkpoint := train.get_checkpoint()) is not None:
        state = checkpoint.to_dict()
    for step in range(state["step"], 100):
        gradient = data[:, :10].T @ (data[:, :10] @ state["weights"] - data[:, 10]) / len(data)
        state = {"weights": state["weights"] - config["rate"] * context.group.all_reduce(gradient, "mean")}
        state["step"] = step + 1
        train.report({"norm": float(np.linalg.norm(gradient))}, checkpoint=state if step % 10 == 9 else None)


def main() -> None:
    weft.init(num_cpus=2)
    inputs = np.random.default_rng(0).normal(size=(1000, 10))
    points = np.column_stack([inputs, inputs @ np.arange(10)])
    with tempfile.TemporaryDirectory() as folder:
        trainer = train.Trainer(loop, 2, config={"rate": 0.2}, datasets={"points": points}, storage_path=folder)
        print("learned:", np.round(trainer.fit().checkpoint.to_dict()["weights"], 3))
    weft.shutdown()


if __name__ == "__main__":
    main()
