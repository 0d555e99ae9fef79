"""How good the answers are: early stopping, BOHB and PBT beside Optuna's and Syne Tune's, and PBT's toy problem.

    python benchmarks/tune_quality.py                         # 30 seeds, medians
    python benchmarks/tune_quality.py --seeds 5 --steps 1200
    python benchmarks/tune_quality.py --lcbench yahpo_data/lcbench      # and real curves: pip install onnxruntime
    python benchmarks/tune_quality.py --figure docs/images/tune-pbt-toy.svg    # PBT's figure 2, instead

All runs are in virtual time, with the same number of workers and the same number of steps in all; a trial that pauses
goes on from its checkpoint, everywhere. The figure is the true loss of the incumbent (see `tune_problems.Tally`) when
so many steps have been made; the table has the median over the seeds, lower is better.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from collections.abc import Callable
from typing import Any

from tune_peers import ETA, SLOTS, Run, of_optuna, of_syne_tune
from tune_problems import Crossing, Drifting, Hartmann, Problem, Tally, lcbench_problems
from tune_toy import draw, toy

from weft.tune.schedulers import ASHAScheduler, HyperBandForBOHB, HyperBandScheduler, PopulationBasedTraining
from weft.tune.search import OptunaSearch, TuneBOHB
from weft.tune.simulation import simulate

POPULATION = 8
"""Of PBT, each with a worker of its own."""


def of_weft(make_scheduler: Callable[[int], Any], make_searcher: Callable[[int], Any], slots: int = SLOTS) -> Run:
    def run(problem: type[Problem], seed: int, steps: int) -> Tally:
        tally = Tally()
        simulate(
            problem.with_tally(tally),
            problem.space,
            metric="loss",
            mode="min",
            scheduler=make_scheduler(problem.max_t),
            searcher=make_searcher(seed),
            slots=slots,
            budget=math.ceil(steps / slots),
            num_samples=POPULATION if slots == POPULATION else -1,
            max_steps=problem.max_t,
            seed=seed,
            checkpoint_frequency=int(slots == POPULATION),  # as Syne Tune's users save: it clones a trial as it is now
        )
        return tally

    return run


def contenders() -> dict[str, tuple[Run, Run | None, Run | None]]:
    """what -> (ours, Optuna's, Syne Tune's)"""
    import optuna

    def random_search(seed: int) -> Any:
        return None

    def asha(**options: Any) -> Callable[[int], Any]:
        return lambda max_t: ASHAScheduler(max_t=max_t, reduction_factor=ETA, **options)

    def halving(max_t: int) -> Any:
        return optuna.pruners.SuccessiveHalvingPruner(1, ETA)

    def band(max_t: int) -> Any:
        return optuna.pruners.HyperbandPruner(1, max_t, ETA)

    def hyperband(max_t: int) -> Any:
        return HyperBandScheduler(max_t=max_t, reduction_factor=ETA)

    def bohb(max_t: int) -> Any:
        return HyperBandForBOHB(max_t=max_t, reduction_factor=ETA)

    rung = {"reduction_factor": ETA, "grace_period": 1}
    promoting = of_syne_tune("ASHA", type="promotion", **rung)
    bands = of_syne_tune("ASHA", type="stopping", brackets=5, **rung)
    return {
        "ASHA": (
            of_weft(asha(), random_search),
            of_optuna(halving, "random"),
            of_syne_tune("ASHA", type="stopping", **rung),
        ),
        "ASHA, promotion": (of_weft(asha(variant="promotion"), random_search), None, promoting),
        "HyperBand": (of_weft(hyperband, random_search), None, of_syne_tune("SyncHyperband", **rung)),
        "HyperBand, async": (of_weft(asha(brackets=5), random_search), of_optuna(band, "random"), bands),
        "BOHB": (of_weft(bohb, lambda seed: TuneBOHB(seed=seed)), None, of_syne_tune("SyncBOHB", **rung)),
        "BOHB, async": (
            of_weft(asha(brackets=3), lambda seed: TuneBOHB(seed=seed, learn_from="all")),
            of_optuna(band, "tpe"),
            of_syne_tune("BOHB", type="stopping", brackets=3, **rung),
        ),
        "ASHA, TPE": (of_weft(asha(), lambda seed: OptunaSearch("tpe", seed=seed)), of_optuna(halving, "tpe"), None),
    }


def pbt() -> tuple[Run, Run | None, Run | None]:
    def population(max_t: int) -> Any:
        return PopulationBasedTraining(perturbation_interval=5, hyperparam_mutations=Drifting.space)

    peer = of_syne_tune("PopulationBasedTraining", perturbation_interval=5, population_size=POPULATION)
    return of_weft(population, lambda seed: None, POPULATION), None, peer


def compare(name: str, sides: tuple[Run | None, ...], problem: type[Problem], seeds: int, marks: list[int]) -> None:
    """A line for each number of steps."""
    tallies = [
        [side(problem, seed, max(marks)) for seed in range(seeds)] if side is not None else None for side in sides
    ]
    for steps in marks:
        medians = [
            statistics.median(tally.at(steps) for tally in of_side) if of_side is not None else math.nan
            for of_side in tallies
        ]
        figures = "".join(f"{'' if math.isnan(median) else f'{median:.4f}':>11}" for median in medians)
        ours, *others = [[] if of_side is None else [tally.at(steps) for tally in of_side] for of_side in tallies]
        won = "".join(f"{f'{share_won(ours, theirs):.0%}' if theirs else '':>7}" for theirs in others)
        print(f"{name:18}{problem.__name__:16}{steps:>6}{figures}{won}", flush=True)


def share_won(ours: list[float], theirs: list[float]) -> float:
    """Of all pairs of runs, those in which ours has the lower loss; a draw is half of one."""
    won = sum((one < other) + (one == other) / 2 for one in ours for other in theirs)
    return won / (len(ours) * len(theirs))


def chance(seeds: int) -> float:
    """How far from one half the share of equals is in 19 of 20 comparisons (Mann and Whitney's test)."""
    return 1.96 * math.sqrt((2 * seeds + 1) / (12 * seeds**2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--steps", default="1200,2000", help="of all workers together; several with commas")
    parser.add_argument("--lcbench", help="the folder lcbench of github.com/slds-lmu/yahpo_data")
    parser.add_argument("--only", help="what to compare, by the first column; several with semicolons")
    parser.add_argument("--problems", help="by the second column; several with semicolons")
    parser.add_argument("--figure", help="draw the toy problem's figure into this file, and nothing else")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.figure:
        draw(args.figure)
        return
    marks = [int(steps) for steps in args.steps.split(",")]
    problems: list[type[Problem]] = [Crossing, Hartmann, *(lcbench_problems(args.lcbench) if args.lcbench else ())]
    if args.problems is not None:
        problems = [problem for problem in problems if problem.__name__ in args.problems.split(";")]
    print(f"{args.seeds} seeds, {SLOTS} workers ({POPULATION} for PBT): median of the incumbent's true loss")
    print(
        f"pairs of runs that ours wins; between equals {0.5 - chance(args.seeds):.0%} to {0.5 + chance(args.seeds):.0%}"
    )
    print(f"{'':18}{'':16}{'steps':>6}{'Weft':>11}{'Optuna':>11}{'Syne Tune':>11}{'pairs won':>14}")
    for name, sides in contenders().items():
        if args.only is None or name in args.only.split(";"):
            for problem in problems:
                compare(name, sides, problem, args.seeds, marks)
    if args.only is None or "PBT" in args.only.split(";"):
        compare("PBT", pbt(), Drifting, args.seeds, [POPULATION * Drifting.max_t])
        found = statistics.median(toy("PBT", seed).best_value for seed in range(args.seeds))
        grid = toy("Grid search", 0).best_value
        print(f"PBT's toy problem, Q after 200 steps (at most 1.2): {found:.3f}; grid search: {grid:.3f}")


if __name__ == "__main__":
    main()
