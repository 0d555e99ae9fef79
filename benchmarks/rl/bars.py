"""Does each algorithm reach its bar? Trains the seeds that have no curve yet and writes their curves as JSON.

    python benchmarks/rl/bars.py ppo-cartpole --seeds 5
    python benchmarks/rl/bars.py es-pendulum ars-pendulum --jobs 8    # eight seeds at a time, on cores of their own
    python benchmarks/rl/bars.py --list

A bar is reached when the mean reward of the last `metrics_window` training episodes, and there have been as many,
reaches it within the steps.
Curves are kept in benchmarks/rl/curves/<case>.json, written after each seed; seeds that were trained with other
settings than the case has now are trained again. `plot.py` draws them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cases import BARS, Bar
from side_by_side import add_options, change, on_own_cores

from weft.rl import get_algorithm

CURVES = Path(__file__).parent / "curves"


def run(bar: Bar, seed: int, to_the_end: bool) -> dict[str, Any]:
    """One training: its curve, and when it reached the bar."""
    started = time.perf_counter()
    curve: list[tuple[int, float | None]] = []
    reached: dict[str, Any] = {"reached_at": None, "seconds_to_bar": None}
    with get_algorithm(bar.algorithm)(bar.settings, env=bar.env, seed=seed) as algorithm:
        while not curve or curve[-1][0] < bar.timesteps:
            result = algorithm.train()
            # Of several agents the worst counts.
            reward = min([result["episode_reward_mean"], *result.get("agent_reward_mean", {}).values()])
            curve.append((result["timesteps_total"], round(reward, 2) if math.isfinite(reward) else None))
            is_full = result["episodes_total"] >= algorithm.config.metrics_window
            if is_full and reward >= bar.reward and reached["reached_at"] is None:
                reached = {
                    "reached_at": result["timesteps_total"],
                    "seconds_to_bar": round(time.perf_counter() - started, 2),
                }
                if not to_the_end:
                    break
    best = max((reward for _, reward in curve if reward is not None), default=None)
    return {"seed": seed, **reached, "best": best, "curve": curve}


def described(bar: Bar) -> dict[str, Any]:
    """The bar in plain values, as it stands in a file of curves."""
    plain = {**dataclasses.asdict(bar), "env": getattr(bar.env, "__name__", bar.env)}
    found: dict[str, Any] = json.loads(json.dumps(plain))
    return found


def known_runs(name: str, bar: Bar) -> list[dict[str, Any]]:
    """The runs that were made with this bar's settings."""
    path = CURVES / f"{name}.json"
    return runs_of(json.loads(path.read_text()) if path.exists() else None, bar)


def runs_of(kept: Any, bar: Bar) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = kept["runs"] if kept and kept["bar"] == described(bar) else []
    return runs


def keep(name: str, bar: Bar, run: dict[str, Any]) -> None:
    """Add a run to the case's file, beside those that others have added meanwhile."""

    def added(kept: Any) -> dict[str, Any]:
        others = [one for one in runs_of(kept, bar) if one["seed"] != run["seed"]]
        return {"bar": described(bar), "runs": sorted([*others, run], key=lambda one: one["seed"])}

    change(CURVES / f"{name}.json", added)


def train(name: str, bar: Bar, seeds: range, to_the_end: bool, kept: bool) -> list[dict[str, Any]]:
    """Train the seeds that are missing, one after the other; all runs."""
    runs = known_runs(name, bar) if kept else []
    for seed in missing(runs, seeds):
        runs.append(run(bar, seed, to_the_end))
        print(name, {key: value for key, value in runs[-1].items() if key != "curve"}, flush=True)
        if kept:
            keep(name, bar, runs[-1])
    return runs


def missing(runs: list[dict[str, Any]], seeds: range) -> list[int]:
    return sorted(set(seeds) - {one["seed"] for one in runs})


def train_at_once(names: list[str], seeds: range, options: argparse.Namespace) -> None:
    """Each missing seed in a process of its own, several at a time."""

    def work(task: tuple[str, int], cores: str) -> None:
        name, seed = task
        command = [sys.executable, __file__, name, "--seeds", "1", "--first-seed", str(seed), "--cores", cores]
        command += ["--to-the-end"] if options.to_the_end else []
        subprocess.run(command, check=True)

    tasks = [(name, seed) for name in names for seed in missing(known_runs(name, BARS[name]), seeds)]
    on_own_cores(tasks, options.jobs, options.cores, work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*BARS, []])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--to-the-end", action="store_true", help="go on after the bar, for a whole curve")
    parser.add_argument("--set", type=json.loads, default={}, metavar="JSON", help="settings to try; nothing is kept")
    add_options(parser)
    options = parser.parse_args()
    if options.jobs > 1 and options.set:
        parser.error("--set keeps nothing, so it is for one at a time: leave --jobs out")
    if options.list:
        for name, bar in BARS.items():
            env = getattr(bar.env, "__name__", bar.env)
            print(f"{name:30} {bar.algorithm} {env}: {bar.reward:g} within {bar.timesteps:,} steps")
        return
    names = options.cases or list(BARS)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.jobs > 1:
        train_at_once(names, seeds, options)
    elif options.cores:
        os.sched_setaffinity(0, options.cores)
    for name in names:
        bar = dataclasses.replace(BARS[name], settings={**BARS[name].settings, **options.set})
        runs = train(name, bar, seeds, options.to_the_end, kept=not options.set)
        steps = [one["reached_at"] or math.inf for one in runs]
        print(f"{name}: median {statistics.median(steps):,} of {bar.timesteps:,} steps to {bar.reward:g}", flush=True)


if __name__ == "__main__":
    main()
