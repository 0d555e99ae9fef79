"""Figure 14b: PPO of weft.rl, beside the bulk-synchronous way of MPI programs.

There every rank simulates and learns alike: all sample, meet, and average the gradient of every minibatch. Network,
loss and settings are the same; only who does what when is different.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from reproduction import HERE, Outcome, Row, last_line, run, with_mpi

RANKS, GOAL, MOST_STEPS, SHORT_STEPS = 2, 475.0, 150_000, 4_096
ENVS, STEPS, MINIBATCH, EPOCHS = 8, 128, 64, 10
AllReduce = Callable[[np.ndarray], np.ndarray]


def rank_program(rank: int, seed: int, most_steps: int, mean_of_all: AllReduce) -> dict[str, float]:
    """One rank, until the mean reward over all ranks is at the goal."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax.flatten_util import ravel_pytree

    from weft.rl import PPO
    from weft.rl.algorithms.ppo import make_loss, make_optimizer, make_prepare

    began = time.perf_counter()
    algorithm = PPO(
        env="CartPole-v1", envs_per_worker=ENVS, fragment_steps=STEPS, minibatch=MINIBATCH, seed=seed + rank
    )
    model, config = algorithm.behaviour.model, algorithm.config
    optimizer = make_optimizer(config)
    params = jax.tree.map(jnp.asarray, model.init(np.random.default_rng(seed)))  # the same on every rank
    state = optimizer.init(params)
    _, restore = ravel_pytree(params)

    def evaluate(params: Any, minibatch: Any) -> tuple[Any, Any]:
        return model.action_inputs_and_value(jnp, params, minibatch["observations"])

    loss = make_loss(model, config, evaluate)

    prepare = jax.jit(make_prepare(model, config))

    @jax.jit
    def gradient(params: Any, steps: Any, order: Any) -> Any:
        taken = {name: array[order] for name, array in steps.items()}
        return ravel_pytree(jax.grad(loss, has_aux=True)(params, taken)[0])[0]

    @jax.jit
    def step(params: Any, state: Any, flat: Any) -> tuple[Any, Any]:
        changes, state = optimizer.update(restore(flat), state, params)
        return optax.apply_updates(params, changes), state

    total, reward, part = 0, 0.0, MINIBATCH // RANKS
    while total < most_steps and reward < GOAL:
        algorithm.learner = {"params": params}
        fragments = algorithm.sample()
        total += RANKS * fragments[0].steps
        recent = [episode.reward for episode in algorithm.metrics._recent] or [0.0]
        reward = float(mean_of_all(np.array([statistics.fmean(recent)]))[0])
        steps = prepare(params, fragments[0].arrays)
        for _ in range(EPOCHS):
            for order in algorithm.rng.permutation(ENVS * STEPS).reshape(-1, part).astype(np.int32):
                flat = mean_of_all(np.asarray(gradient(params, steps, order), np.float64))
                params, state = step(params, state, jnp.asarray(flat, jnp.float32))
    algorithm.stop()
    return {"seconds": time.perf_counter() - began, "steps": total, "reached": reward >= GOAL}


def mpi_rank(seed: int, most_steps: int) -> None:
    from mpi4py import MPI as mpi

    world = mpi.COMM_WORLD

    def mean_of_all(array: np.ndarray) -> np.ndarray:
        summed = np.empty_like(array)
        world.Allreduce(array, summed)
        return summed / world.size

    found = rank_program(world.rank, seed, most_steps, mean_of_all)
    if world.rank == 0:
        print(json.dumps(found))


def with_weft(seed: int, most_steps: int) -> dict[str, float]:
    """The case of benchmarks/rl/peers.py, in a process of its own."""
    command = [sys.executable, str(HERE.parent / "rl" / "peers.py"), "--one", "weft", "ppo-cartpole", str(seed)]
    return dict(last_line([*command, "--steps", str(most_steps)]))


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    seeds, most_steps = range(1, 2 if short else 4), SHORT_STEPS if short else MOST_STEPS
    found: dict[str, list[dict[str, float]]] = {"Weft": [], "MPI": []}
    for seed in seeds:
        found["Weft"].append(with_weft(seed, most_steps))
        found["MPI"].append(with_mpi(__file__, RANKS, seed, most_steps))
    seconds = {name: statistics.median(one["seconds"] for one in runs) for name, runs in found.items()}
    ours, theirs = seconds["Weft"], seconds["MPI"]
    rates = {name: statistics.median(one["steps"] / one["seconds"] for one in runs) for name, runs in found.items()}
    missed = {name: sum(not one["reached"] for one in runs) for name, runs in found.items()}
    return Outcome(
        "Figure 14b",
        "PPO, beside a bulk-synchronous program",
        [
            Row(
                f"time to the goal, or to {most_steps:,} steps",
                "less than MPI at every size, with at most 8 GPUs where that had one for 8 CPUs; curve only",
                f"{ours:.1f} s; MPI {theirs:.1f} s, {theirs / ours:.2f} times ours",
            ),
            Row("steps a second", "not given", f"{rates['Weft']:,.0f}; MPI {rates['MPI']:,.0f}"),
            Row("runs that missed the goal", "–", f"{missed['Weft']} and {missed['MPI']} of {len(seeds)}"),
        ],
        "the paper: Humanoid-v1 to a score of 6,000 on machines with GPUs, OpenMPI; here: CartPole-v1 to "
        f"{GOAL:.0f} on 2 cores, compiling counted, median of {len(seeds)} seeds; MPI for Python with one gradient "
        "averaged for each minibatch, as in MPI implementations of PPO.",
        [chart.bars(seconds, "Seconds to the goal, less is better", "seconds")],
    )


if __name__ == "__main__":
    if "--rank" in sys.argv:
        mpi_rank(int(sys.argv[2]), int(sys.argv[3]))
    else:
        run("proximal", measure)
