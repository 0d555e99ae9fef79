"""Table 4: simulations collected as they end, beside the bulk-synchronous way with a barrier after each round.

Three times as many episodes of Pendulum as there are cores, of random lengths. Bulk-synchronous: as many at once as
there are cores, in three rounds with a barrier (MPI for Python).
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable

from reproduction import Outcome, Row, run, with_mpi

ROUNDS = 3
PAPER = {1: "22,300, MPI 22,600", 16: "16 CPUs: 290,000, MPI 208,000; 256 CPUs: 4.03 and 2.16 million"}


def lengths(cores: int, least: int, seed: int) -> list[int]:
    """Steps of each episode, from `least` to ten times that."""
    draw = random.Random(seed)
    return [int(least * 10 ** draw.random()) for _ in range(ROUNDS * cores)]


def simulate(steps: int) -> int:
    import gymnasium

    environment = gymnasium.make("Pendulum-v1", max_episode_steps=steps + 1)
    environment.reset(seed=steps)
    for _ in range(steps):
        environment.step([0.5])
    environment.close()
    return steps


def asynchronous(plan: list[int]) -> float:
    import weft

    task = weft.remote(simulate)
    weft.get([task.remote(1) for _ in range(4)])
    began = time.perf_counter()
    pending, steps = [task.remote(length) for length in plan], 0
    while pending:
        done, pending = weft.wait(pending)
        steps += sum(weft.get(done))
    return steps / (time.perf_counter() - began)


def synchronous(plan: list[int], cores: int, rank: int, barrier: Callable[[], object]) -> float:
    """One rank of the bulk-synchronous program; steps a second of all ranks."""
    simulate(1)
    barrier()
    began = time.perf_counter()
    for turn in range(ROUNDS):
        simulate(plan[turn * cores + rank])
        barrier()
    return sum(plan) / (time.perf_counter() - began)


def mpi_rank(least: int, seed: int) -> None:
    from mpi4py import MPI as mpi

    world = mpi.COMM_WORLD
    rate = synchronous(lengths(world.size, least, seed), world.size, world.rank, world.Barrier)
    if world.rank == 0:
        print(rate)


def compare(cores: int, least: int, seeds: int) -> tuple[float, float]:
    """Median steps a second: (asynchronous, bulk-synchronous), in turns."""
    import weft

    ours, theirs = [], []
    for seed in range(seeds):
        weft.init(num_cpus=cores)
        try:
            ours.append(asynchronous(lengths(cores, least, seed)))
        finally:
            weft.shutdown()
        theirs.append(float(with_mpi(__file__, cores, least, seed)))
    return statistics.median(ours), statistics.median(theirs)


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    least, seeds = (300, 2) if short else (5_000, 7)
    most = os.cpu_count() or 2
    rows, bars = [], {}
    for cores in dict.fromkeys((1, most)):
        ours, theirs = compare(cores, least, seeds)
        name = f"{cores} CPU{'s' * (cores > 1)}"
        bars |= {f"Weft, {name}": ours, f"MPI, {name}": theirs}
        rows.append(
            Row(name, PAPER.get(cores, PAPER[16]), f"{ours:,.0f}, MPI {theirs:,.0f}: {ours / theirs:.2f} times")
        )
    return Outcome(
        "Table 4",
        "Simulation, asynchronous and bulk-synchronous: steps a second",
        rows,
        f"the paper: Pendulum-v0 on 1, 16 and 256 CPUs, MPI with a barrier after each round; here: Pendulum-v1, {most} "
        "CPUs, the bulk-synchronous side with MPI for Python. How long the paper's simulations were is not given; here "
        f"from 1 to 10 times a shortest length, median of {seeds} draws.",
        [chart.bars(bars, "Steps a second", "steps/s")],
    )


if __name__ == "__main__":
    if "--rank" in sys.argv:
        mpi_rank(int(sys.argv[2]), int(sys.argv[3]))
    else:
        run("simulation", measure)
