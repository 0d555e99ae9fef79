"""Run a model over a lot of inputs: its weights lie once in shared memory, and each worker reads them in place.

python examples/batch_inference.py

An actor loads the model once and answers many batches. A reader makes the next batches meanwhile, and is held back when
the models cannot follow. `weft.data` does the same over files: `read_parquet(...).map_batches(Model, concurrency=4)`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import weft
from weft.util import ActorPool

CLASSES, PIXELS, WIDTH = 10, 784, 2_048


def weights_of_a_model(seed: int = 0) -> list[np.ndarray]:
    """Stands for a file of weights: 13 MB of them."""
    draw = np.random.default_rng(seed)
    shapes = [(PIXELS, WIDTH), (WIDTH, CLASSES)]
    return [(draw.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32) for shape in shapes]


@weft.remote
class Model:
    def __init__(self, weights: list[np.ndarray]) -> None:
        self.first, self.second = weights  # views of shared memory: no copy in this process
        assert not self.first.flags.writeable

    def predict(self, batch: np.ndarray) -> np.ndarray:
        return (np.maximum(batch @ self.first, 0) @ self.second).argmax(axis=1)


@weft.remote(_generator_backpressure_num_objects=4)
def read_batches(batches: int, size: int) -> Iterator[np.ndarray]:
    """Stands for files: at most four batches ahead of who takes them."""
    for seed in range(batches):
        yield np.random.default_rng(seed).standard_normal((size, PIXELS)).astype(np.float32)


def main(batches: int = 40, size: int = 512, models: int = 2) -> np.ndarray:
    """How many inputs were put into each class."""
    weights = weft.put(weights_of_a_model())
    pool = ActorPool([Model.remote(weights) for _ in range(models)])
    counts = np.zeros(CLASSES, dtype=int)
    for batch in read_batches.remote(batches, size):
        if not pool.has_free():
            counts += np.bincount(pool.get_next_unordered(), minlength=CLASSES)
        pool.submit(lambda model, ref: model.predict.remote(ref), batch)
    while pool.has_next():
        counts += np.bincount(pool.get_next_unordered(), minlength=CLASSES)
    print(f"{counts.sum():,} inputs by class:", *counts)
    return counts


if __name__ == "__main__":
    main()
