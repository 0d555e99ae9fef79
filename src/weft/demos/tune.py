"""`weft demo tune`: a search over learning rate and momentum; trials that do badly are stopped early."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from weft import tune
from weft.demos import Options, chart
from weft.demos.story import chapter, say, session

STEPS = 40


def train(config: dict[str, Any]) -> None:
    """Gradient descent with momentum on a long, narrow valley; too large a step never settles."""
    stiffness = np.array([1.0, 40.0])
    position, speed = np.array([4.0, 1.0]), np.zeros(2)
    for _ in range(STEPS):
        speed = config["momentum"] * speed - config["rate"] * stiffness * position
        position = np.clip(position + speed, -10, 10)
        tune.report(loss=float(0.5 * (stiffness * position**2).sum()))


def main(options: Options) -> None:
    count = 12 if options.short else 60
    space = {"rate": tune.loguniform(1e-4, 1e-1), "momentum": tune.uniform(0.0, 0.99)}
    with session(), tempfile.TemporaryDirectory() as folder:
        with chapter(f"{count} trials, side by side, with ASHA"):
            how = tune.TuneConfig(metric="loss", mode="min", num_samples=count, scheduler="asha")
            results = tune.Tuner(
                train, param_space=space, tune_config=how, run_config=tune.RunConfig(storage_path=folder, verbose=0)
            ).fit()
        best = results.get_best_result()
        steps = [int(result.metrics["training_iteration"]) for result in results]
        early = sum(done < STEPS for done in steps)
        say(f"{sum(steps):,} of {count * STEPS:,} steps were run: {early} trials ended early")
        rate, momentum = best.config["rate"], best.config["momentum"]
        say(f"the best: rate {rate:.4f}, momentum {momentum:.2f}, loss {best.metrics['loss']:.2g}")
        losses = [min(float(result.metrics["loss"]), 100.0) for result in results]
        print(chart.sketch({"loss of each trial, at most 100": list(enumerate(losses))}))
