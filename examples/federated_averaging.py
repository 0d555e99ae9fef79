"""Federated averaging: clients keep their data, and only models travel.

python examples/federated_averaging.py

Each client is an actor that has mostly two of ten classes, and alone learns little. Every round some of them train the
shared model on their own data; the average, weighted by how much data each has, is the next model.
"""

from __future__ import annotations

import numpy as np

import weft

CLASSES, FEATURES = 10, 20


def sample(draw: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """A cloud of points around each class's centre."""
    centres = np.random.default_rng(0).standard_normal((CLASSES, FEATURES))
    return centres[labels] + 1.2 * draw.standard_normal((len(labels), FEATURES))


def accuracy(model: np.ndarray, points: np.ndarray, labels: np.ndarray) -> float:
    return float(((np.c_[points, np.ones(len(points))] @ model).argmax(axis=1) == labels).mean())


@weft.remote
class Client:
    """The data is made here and never leaves."""

    def __init__(self, number: int) -> None:
        self.draw = np.random.default_rng(number + 1)
        rare, usual = self.draw.integers(0, CLASSES, 10), self.draw.choice([number, number + 1], 50 + 20 * number)
        self.labels = np.r_[rare, usual % CLASSES]
        self.points = np.c_[sample(self.draw, self.labels), np.ones(len(self.labels))]

    def train(self, model: np.ndarray, epochs: int = 5, rate: float = 0.1) -> tuple[np.ndarray, int]:
        """The model after some epochs on this client's data, and how much data that is."""
        model = model.copy()  # what came is a view of shared memory
        for _ in range(epochs):
            for batch in np.array_split(self.draw.permutation(len(self.labels)), len(self.labels) // 10):
                scores = self.points[batch] @ model
                odds = np.exp(scores - scores.max(axis=1, keepdims=True))
                odds /= odds.sum(axis=1, keepdims=True)
                odds[np.arange(len(batch)), self.labels[batch]] -= 1
                model -= rate * self.points[batch].T @ odds / len(batch)
        return model, len(self.labels)


def main(rounds: int = 20, clients: int = CLASSES, a_round: int = 5) -> tuple[float, float]:
    """The accuracy of the best client that learned alone, and of the shared model."""
    draw = np.random.default_rng(100)
    labels = draw.integers(0, CLASSES, 2_000)
    points = sample(draw, labels)
    everyone = [Client.options(num_cpus=0).remote(number) for number in range(clients)]
    nothing = np.zeros((FEATURES + 1, CLASSES))
    models = weft.get([client.train.remote(nothing, epochs=20) for client in everyone])
    alone = max(accuracy(model, points, labels) for model, _ in models)
    print(f"the best client alone: {alone:.1%}")
    model = nothing
    for number in range(1, rounds + 1):
        shared = weft.put(model)
        chosen = draw.choice(clients, a_round, replace=False)
        models, sizes = zip(*weft.get([everyone[client].train.remote(shared) for client in chosen]), strict=True)
        model = np.average(models, axis=0, weights=sizes)
        if number % 5 == 0:
            print(f"round {number:2d}: {accuracy(model, points, labels):.1%}")
    return alone, accuracy(model, points, labels)


if __name__ == "__main__":
    main()
