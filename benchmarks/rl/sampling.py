"""Steps a second of two rollout workers, beside two bare processes with the same environments and the same policy.

    python benchmarks/rl/sampling.py [--rounds 5]

The bare processes keep nothing: environment, NumPy network, a draw from its distribution. The workers do the same and
also record, check and send fragments. Rounds alternate; the best of each side counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from typing import Any

import gymnasium
import numpy as np

import weft
from weft.rl.behaviours import Stochastic
from weft.rl.config import AlgorithmConfig
from weft.rl.models import ActorCritic
from weft.rl.networks import WeightLayout
from weft.rl.rollout import Blueprint
from weft.rl.spaces import ActionDecoder, ObservationEncoder
from weft.rl.workers import RolloutWorkers

ENV, ENVS, STEPS, FRAGMENTS = "CartPole-v1", 8, 256, 20


def make_model() -> tuple[ActorCritic, dict[str, Any]]:
    env = gymnasium.make(ENV)
    model = ActorCritic.of(
        ObservationEncoder(env.observation_space), ActionDecoder(env.action_space), AlgorithmConfig(env=ENV)
    )
    return model, model.init(np.random.default_rng(0))


def bare(seed: int, start: Any, out: Any) -> None:
    """What a process alone can do."""
    model, params = make_model()
    rng = np.random.default_rng(seed)
    envs = [gymnasium.make(ENV, disable_env_checker=True) for _ in range(ENVS)]
    observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    start.wait()
    began = time.perf_counter()
    for _ in range(FRAGMENTS):
        noise = model.noise(rng, (STEPS, ENVS))
        for row in noise:
            actions = model.distribution(np, model.action_inputs(np, params, observations)).sample(row).tolist()
            for index, env in enumerate(envs):
                observation, _, terminated, truncated, _ = env.step(actions[index])
                if terminated or truncated:
                    observation, _ = env.reset()
                observations[index] = observation
    out.put(FRAGMENTS * STEPS * ENVS / (time.perf_counter() - began))


def two_bare() -> float:
    context = multiprocessing.get_context("spawn")
    start, out = context.Barrier(2), context.Queue()
    processes = [context.Process(target=bare, args=(seed, start, out)) for seed in (1, 2)]
    for process in processes:
        process.start()
    total = sum(out.get() for _ in processes)
    for process in processes:
        process.join()
    return float(total)


def two_workers(workers: RolloutWorkers, weights: Any) -> float:
    workers.sample(weights, 0)
    began = time.perf_counter()
    steps = sum(fragment.steps for _ in range(FRAGMENTS) for fragment in workers.sample(weights, 0))
    return steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model, params = make_model()
    layout = WeightLayout(params)
    blueprint = Blueprint(ENV, {}, ENVS, STEPS, 1, Stochastic(model), layout)
    weft.init(num_cpus=2)
    workers = RolloutWorkers(blueprint, 2, None, "raise")
    found: dict[str, list[float]] = {"bare": [], "weft": []}
    for _ in range(options.rounds):
        found["bare"].append(two_bare())
        found["weft"].append(two_workers(workers, layout.pack(params)))
    memory = max(worker["memory_bytes"] for worker in workers.statistics())
    workers.close()
    weft.shutdown()
    best = {side: max(rates) for side, rates in found.items()}
    ratios = sorted(ours / theirs for ours, theirs in zip(found["weft"], found["bare"], strict=True))
    print(
        f"two bare processes {best['bare']:,.0f} steps/s, two workers {best['weft']:,.0f}: "
        f"{best['weft'] / best['bare']:.0%} (at least 85%; median of rounds {ratios[len(ratios) // 2]:.0%}); "
        f"a worker has {memory / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
