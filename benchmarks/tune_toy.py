"""The toy problem of the PBT paper and its figure 2 (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846).

Two workers climb Q = 1.2 - |theta|² from theta = (0.9, 0.9), but each sees only a surrogate that weighs the coordinates
by its h, which begins as (1, 0) and (0, 1). Grid search cannot do it: each worker sees one coordinate. PBT can.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from weft import tune
from weft.tune.schedulers import PopulationBasedTraining, Restart, TrialScheduler
from weft.tune.schedulers.scheduler import CONTINUE, Decision
from weft.tune.simulation import Outcome, simulate
from weft.tune.trial import Trial

STEPS, INTERVAL = 200, 4
MUTATIONS = {"h0": tune.uniform(0, 1), "h1": tune.uniform(0, 1)}
KINDS = ("PBT", "Explore only", "Exploit only", "Grid search")


class Toy(tune.Trainable):
    """Figure 2 of the PBT paper: the true objective is 1.2 - |theta|², the surrogate weighs the coordinates by h."""

    def setup(self, config: dict[str, Any]) -> None:
        self.theta = [0.9, 0.9]

    def step(self) -> dict[str, Any]:
        for index, key in enumerate(("h0", "h1")):
            self.theta[index] -= 0.01 * 2 * self.config[key] * self.theta[index]
        return {"q": 1.2 - sum(value**2 for value in self.theta), "theta": list(self.theta)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"theta": list(self.theta)}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.theta = list(checkpoint["theta"])


class ExploreOnly(TrialScheduler):
    """Every worker goes on from its own weights, with an h drawn anew."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        if result["training_iteration"] % INTERVAL:
            return CONTINUE
        return Restart({key: domain.sample(self._rng) for key, domain in MUTATIONS.items()})


def scheduler_of(kind: str, seed: int) -> TrialScheduler | None:
    if kind == "Grid search":
        return None
    if kind == "Explore only":
        return ExploreOnly(seed)
    return PopulationBasedTraining(
        perturbation_interval=INTERVAL,
        hyperparam_mutations=MUTATIONS,
        quantile_fraction=0.5,
        resample_probability=0.25 if kind == "PBT" else 0.0,
        perturbation_factors=(1.2, 0.8) if kind == "PBT" else (1.0, 1.0),
        synch=True,
    )


def toy(kind: str, seed: int) -> Outcome:
    """Two workers, 200 steps each."""
    return simulate(
        Toy,
        {"h0": tune.sample_from(lambda config: 1.0 - config.h1), "h1": tune.grid_search([0.0, 1.0])},
        metric="q",
        mode="max",
        slots=2,
        num_samples=1,
        max_steps=STEPS,
        scheduler=scheduler_of(kind, seed),
        seed=seed,
    )


def draw(path: str, seed: int = 0) -> None:
    """The paper's figure: above Q over the steps, below where the two workers went."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(2, len(KINDS), sharey="row")
    for column, kind in enumerate(KINDS):
        outcome = toy(kind, seed)
        above, below = panels[0][column], panels[1][column]
        for trial_id, colour in zip(outcome.curves, ("black", "tab:red"), strict=True):
            results = [entry[2] for entry in outcome.entries if entry[0] == "reported" and entry[1] == trial_id]
            above.plot([result["q"] for result in results], color=colour)
            places = zip(*(result["theta"] for result in results), strict=True)
            below.scatter(*places, s=3, color=colour, rasterized=True)
        above.set_title(f"{kind}: {outcome.best_value:.2f}")
        above.set_xlabel("step")
        below.set_xlabel("theta 0")
        below.set_xlim(-0.05, 0.95)
    panels[0][0].set_ylabel("Q")
    panels[1][0].set_ylabel("theta 1")
    figure.savefig(path)
