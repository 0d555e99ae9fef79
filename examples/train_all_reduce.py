"""Data-parallel gradient descent in NumPy: four tasks, one model, gradients averaged through shared memory.

python examples/train_all_reduce.py
"""

from __future__ import annotations

import numpy as np

import weft
from weft import train

WORKERS = 4
STEPS = 200


@weft.remote(num_cpus=0)
def worker(meeting: train.Meeting, rank: int) -> np.ndarray:
    true_weights = np.arange(10.0)
    generator = np.random.default_rng(rank)
    inputs = generator.normal(size=(1000, 10))  # this worker's share of the data
    targets = inputs @ true_weights
    weights = np.zeros(10)
    with meeting.join(rank) as group:
        for _ in range(STEPS):
            gradient = inputs.T @ (inputs @ weights - targets) / len(inputs)
            weights -= 0.1 * group.all_reduce(gradient, "mean")
    return weights


def main() -> None:
    weft.init()
    meeting = train.Meeting(WORKERS)
    learned = weft.get([worker.remote(meeting, rank) for rank in range(WORKERS)])
    assert all((weights == learned[0]).all() for weights in learned), "all workers have the same weights, bit by bit"
    print("learned:", np.round(learned[0], 3))
    weft.shutdown()


if __name__ == "__main__":
    main()
