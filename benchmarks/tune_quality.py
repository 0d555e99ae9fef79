"""How good the answers are: early stopping and BOHB beside Optuna's and Syne Tune's, and PBT's published toy problem.

    python benchmarks/tune_quality.py                  # 30 seeds, medians
    python benchmarks/tune_quality.py --seeds 5 --budget 400

Syne Tune is measured when it is installed (pip install syne-tune statsmodels).

All runs are in virtual time, with the same number of workers and the same budget of steps. A run's figure is the lowest
loss that any trial has reported by the end of the budget; the table has the median over the seeds, lower is better.
The problems are synthetic learning curves whose ranking changes with time, with noise: `Crossing` in 2 dimensions,
where fast learners end high, and `Hartmann` with the 3-dimensional Hartmann function as what curves fall to.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import warnings
from collections.abc import Callable
from typing import Any

from weft import tune
from weft.tune.schedulers import ASHAScheduler, HyperBandForBOHB, HyperBandScheduler, PopulationBasedTraining
from weft.tune.search import OptunaSearch, TuneBOHB
from weft.tune.simulation import simulate

MAX_T = 81
ETA = 3
SLOTS = 4

HARTMANN_A = ((3.0, 10, 30), (0.1, 10, 35), (3.0, 10, 30), (0.1, 10, 35))
HARTMANN_C = (1.0, 1.2, 3.0, 3.2)
HARTMANN_P = (
    (0.3689, 0.1170, 0.2673),
    (0.4699, 0.4387, 0.7470),
    (0.1091, 0.8732, 0.5547),
    (0.0381, 0.5743, 0.8828),
)


class Curve(tune.Trainable):
    """loss(t) = floor + (1 - floor) * exp(-t / tau) + noise, where floor and tau depend on the configuration."""

    def setup(self, config: dict[str, Any]) -> None:
        self.t = 0
        self.floor, self.tau = self.shape(config)
        self.noise = random.Random(repr(sorted(config.items())))

    def shape(self, config: dict[str, Any]) -> tuple[float, float]:
        raise NotImplementedError

    def step(self) -> dict[str, Any]:
        self.t += 1
        loss = self.floor + (1 - self.floor) * math.exp(-self.t / self.tau)
        return {"loss": loss + self.noise.gauss(0, 0.005)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"t": self.t, "noise": self.noise.getstate()}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.t = checkpoint["t"]
        self.noise.setstate(checkpoint["noise"])


class Crossing(Curve):
    space: dict[str, Any] = {"lr": tune.loguniform(1e-4, 1), "decay": tune.uniform(0, 1)}  # noqa: RUF012

    def shape(self, config: dict[str, Any]) -> tuple[float, float]:
        speed = (math.log10(config["lr"]) + 4) / 4  # 0 slow … 1 fast
        return 0.05 + 0.3 * (speed - 0.6) ** 2 + 0.2 * (config["decay"] - 0.4) ** 2, 2 + 30 * (1 - speed)


class Hartmann(Curve):
    space: dict[str, Any] = {key: tune.uniform(0, 1) for key in "abc"}  # noqa: RUF012

    def shape(self, config: dict[str, Any]) -> tuple[float, float]:
        x = [config[key] for key in "abc"]
        value = sum(
            c * math.exp(-sum(a * (xi - p) ** 2 for a, xi, p in zip(row_a, x, row_p, strict=True)))
            for c, row_a, row_p in zip(HARTMANN_C, HARTMANN_A, HARTMANN_P, strict=True)
        )
        return max(0.02, (3.8628 - value) / 4), 5 + 25 * x[0]


def of_weft(
    make_scheduler: Callable[[], Any], make_searcher: Callable[[int], Any]
) -> Callable[[Any, int, float], float]:
    def run(model: Any, seed: int, budget: float) -> float:
        outcome = simulate(
            model,
            model.space,
            metric="loss",
            mode="min",
            scheduler=make_scheduler(),
            searcher=make_searcher(seed),
            slots=SLOTS,
            budget=budget,
            max_steps=MAX_T,
            seed=seed,
        )
        return outcome.best_value

    return run


def of_optuna(make_pruner: Callable[[], Any], sampler: str) -> Callable[[Any, int, float], float]:
    """Optuna's own loop in virtual time: ask, report, should_prune."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def run(model: Any, seed: int, budget: float) -> float:
        samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
        study = optuna.create_study(direction="minimize", pruner=make_pruner(), sampler=samplers[sampler](seed=seed))
        agenda: list[tuple[float, int, Any, Any]] = []
        order, best = 0, math.inf

        def begin(now: float) -> None:
            nonlocal order
            trial = study.ask()
            config = {}
            for key, domain in model.space.items():
                config[key] = trial.suggest_float(key, domain.lower, domain.upper, log=domain.log)
            order += 1
            heapq.heappush(agenda, (now + 1, order, trial, model(config)))

        for _ in range(SLOTS):
            begin(0.0)
        while agenda:
            now, _, trial, curve = heapq.heappop(agenda)
            if now > budget:
                break
            loss = curve.step()["loss"]
            best = min(best, loss)
            trial.report(loss, curve.t)
            if curve.t >= MAX_T:
                study.tell(trial, loss)
                begin(now)
            elif trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                begin(now)
            else:
                order += 1
                heapq.heappush(agenda, (now + 1, order, trial, curve))
        return best

    return run


