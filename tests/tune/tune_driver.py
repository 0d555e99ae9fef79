"""A program that tunes, to be killed at any moment: `python tune_driver.py PATH KIND`. It restores
if there is something.

Prints `began PID` once trials may run, and `best TRIAL CONFIG VALUE` at the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import weft
from weft import tune
from weft.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining

STEPS = 12


class Slow(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.value = 0.0

    def step(self) -> dict[str, Any]:
        time.sleep(0.004)
        self.value += self.config["speed"]
        return {"value": self.value}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"value": self.value}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.value = checkpoint["value"]


def slow(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    step = checkpoint.to_dict()["step"] if checkpoint else 0
    while step < STEPS:
        step += 1
        time.sleep(0.004)
        tune.report({"value": step * config["speed"]}, checkpoint={"step": step} if step % 3 == 0 else None)


def short(config: dict[str, Any]) -> dict[str, Any]:
    """So short that it runs in bundles."""
    return {"value": config["speed"]}


KINDS: dict[str, tuple[Any, Any]] = {
    "function": (slow, None),
    "short": (short, None),
    "class": (Slow, None),
    "asha": (Slow, ASHAScheduler(max_t=STEPS, reduction_factor=3)),
    "hyperband": (Slow, HyperBandScheduler(max_t=9)),
    "pbt": (
        Slow,
        PopulationBasedTraining(perturbation_interval=4, hyperparam_mutations={"speed": [1.0, 2.0, 3.0]}, synch=True),
    ),
}


def main() -> None:
    path, kind = sys.argv[1:3]
    trainable, scheduler = KINDS[kind]
    samples = 200 if kind == "short" else 3
    weft.init(num_cpus=2)
    print("began", os.getpid(), flush=True)
    experiment = os.path.join(path, kind)
    if tune.Tuner.can_restore(experiment):
        tuner = tune.Tuner.restore(experiment)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={"speed": tune.grid_search([1.0, 3.0, 2.0])},
            tune_config=tune.TuneConfig(metric="value", mode="max", num_samples=samples, scheduler=scheduler, seed=0),
            run_config=tune.RunConfig(
                name=kind,
                storage_path=path,
                stop={"training_iteration": STEPS},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=3, num_to_keep=1),
            ),
        )
    grid = tuner.fit()
    best = grid.get_best_result()
    outcome = {
        "best": [best.trial_id, best.config, best.metrics["value"]],
        "statuses": sorted({result.status for result in grid}),
        "trials": len(grid),
        "histories": [[row["training_iteration"] for row in result.history] for result in grid],
    }
    print("best", json.dumps(outcome), flush=True)
    weft.shutdown()


if __name__ == "__main__":
    main()
