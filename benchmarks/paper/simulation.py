"""Table 4: simulations collected as they end, beside the bulk-synchronous way with a barrier after each round.

Three times as many episodes of Pendulum as there are cores, of random lengths. Bulk-synchronous: as many at once as
there are cores, in three rounds with a barrier (MPI for Python where it is installed, else multiprocessing).
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from reproduction import Outcome, Row, run

ROUNDS = 3
MPI = Path(sys.executable).with_name("mpiexec")


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


def synchronous(plan: list[int], cores: int, rank: int, barrier: object) -> float:
    """One rank of the bulk-synchronous program; steps a second of all ranks."""
    simulate(1)
    barrier()  # type: ignore[operator]
    began = time.perf_counter()
    for turn in range(ROUNDS):
        simulate(plan[turn * cores + rank])
        barrier()  # type: ignore[operator]
    return sum(plan) / (time.perf_counter() - began)


def with_mpi(cores: int, least: int, seed: int) -> float:
    command = [str(MPI), "-n", str(cores), sys.executable, __file__, "--rank", str(least), str(seed)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def mpi_rank(least: int, seed: int) -> None:
    from mpi4py import MPI as mpi

    world = mpi.COMM_WORLD
    rate = synchronous(lengths(world.size, least, seed), world.size, world.rank, world.Barrier)
    if world.rank == 0:
        print(rate)


def with_processes(cores: int, least: int, seed: int) -> float:
    context = multiprocessing.get_context("spawn")
    barrier, out = context.Barrier(cores), context.Queue()
    plan = lengths(cores, least, seed)
    ranks = [context.Process(target=process_rank, args=(plan, cores, rank, barrier, out)) for rank in range(cores)]
    for rank in ranks:
        rank.start()
    found = [float(out.get()) for _ in ranks]
    for rank in ranks:
        rank.join()
    return min(found)


def process_rank(plan: list[int], cores: int, rank: int, barrier: object, out: object) -> None:
    out.put(synchronous(plan, cores, rank, barrier.wait))  # type: ignore[attr-defined]


def measure(short: bool) -> Outcome:
    import weft
    from weft.demos import chart

    has_mpi = importlib.util.find_spec("mpi4py") is not None and (MPI.exists() or shutil.which("mpiexec") is not None)
    peer, peer_name = (with_mpi, "MPI") if has_mpi else (with_processes, "multiprocessing")
    least, rounds = (300, 2) if short else (20_000, 5)
    most = os.cpu_count() or 2
    rows, bars = [], {}
    for cores in dict.fromkeys((1, most)):
        ours, theirs = [], []
        for seed in range(rounds):
            weft.init(num_cpus=cores)
            try:
                ours.append(asynchronous(lengths(cores, least, seed)))
            finally:
                weft.shutdown()
            theirs.append(peer(cores, least, seed))
        async_rate, bulk_rate = statistics.median(ours), statistics.median(theirs)
        bars |= {f"Weft, {cores} CPU": async_rate, f"{peer_name}, {cores} CPU": bulk_rate}
        paper = {1: "22,300 steps/s, MPI 22,600"}.get(cores, "16 CPUs: 290,000 and 208,000; 256: 4.03 and 2.16 million")
        ours_text = f"{async_rate:,.0f} steps/s, {peer_name} {bulk_rate:,.0f}: {async_rate / bulk_rate:.2f} times"
        rows.append(Row(f"{cores} CPU{'s' * (cores > 1)}", paper, ours_text))
    return Outcome(
        "Table 4",
        "Simulation, asynchronous and bulk-synchronous",
        rows,
        f"the paper: Pendulum-v0 on 1, 16 and 256 CPUs, MPI with a barrier after each round; here: Pendulum-v1, "
        f"{most} CPUs, "
        f"the bulk-synchronous side with "
        f"{'MPI for Python' if has_mpi else 'multiprocessing (MPI for Python is not installed)'}. "
        "How long the paper's simulations were is not given; here from 1 to 10 times a shortest length.",
        chart.bars(bars, "Steps a second", "steps/s"),
    )


if __name__ == "__main__":
    if "--rank" in sys.argv:
        mpi_rank(int(sys.argv[2]), int(sys.argv[3]))
    else:
        run("simulation", measure)