def of_syne_tune(baseline: str) -> Callable[[Any, int, float], float] | None:
    """Syne Tune's own scheduler in virtual time; None when it is not installed."""
    try:
        from syne_tune.backend.trial_status import Trial
        from syne_tune.config_space import loguniform, uniform
        from syne_tune.optimizer import baselines
    except ModuleNotFoundError:
        return None
    import datetime
    import logging

    import numpy as np

    logging.getLogger("syne_tune").setLevel(logging.ERROR)

    def run(model: Any, seed: int, budget: float) -> float:
        np.random.seed(seed)
        kinds = {True: loguniform, False: uniform}
        space = {key: kinds[domain.log](domain.lower, domain.upper) for key, domain in model.space.items()}
        scheduler = getattr(baselines, baseline)(
            space, metric="loss", time_attr="t", max_t=MAX_T, reduction_factor=ETA, random_seed=seed
        )
        agenda: list[tuple[float, int, Any, Any]] = []
        order, best = 0, math.inf

        def begin(now: float) -> None:
            nonlocal order
            config = scheduler.suggest().config
            trial = Trial(order, config, datetime.datetime.now())
            scheduler.on_trial_add(trial)
            order += 1
            heapq.heappush(agenda, (now + 1, order, trial, model(config)))

        for _ in range(SLOTS):
            begin(0.0)
        while agenda:
            now, _, trial, curve = heapq.heappop(agenda)
            if now > budget:
                break
            result = {**curve.step(), "t": curve.t}
            best = min(best, result["loss"])
            if curve.t >= MAX_T:
                scheduler.on_trial_complete(trial, result)
                begin(now)
            elif scheduler.on_trial_result(trial, result) != "CONTINUE":
                begin(now)
            else:
                order += 1
                heapq.heappush(agenda, (now + 1, order, trial, curve))
        return best

    return run


class Toy(tune.Trainable):
    """Figure 2 of the PBT paper: the true objective is 1.2 - |theta|², the surrogate weighs the coordinates by h."""

    def setup(self, config: dict[str, Any]) -> None:
        self.theta = [0.9, 0.9]

    def step(self) -> dict[str, Any]:
        for index, key in enumerate(("h0", "h1")):
            self.theta[index] -= 0.01 * 2 * self.config[key] * self.theta[index]
        return {"q": 1.2 - sum(value**2 for value in self.theta)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"theta": list(self.theta)}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.theta = list(checkpoint["theta"])


