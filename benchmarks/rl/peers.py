"""Wall-clock time to the bar beside Stable-Baselines3 and RLlib, one after the other on the same cores.

    python benchmarks/rl/peers.py --sb3-python PATH --rllib-python PATH [--cases ppo-cartpole,...] [--seeds 5]
    python benchmarks/rl/peers.py --sb3-python PATH --cores 0-15 --jobs 8    # eight races at a time, two cores each
    python benchmarks/rl/peers.py --report                                   # the medians of what was run so far

All sides get the same environment and the same network. Stable-Baselines3 uses the settings that its authors published
for the environment, RLlib those of ours. A run ends when the mean reward of the last `window` training episodes reaches
the bar; the time is from the start of the process's work (after imports, with JAX's compiling and Ray's start counted)
to there. A run that has not reached it when its steps or `--most-seconds` are over counts with the time that it took,
which is too little, on the others' side, and as endless on ours.
JAX and torch get one thread each (NPROC, set_num_threads): for networks of this size more are slower.
`PATH` is a Python with stable-baselines3 or ray[rllib], torch==2.13.0 (CPU) and gymnasium; this file runs itself there.
Every run is kept in `--results` as soon as it has ended; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from side_by_side import add_options, change, on_own_cores

RESULTS = Path(__file__).parent / "races.json"

CASES: dict[str, dict[str, Any]] = {
    "ppo-cartpole": {
        "env": "CartPole-v1",
        "bar": 475,
        "limit": 150_000,
        "window": 100,
        "at_least": {"sb3": 6.0, "rllib": 10.0},
        "weft": ("PPO", {"workers": 2}),
        "sb3": ("PPO", 8, {"n_steps": 256, "batch_size": 64, "device": "cpu"}, {"net_arch": [64, 64]}),
        "rllib": {
            "train_batch_size_per_learner": 2048,
            "minibatch_size": 64,
            "num_epochs": 10,
            "lr": 3e-4,
            "lambda_": 0.95,
            "clip_param": 0.2,
            "vf_loss_coeff": 0.5,
            "vf_clip_param": float("inf"),
            "grad_clip": 0.5,
            "use_kl_loss": False,
        },
    },
    "dqn-cartpole": {
        "env": "CartPole-v1",
        "bar": 475,
        "limit": 150_000,
        "window": 100,
        "at_least": {"sb3": 3.0},
        "weft": ("DQN", {}),
        "sb3": (
            "DQN",
            1,
            {
                "learning_rate": 2.3e-3,
                "batch_size": 64,
                "buffer_size": 100_000,
                "learning_starts": 1000,
                "target_update_interval": 10,
                "train_freq": 256,
                "gradient_steps": 128,
                "exploration_fraction": 0.16,
                "exploration_final_eps": 0.04,
                "device": "cpu",
            },
            {"net_arch": [256, 256]},
        ),
    },
    "td3-pendulum": {
        "env": "Pendulum-v1",
        "bar": -200,
        "limit": 30_000,
        "window": 20,
        "at_least": {"sb3": 3.0},
        "weft": ("TD3", {"batch": 64}),
        "sb3": (
            "TD3",
            1,
            {"learning_rate": 1e-3, "batch_size": 128, "learning_starts": 1000, "device": "cpu"},
            {"net_arch": [256, 256]},
        ),
    },
}


def run_weft(case: dict[str, Any], seed: int) -> dict[str, Any]:
    os.environ.update(NPROC="1", JAX_PLATFORMS="cpu")  # read by JAX when its first array is made
    from weft.rl import get_algorithm

    name, settings = case["weft"]
    algorithm_class = get_algorithm(name)
    began = time.perf_counter()
    with algorithm_class(settings, env=case["env"], seed=seed, metrics_window=case["window"]) as algorithm:
        while True:
            result = algorithm.train()
            steps, seconds = result["timesteps_total"], time.perf_counter() - began
            is_full = result["episodes_total"] >= case["window"]
            reward = float(result["episode_reward_mean"])
            reached = is_full and reward >= case["bar"]
            if reached or is_over(case, steps, seconds):
                return {"seconds": seconds, "steps": steps, "reached": reached, "reward": reward}


def run_sb3(case: dict[str, Any], seed: int) -> dict[str, Any]:
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # more make networks of this size slower
    name, envs, settings, network = case["sb3"]

    class UntilBar(BaseCallback):
        reached, reward = False, math.nan

        def _on_step(self) -> bool:
            recent = [episode["r"] for episode in self.model.ep_info_buffer or []]
            self.reward = statistics.fmean(recent) if recent else math.nan
            self.reached = len(recent) >= case["window"] and self.reward >= case["bar"]
            return not (self.reached or is_over(case, self.num_timesteps, time.perf_counter() - began))

    began = time.perf_counter()
    env = make_vec_env(case["env"], envs, seed=seed)
    model = getattr(stable_baselines3, name)(
        "MlpPolicy", env, seed=seed, policy_kwargs=network, stats_window_size=case["window"], **settings
    )
    callback = UntilBar()
    model.learn(case["limit"], callback=callback)
    seconds, steps = time.perf_counter() - began, model.num_timesteps
    return {"seconds": seconds, "steps": steps, "reached": callback.reached, "reward": callback.reward}


def run_rllib(case: dict[str, Any], seed: int) -> dict[str, Any]:
    """PPO alone; two environment runners as our two workers. Its own mean forgets episodes, so we keep the returns."""
    import collections
    import logging

    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    logging.disable(logging.WARNING)

    def keep_return(*, episode: Any, metrics_logger: Any, **_: Any) -> None:
        metrics_logger.log_value("returns", float(episode.get_return()), reduce="item_series", window=10_000)

    began = time.perf_counter()
    config = (
        PPOConfig()
        .environment(case["env"])
        .env_runners(num_env_runners=2, num_envs_per_env_runner=8)
        .callbacks(on_episode_end=keep_return)
        .training(gamma=0.99, **case["rllib"])
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    recent: collections.deque[float] = collections.deque(maxlen=case["window"])
    while True:
        found = algorithm.train()["env_runners"]
        steps, seconds = int(found["num_env_steps_sampled_lifetime"]), time.perf_counter() - began
        returns = found.get("returns", ())
        recent.extend(returns if isinstance(returns, list | tuple) else [returns])  # a single one comes bare
        reward = statistics.fmean(recent) if recent else math.nan
        reached = len(recent) >= case["window"] and reward >= case["bar"]
        if reached or is_over(case, steps, seconds):
            algorithm.stop()
            return {"seconds": seconds, "steps": steps, "reached": reached, "reward": reward}


def is_over(case: dict[str, Any], steps: int, seconds: float) -> bool:
    return bool(steps >= case["limit"] or seconds >= case["most_seconds"])


SIDES = {"weft": run_weft, "sb3": run_sb3, "rllib": run_rllib}


def race(name: str, seed: int, pythons: dict[str, str], cores: str, options: argparse.Namespace) -> None:
    """Each side that is missing, one after the other on the same cores."""
    for side, python in pythons.items():
        if side not in CASES[name] or str(seed) in known(options.results).get(name, {}).get(side, {}):
            continue
        command = [python, os.path.abspath(__file__), "--one", side, name, str(seed), "--cores", cores]
        command += ["--most-seconds", str(options.most_seconds)]
        command += ["--steps", str(options.steps)] if options.steps else []
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(said.splitlines()[-1])
        change(options.results, lambda kept, side=side, found=found: with_run(kept or {}, name, side, seed, found))
        print(name, side, "seed", seed, "cores", cores, found, flush=True)


def known(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    return found


def with_run(kept: dict[str, Any], name: str, side: str, seed: int, found: dict[str, Any]) -> dict[str, Any]:
    kept.setdefault(name, {}).setdefault(side, {})[str(seed)] = found
    return kept


def report(name: str, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Medians of the seeds that both sides have run."""
    for side in found.keys() - {"weft"}:
        seeds = sorted(found["weft"].keys() & found[side].keys())
        if not seeds:
            continue
        ours, others = ([found[who][seed] for seed in seeds] for who in ("weft", side))
        our_s = statistics.median(run["seconds"] if run["reached"] else math.inf for run in ours)
        other_s = statistics.median(run["seconds"] for run in others)
        missed = sum(not run["reached"] for run in others)
        bound = "over " if 2 * missed >= len(others) else ""
        rates = [statistics.median(run["steps"] / run["seconds"] for run in runs) for runs in (ours, others)]
        print(
            f"{name}, {len(seeds)} seeds: weft {our_s:.1f} s, {side} {bound}{other_s:.1f} s to the bar: "
            f"{bound}{other_s / our_s:.1f}x (at least {CASES[name]['at_least'][side]:g}x); "
            f"steps/s {rates[0]:.0f} and {rates[1]:.0f}; "
            f"missed the bar: {sum(not run['reached'] for run in ours)} and {missed}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", metavar="PATH")
    parser.add_argument("--rllib-python", metavar="PATH")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="only so many steps a run, to compare steps per second")
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="end a run that takes longer")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where runs are kept (%(default)s)")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "CASE", "SEED"), help=argparse.SUPPRESS)
    add_options(parser)
    options = parser.parse_args()
    if options.one:
        if options.cores:
            os.sched_setaffinity(0, options.cores)
        side, name, seed = options.one
        case = {**CASES[name], "most_seconds": options.most_seconds, "limit": options.steps or CASES[name]["limit"]}
        print(json.dumps(SIDES[side](case, int(seed))))
        return
    names = options.cases.split(",")
    if not options.report:
        given = {"weft": sys.executable, "sb3": options.sb3_python, "rllib": options.rllib_python}
        pythons = {side: python for side, python in given.items() if python}
        if len(pythons) == 1:
            parser.error("--sb3-python or --rllib-python is needed")
        tasks = [(name, seed) for seed in range(1, options.seeds + 1) for name in names]
        on_own_cores(tasks, options.jobs, options.cores, lambda task, cores: race(*task, pythons, cores, options))
    for name in names:
        report(name, known(options.results).get(name, {}))


if __name__ == "__main__":
    main()
