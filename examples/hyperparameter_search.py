"""Successive halving on bare tasks: many settings get a little training, the better half gets twice as much, and so on.

python examples/hyperparameter_search.py

The data is put once and read in place by every task; a setting's weights travel as refs from one rung to the next.
`weft.tune` has this and much more: examples/tune_quickstart.py.
"""

from __future__ import annotations

import numpy as np

import weft

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Weights = list[np.ndarray]


def rings(samples: int = 1_000) -> Data:
    """Points in two noisy rings, and which ring; the last fifth is for validation."""
    draw = np.random.default_rng(0)
    ring = draw.integers(0, 2, samples)
    angle, radius = draw.uniform(0, 2 * np.pi, samples), 1.0 + ring + 0.25 * draw.standard_normal(samples)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    cut = samples * 4 // 5
    return points[:cut], ring[:cut], points[cut:], ring[cut:]


def forward(weights: Weights, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.tanh(points @ weights[0] + weights[1])
    return hidden, 1 / (1 + np.exp(-(hidden @ weights[2] + weights[3])))


@weft.remote(num_returns=2)
def train(config: dict[str, float], weights: Weights | None, data: Data, epochs: int) -> tuple[float, Weights]:
    """The accuracy after so many epochs more, and the weights to go on from."""
    points, labels, unseen, unseen_labels = data
    width, draw = int(config["width"]), np.random.default_rng(1)
    if weights is None:
        weights = [draw.standard_normal((2, width)), np.zeros(width), draw.standard_normal(width) / 4, np.zeros(1)]
    weights = [array.copy() for array in weights]
    for _ in range(epochs):
        for batch in np.array_split(draw.permutation(len(points)), 25):
            hidden, likely = forward(weights, points[batch])
            error = (likely - labels[batch]) / len(batch)
            back = np.outer(error, weights[2]) * (1 - hidden**2)
            gradients = [points[batch].T @ back, back.sum(0), hidden.T @ error, error.sum(keepdims=True)]
            for array, gradient in zip(weights, gradients, strict=True):
                array -= config["rate"] * gradient
    return float(((forward(weights, unseen)[1] > 0.5) == unseen_labels).mean()), weights


def main(settings: int = 16, epochs: int = 4) -> tuple[float, dict[str, float]]:
    """The best accuracy, and the setting that has it."""
    data = weft.put(rings())
    draw = np.random.default_rng(2)
    configs = [
        {"rate": float(10 ** draw.uniform(-3, 0.5)), "width": float(draw.integers(2, 24))} for _ in range(settings)
    ]
    survivors = [(config, None) for config in configs]
    while True:
        pairs = [train.remote(config, weights, data, epochs) for config, weights in survivors]
        scores = weft.get([accuracy for accuracy, _ in pairs])
        order = sorted(range(len(scores)), key=lambda number: -scores[number])
        best, config = scores[order[0]], survivors[order[0]][0]
        print(f"{len(survivors):3d} settings, {epochs:3d} epochs more: best {best:.3f}, worst {min(scores):.3f}")
        if len(survivors) == 1:
            print(f"rate {config['rate']:.3f}, width {config['width']:.0f}")
            return best, config
        survivors = [(survivors[number][0], pairs[number][1]) for number in order[: len(order) // 2]]
        epochs *= 2


if __name__ == "__main__":
    main()
