"""Simulations of unequal length, asynchronous against bulk-synchronous: the comparison of the Ray paper.

    python benchmarks/rl/asynchronous.py [--rounds 5] [--workers 1,4,16,64,256]

n workers play 3 n episodes whose lengths differ. Bulk-synchronous: three rounds of n episodes, and everybody waits for
the longest of each. Asynchronous: all episodes are submitted at once and gathered as they end. First on real processes,
as tasks of this machine's cores that step Pendulum-v1; then in the simulator, with virtual nodes of 16 CPUs and with
the time that a step took there.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import weft
from weft.testing.simulate.costs import Machine
from weft.testing.simulate.program import Function, Get, Program, Submit
from weft.testing.simulate.simulation import Plan, Simulation

LEAST, MOST = 100, 2000  # steps of an episode, log-uniform between
WAVES = 3
NODE_CPUS = 16


def draw_lengths(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [round(math.exp(rng.uniform(math.log(LEAST), math.log(MOST)))) for _ in range(count)]


@weft.remote
def simulate(length: int, seed: int) -> float:
    """Step the environment; how long it took."""
    import gymnasium

    env = gymnasium.make("Pendulum-v1", disable_env_checker=True, max_episode_steps=MOST + 1)
    env.reset(seed=seed)
    action = env.action_space.sample()
    began = time.perf_counter()
    for _ in range(length):
        env.step(action)
    return time.perf_counter() - began


def bulk_synchronous(lengths: Sequence[int], workers: int) -> float:
    began = time.perf_counter()
    for start in range(0, len(lengths), workers):
        weft.get([simulate.remote(length, length) for length in lengths[start : start + workers]])
    return time.perf_counter() - began


def asynchronous(lengths: Sequence[int]) -> float:
    began = time.perf_counter()
    pending = [simulate.remote(length, length) for length in lengths]
    while pending:
        ready, pending = weft.wait(pending, num_returns=1)
        weft.get(ready)
    return time.perf_counter() - began


def on_processes(rounds: int, waves: int) -> tuple[float, float, float]:
    """Steps a second of both ways, medians of alternating rounds, and the seconds of a step."""
    workers = os.cpu_count() or 1
    weft.init(num_cpus=workers)
    step_s = sum(weft.get([simulate.remote(MOST, seed) for seed in range(workers)])) / MOST / workers
    rates: dict[str, list[float]] = {"bulk": [], "asynchronous": []}
    for seed in range(rounds):
        lengths = draw_lengths(waves * workers, seed)
        rates["bulk"].append(sum(lengths) / bulk_synchronous(lengths, workers))
        rates["asynchronous"].append(sum(lengths) / asynchronous(lengths))
    weft.shutdown()
    return statistics.median(rates["bulk"]), statistics.median(rates["asynchronous"]), step_s


def in_simulator(workers: int, step_s: float, is_bulk: bool, seed: int) -> float:
    """Steps a second of virtual time."""
    lengths = draw_lengths(WAVES * workers, seed)
    span: dict[str, float] = {}

    def program(me: Any) -> Program:
        span["began"] = simulation.clock.now
        share = workers if is_bulk else len(lengths)
        for start in range(0, len(lengths), share):
            function = Function("simulate", lambda index, start=start: lengths[start + index] * step_s)
            yield Get([(yield Submit(function, share))])
        span["ended"] = simulation.clock.now

    nodes = math.ceil(workers / NODE_CPUS)
    simulation = Simulation(
        Plan(nodes=nodes, seed=seed, machine=Machine(cpus=min(workers, NODE_CPUS)), limit_s=36_000.0)
    )
    simulation.run(lambda made: made.drive(made.up()[0], program), [])
    if simulation.broken:
        raise RuntimeError(f"the simulation broke an invariant: {simulation.broken[0]}")
    return sum(lengths) / (span["ended"] - span["began"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--waves", type=int, default=20, help="episodes a worker on processes; few would be noise")
    parser.add_argument("--workers", default="1,4,16,64,256")
    options = parser.parse_args()
    bulk, free, step_s = on_processes(options.rounds, options.waves)
    print("| where | workers | bulk-synchronous steps/s | asynchronous steps/s | ratio |\n|---|---|---|---|---|")
    print(f"| processes | {os.cpu_count()} | {bulk:,.0f} | {free:,.0f} | {free / bulk:.2f} |", flush=True)
    for workers in map(int, options.workers.split(",")):
        both = [
            statistics.median(in_simulator(workers, step_s, is_bulk, seed) for seed in range(options.rounds))
            for is_bulk in (True, False)
        ]
        print(f"| simulator | {workers} | {both[0]:,.0f} | {both[1]:,.0f} | {both[1] / both[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
