"""Wall-clock time to the bar beside Stable-Baselines3, one after the other on the same machine.

    python benchmarks/rl/peers.py --sb3-python PATH [--cases ppo-cartpole,...] [--seeds 3]

Both sides get the same environment and the same network. Stable-Baselines3 uses the
settings that its authors published for the environment. A run ends when the mean reward of the last `window` training
episodes reaches the bar; the time is from the start of the process's work (after imports, with JAX's compiling counted)
to there.
`PATH` is a Python with stable-baselines3, torch==2.13.0 (CPU) and gymnasium; this file runs itself there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "ppo-cartpole": {
        "env": "CartPole-v1",
        "bar": 475,
        "limit": 150_000,
        "window": 100,
        "at_least": 6.0,
        "weft": ("PPO", {"workers": 2}),
        "sb3": ("PPO", 8, {"n_steps": 256, "batch_size": 64, "device": "cpu"}, {"net_arch": [64, 64]}),
    },
    "dqn-cartpole": {
        "env": "CartPole-v1",
        "bar": 475,
        "limit": 150_000,
        "window": 100,
        "at_least": 3.0,
        "weft": (
            "DQN",
            {
                "hidden": (256, 256),
                "n_steps": 3,
                "target_interval": 200,
                "learning_rate": 3e-4,
                "batch": 128,
                "final_exploration": 0.01,
            },
        ),
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
        "at_least": 3.0,
        "weft": ("TD3", {}),
        "sb3": (
            "TD3",
            1,
            {"learning_rate": 1e-3, "batch_size": 128, "learning_starts": 1000, "device": "cpu"},
            {"net_arch": [256, 256]},
        ),
    },
}


def run_weft(case: dict[str, Any], seed: int) -> dict[str, Any]:
    from weft.rl import get_algorithm

    name, settings = case["weft"]
    algorithm_class = get_algorithm(name)
    began = time.perf_counter()
    result: dict[str, Any] = {"timesteps_total": 0, "episode_reward_mean": float("-inf")}
    with algorithm_class(settings, env=case["env"], seed=seed, metrics_window=case["window"]) as algorithm:
        while result["timesteps_total"] < case["limit"] and not result["episode_reward_mean"] >= case["bar"]:
            result = algorithm.train()
    reached = result["episode_reward_mean"] >= case["bar"]
    return {"seconds": time.perf_counter() - began, "steps": result["timesteps_total"], "reached": bool(reached)}


def run_sb3(case: dict[str, Any], seed: int) -> dict[str, Any]:
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # more make networks of this size slower
    name, envs, settings, network = case["sb3"]

    class UntilBar(BaseCallback):
        reached = False

        def _on_step(self) -> bool:
            recent = [episode["r"] for episode in self.model.ep_info_buffer or []]
            self.reached = len(recent) >= min(case["window"], 20) and statistics.fmean(recent) >= case["bar"]
            return not self.reached

    began = time.perf_counter()
    env = make_vec_env(case["env"], envs, seed=seed)
    model = getattr(stable_baselines3, name)(
        "MlpPolicy", env, seed=seed, policy_kwargs=network, stats_window_size=case["window"], **settings
    )
    callback = UntilBar()
    model.learn(case["limit"], callback=callback)
    return {"seconds": time.perf_counter() - began, "steps": model.num_timesteps, "reached": callback.reached}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", metavar="PATH")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="only so many steps a run, to compare steps a second")
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "CASE", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        side, name, seed = options.one
        case = {**CASES[name], "limit": options.steps or CASES[name]["limit"]}
        print(json.dumps({"weft": run_weft, "sb3": run_sb3}[side](case, int(seed))))
        return
    if not options.sb3_python:
        parser.error("--sb3-python is needed")
    for name in options.cases.split(","):
        found: dict[str, list[dict[str, Any]]] = {"weft": [], "sb3": []}
        for seed in range(1, options.seeds + 1):
            for side, python in (("weft", sys.executable), ("sb3", options.sb3_python)):
                command = [python, os.path.abspath(__file__), "--one", side, name, str(seed)]
                command += ["--steps", str(options.steps)] if options.steps else []
                found[side].append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
                print(name, side, found[side][-1], flush=True)
        report(name, found)


def report(name: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Medians; a run that did not reach the bar counts with all the time it took, which is too little."""
    medians = {side: statistics.median(run["seconds"] for run in runs) for side, runs in found.items()}
    rates = {side: statistics.median(run["steps"] / run["seconds"] for run in runs) for side, runs in found.items()}
    missed = {side: sum(not run["reached"] for run in runs) for side, runs in found.items()}
    print(
        f"{name}: weft {medians['weft']:.1f} s, sb3 {medians['sb3']:.1f} s to the bar: "
        f"{medians['sb3'] / medians['weft']:.1f}x (at least {CASES[name]['at_least']:g}x); "
        f"steps/s {rates['weft']:.0f} and {rates['sb3']:.0f}; runs that missed the bar {missed}",
        flush=True,
    )


if __name__ == "__main__":
    main()