def toy(with_pbt: bool, seed: int) -> float:
    """The best Q after 200 steps of two workers that begin with h = (1, 0) and (0, 1)."""
    mutations = {"h0": tune.uniform(0, 1), "h1": tune.uniform(0, 1)}
    scheduler = PopulationBasedTraining(
        perturbation_interval=4, hyperparam_mutations=mutations, quantile_fraction=0.5, synch=True
    )
    outcome = simulate(
        Toy,
        {"h0": tune.sample_from(lambda config: 1.0 - config.h1), "h1": tune.grid_search([0.0, 1.0])},
        metric="q",
        mode="max",
        slots=2,
        num_samples=1,
        max_steps=200,
        scheduler=scheduler if with_pbt else None,
        seed=seed,
    )
    return outcome.best_value


Run = Callable[[Any, int, float], float]


def contenders() -> dict[str, tuple[Run, Run, Run | None]]:
    """what -> (ours, Optuna's, Syne Tune's)"""
    import optuna

    def random_search(seed: int) -> Any:
        return None

    halving = lambda: optuna.pruners.SuccessiveHalvingPruner(1, ETA)  # noqa: E731
    band = lambda: optuna.pruners.HyperbandPruner(1, MAX_T, ETA)  # noqa: E731
    asha = lambda: ASHAScheduler(max_t=MAX_T, reduction_factor=ETA)  # noqa: E731
    promotion = lambda: ASHAScheduler(max_t=MAX_T, reduction_factor=ETA, variant="promotion")  # noqa: E731
    hyperband = lambda: HyperBandScheduler(max_t=MAX_T)  # noqa: E731
    bohb = lambda: HyperBandForBOHB(max_t=MAX_T)  # noqa: E731
    asynchronous = lambda: ASHAScheduler(max_t=MAX_T, reduction_factor=ETA, brackets=5)  # noqa: E731
    three = lambda: ASHAScheduler(max_t=MAX_T, reduction_factor=ETA, brackets=3)  # noqa: E731
    syne_asha, syne_bohb = of_syne_tune("ASHA"), of_syne_tune("BOHB")
    return {
        "ASHA, random": (of_weft(asha, random_search), of_optuna(halving, "random"), syne_asha),
        "ASHA promotion, random": (of_weft(promotion, random_search), of_optuna(halving, "random"), syne_asha),
        "HyperBand, random": (of_weft(hyperband, random_search), of_optuna(band, "random"), None),
        "HyperBand asynchronous": (of_weft(asynchronous, random_search), of_optuna(band, "random"), None),
        "BOHB": (of_weft(bohb, lambda seed: TuneBOHB(seed=seed)), of_optuna(band, "tpe"), syne_bohb),
        "BOHB asynchronous": (
            of_weft(three, lambda seed: TuneBOHB(seed=seed, learn_from="all")),
            of_optuna(band, "tpe"),
            syne_bohb,
        ),
        "ASHA, TPE": (of_weft(asha, lambda seed: OptunaSearch("tpe", seed=seed)), of_optuna(halving, "tpe"), None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--budget", type=float, default=500, help="steps of virtual time of each of the workers")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{args.seeds} seeds, {SLOTS} workers, {args.budget:g} steps each: median of the lowest loss")
    print(f"{'':28}{'':12}{'Weft':>10}{'Optuna':>10}{'Syne Tune':>12}")
    for name, sides in contenders().items():
        for model in (Crossing, Hartmann):
            medians = [
                statistics.median(side(model, seed, args.budget) for seed in range(args.seeds)) if side else math.nan
                for side in sides
            ]
            print(f"{name:28}{model.__name__:12}{medians[0]:>10.4f}{medians[1]:>10.4f}{medians[2]:>12.4f}", flush=True)
    found = statistics.median(toy(True, seed) for seed in range(args.seeds))
    print(f"PBT's toy problem, Q after 200 steps (at most 1.2): {found:.3f}; grid search: {toy(False, 0):.3f}")


if __name__ == "__main__":
    main()
