"""Price an option by simulation, with as many tasks as it takes to be sure, and none more.

python examples/monte_carlo.py

The option pays what the geometric mean of a stock's daily prices is above a strike. That one has a formula, so the
answer can be checked.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

import weft

SPOT, STRIKE, RATE, VOLATILITY, DAYS = 100.0, 100.0, 0.03, 0.25, 60


@weft.remote
def simulate(paths: int, seed: int) -> tuple[int, float, float]:
    """How many paths, the sum of what they pay today, and the sum of its squares."""
    step = 1 / 252
    normal = np.random.default_rng(seed).standard_normal((paths, DAYS))
    logs = math.log(SPOT) + np.cumsum((RATE - VOLATILITY**2 / 2) * step + VOLATILITY * math.sqrt(step) * normal, axis=1)
    paid = math.exp(-RATE * DAYS * step) * np.maximum(np.exp(logs.mean(axis=1)) - STRIKE, 0.0)
    return paths, float(paid.sum()), float((paid**2).sum())


def formula() -> float:
    step, cdf = 1 / 252, NormalDist().cdf
    mean = math.log(SPOT) + (RATE - VOLATILITY**2 / 2) * step * (DAYS + 1) / 2
    deviation = VOLATILITY * math.sqrt(step * (DAYS + 1) * (2 * DAYS + 1) / (6 * DAYS))
    far = (mean - math.log(STRIKE) + deviation**2) / deviation
    forward = math.exp(mean + deviation**2 / 2) * cdf(far) - STRIKE * cdf(far - deviation)
    return math.exp(-RATE * DAYS * step) * forward


def main(wanted_error: float = 0.005, paths_a_task: int = 20_000) -> tuple[float, float]:
    """The estimate and its standard error; tasks are added until that is small enough."""
    ahead = 2 * int(weft.cluster_resources()["CPU"])
    running = [simulate.remote(paths_a_task, seed) for seed in range(ahead)]
    seeds, count, total, squares = ahead, 0, 0.0, 0.0
    while True:
        (done,), running = weft.wait(running)
        paths, paid, paid_squared = weft.get(done)
        count, total, squares = count + paths, total + paid, squares + paid_squared
        price = total / count
        error = math.sqrt((squares / count - price**2) / count)
        if error < wanted_error:
            break
        running.append(simulate.remote(paths_a_task, seeds))
        seeds += 1
    for ref in running:
        weft.cancel(ref)
    print(f"{count:,} paths: {price:.4f} ± {error:.4f}; the formula says {formula():.4f}")
    return price, error


if __name__ == "__main__":
    weft.init()
    main()
