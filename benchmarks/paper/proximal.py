"""Figure 14b: PPO of weft.rl, beside the bulk-synchronous way of MPI programs.

There every rank simulates and learns alike: all sample, meet, and average the gradient of every minibatch. Network,
loss and settings are the same; only who does what when is different. MPI for Python where it is installed, else
multiprocessing.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from reproduction import HERE, Outcome, Row, run

RANKS, GOAL, MOST_STEPS, SHORT_STEPS = 2, 475.0, 150_000, 4_096
ENVS, STEPS, MINIBATCH, EPOCHS = 8, 128, 64, 10
MPI = Path(sys.executable).with_name("mpiexec")
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


def process_rank(rank: int, seed: int, most_steps: int, shared: Any, barrier: Any, out: Any) -> None:
    rows = np.frombuffer(shared).reshape(RANKS, -1)

    def mean_of_all(array: np.ndarray) -> np.ndarray:
        rows[rank, : len(array)] = array
        barrier.wait()
        mean = rows[:, : len(array)].mean(axis=0)
        barrier.wait()
        return mean

    found = rank_program(rank, seed, most_steps, mean_of_all)
    if rank == 0:
        out.put(found)


def with_mpi(seed: int, most_steps: int) -> dict[str, float]:
    command = [str(MPI), "-n", str(RANKS), sys.executable, __file__, "--rank", str(seed), str(most_steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def with_processes(seed: int, most_steps: int) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    shared, barrier, out = context.RawArray("d", RANKS * 100_000), context.Barrier(RANKS), context.Queue()
    ranks = [
        context.Process(target=process_rank, args=(rank, seed, most_steps, shared, barrier, out))
        for rank in range(RANKS)
    ]
    for rank in ranks:
        rank.start()
    found = dict(out.get())
    for rank in ranks:
        rank.join()
    return found


def with_weft(seed: int, most_steps: int) -> dict[str, float]:
    """The case of benchmarks/rl/peers.py, in a process of its own."""
    command = [sys.executable, str(HERE.parent / "rl" / "peers.py"), "--one", "weft", "ppo-cartpole", str(seed)]
    command += ["--steps", str(most_steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    has_mpi = importlib.util.find_spec("mpi4py") is not None and MPI.exists()
    peer = with_mpi if has_mpi else with_processes
    seeds, most_steps = range(1, 2 if short else 6), SHORT_STEPS if short else MOST_STEPS
    ours, theirs = [], []
    for seed in seeds:
        ours.append(with_weft(seed, most_steps))
        theirs.append(peer(seed, most_steps))
    seconds = [statistics.median(one["seconds"] for one in runs) for runs in (ours, theirs)]
    rates = [statistics.median(one["steps"] / one["seconds"] for one in runs) for runs in (ours, theirs)]
    missed = [sum(not one["reached"] for one in runs) for runs in (ours, theirs)]
    name = "MPI" if has_mpi else "multiprocessing"
    return Outcome(
        "Figure 14b",
        "PPO, beside a bulk-synchronous program",
        [
            Row(
                f"time to the goal, or to {most_steps:,} steps",
                "less than the MPI program at every size, with at most 8 GPUs where that had one for 8 CPUs; "
                "curve only",
                f"{seconds[0]:.1f} s; {name} {seconds[1]:.1f} s, {seconds[1] / seconds[0]:.2f} times ours",
            ),
            Row("steps a second", "not given", f"{rates[0]:,.0f}; {name} {rates[1]:,.0f}"),
            Row("runs that missed the goal", "–", f"{missed[0]} and {missed[1]} of {len(seeds)}"),
        ],
        "the paper: Humanoid-v1 to a score of 6,000 on machines with GPUs, OpenMPI; here: CartPole-v1 to "
        f"{GOAL:.0f} on 2 cores, compiling counted, "
        f"{'MPI for Python' if has_mpi else 'multiprocessing, as MPI for Python is not installed,'} "
        "with one gradient averaged for each minibatch, as in MPI implementations of PPO.",
        chart.bars({"Weft": seconds[0], name: seconds[1]}, "Seconds to the goal, less is better", "seconds"),
    )


if __name__ == "__main__":
    if "--rank" in sys.argv:
        mpi_rank(int(sys.argv[2]), int(sys.argv[3]))
    else:
        run("proximal", measure)
