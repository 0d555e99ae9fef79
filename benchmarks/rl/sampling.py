"""Steps a second of two rollout workers, beside two bare processes with the same environments and the same policy.

    python benchmarks/rl/sampling.py [--rounds 5]

The bare processes keep nothing: environment, NumPy network, a draw from its distribution. The workers do the same and
also record, check and send fragments. Rounds alternate; the best of each side counts. On a machine that does other work
too the CPU time of a step says more than the rate, so both are printed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import weft
from weft.rl.behaviours import Stochastic
from weft.rl.config import AlgorithmConfig
from weft.rl.models import ActorCritic
from weft.rl.networks import WeightLayout
from weft.rl.rollout import Blueprint, Fragment
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
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(FRAGMENTS):
        noise = model.noise(rng, (STEPS, ENVS))
        for row in noise:
            actions = model.distribution(np, model.action_inputs(np, params, observations)).sample(row).tolist()
            for index, env in enumerate(envs):
                observation, _, terminated, truncated, _ = env.step(actions[index])
                if terminated or truncated:
                    observation, _ = env.reset()
                observations[index] = observation
    steps = FRAGMENTS * STEPS * ENVS
    out.put((steps / (time.perf_counter() - began), (time.process_time() - began_cpu) / steps))


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def two_bare() -> tuple[float, float]:
    """Steps a second of both together, and CPU seconds of a step."""
    context = multiprocessing.get_context("spawn")
    start, out = context.Barrier(2), context.Queue()
    processes = [context.Process(target=bare, args=(seed, start, out)) for seed in (1, 2)]
    for process in processes:
        process.start()
    found = [out.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(rate for rate, _ in found), sum(cpu for _, cpu in found) / len(found)


def two_workers(workers: RolloutWorkers, weights: Any, ahead: bool) -> tuple[float, float]:
    """Steps a second of both together, and CPU seconds of a step.

    In step, as PPO samples, both wait for the last and for the driver; ahead, as IMPALA and Ape-X do, nobody waits.
    """
    workers.sample(weights, 0)
    pids = [worker["pid"] for worker in workers.statistics()]
    began, began_cpu = time.perf_counter(), sum(map(cpu_seconds, pids))
    if ahead:
        steps = sum(fragment.steps for fragment in fragments_ahead(workers, weights))
    else:
        steps = sum(fragment.steps for _ in range(FRAGMENTS) for fragment in workers.sample(weights, 0))
    return steps / (time.perf_counter() - began), (sum(map(cpu_seconds, pids)) - began_cpu) / steps


def fragments_ahead(workers: RolloutWorkers, weights: Any) -> Iterator[Fragment]:
    """As many fragments of each worker as the others take, two asked for at a time."""
    left = dict.fromkeys(range(workers.count), FRAGMENTS)

    def ask(index: int) -> None:
        if left[index]:
            left[index] -= 1
            workers.request(index, workers.share(weights), 0)

    for index in left:
        ask(index)
        ask(index)
    while workers.asked:
        for index, fragment in workers.arrivals():
            ask(index)
            assert fragment is not None
            yield fragment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model, params = make_model()
    layout = WeightLayout(params)
    blueprint = Blueprint(ENV, {}, ENVS, STEPS, 1, Stochastic(model), layout)
    weft.init(num_cpus=2)
    workers = RolloutWorkers(blueprint, 2, None, "raise")
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "in step": [], "ahead": []}
    for _ in range(options.rounds):
        found["bare"].append(two_bare())
        found["in step"].append(two_workers(workers, layout.pack(params), ahead=False))
        found["ahead"].append(two_workers(workers, layout.pack(params), ahead=True))
    memory = max(worker["memory_bytes"] for worker in workers.statistics())
    workers.close()
    weft.shutdown()
    rates = {side: max(rate for rate, _ in rounds) for side, rounds in found.items()}
    costs = {side: min(cpu for _, cpu in rounds) * 1e6 for side, rounds in found.items()}
    print(f"two bare processes: {rates['bare']:,.0f} steps/s, {costs['bare']:.2f} µs of CPU time a step")
    for side in ("in step", "ahead"):
        print(
            f"two workers {side}: {rates[side]:,.0f} steps/s, {rates[side] / rates['bare']:.0%} (at least 85%); "
            f"{costs[side]:.2f} µs of CPU time a step, {costs['bare'] / costs[side]:.0%}"
        )
    print(f"a worker has {memory / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
