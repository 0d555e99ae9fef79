"""Figure 14a: evolution strategies on Weft, beside a special-purpose implementation on Redis.

Both do the same arithmetic: pairs of mirrored perturbations of a linear policy of CartPole, ranked, one step along
their weighted sum. One is a few lines on Weft; the other is workers that take work from lists in Redis, fetch the
policy from a key, and push their results to another list, as the reference implementation of the paper did.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from reproduction import Outcome, Row, run

GOAL, MOST_GENERATIONS = 475.0, 200
PAIRS, CHUNK = 32, 4
SIGMA, RATE = 0.3, 0.4
Evaluated = list[tuple[int, float, float, int]]


def episode(weights: np.ndarray, seed: int) -> tuple[float, int]:
    import gymnasium

    environment = gymnasium.make("CartPole-v1", disable_env_checker=True)
    observation, _ = environment.reset(seed=seed)
    reward, steps, done = 0.0, 0, False
    while not done:
        observation, gained, terminated, truncated, _ = environment.step(int(observation @ weights > 0))
        reward, steps, done = reward + float(gained), steps + 1, terminated or truncated
    return reward, steps


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=4)


def evaluate(weights: np.ndarray, seeds: list[int]) -> Evaluated:
    """(seed, reward of the perturbation, of its mirror image, steps) of each."""
    found = []
    for seed in seeds:
        up, up_steps = episode(weights + SIGMA * noise(seed), seed)
        down, down_steps = episode(weights - SIGMA * noise(seed), seed)
        found.append((seed, up, down, up_steps + down_steps))
    return found


def improved(weights: np.ndarray, found: Evaluated) -> np.ndarray:
    rewards = np.array([(up, down) for _, up, down, _ in found])
    ranks = rewards.ravel().argsort().argsort().reshape(rewards.shape) / (rewards.size - 1) - 0.5
    step = sum((up - down) * noise(seed) for (up, down), (seed, *_) in zip(ranks, found, strict=True))
    return weights + RATE * step / (np.linalg.norm(step) + 1e-8)


def evolve(everything: Callable[[np.ndarray, list[list[int]]], Evaluated], seed: int) -> dict[str, float]:
    """Generations until the mean reward is at the goal; `everything` evaluates a generation's chunks of seeds."""
    weights, steps, began = np.zeros(4), 0, time.perf_counter()
    for generation in range(MOST_GENERATIONS):
        first = (seed * MOST_GENERATIONS + generation) * PAIRS
        chunks = [list(range(start, start + CHUNK)) for start in range(first, first + PAIRS, CHUNK)]
        found = everything(weights, chunks)
        steps += sum(count for *_, count in found)
        if statistics.fmean((up + down) / 2 for _, up, down, _ in found) >= GOAL:
            break
        weights = improved(weights, sorted(found))
    return {"seconds": time.perf_counter() - began, "steps": steps, "generations": generation + 1}


def on_weft(seed: int) -> dict[str, float]:
    import weft

    task = weft.remote(evaluate)
    weft.get([task.remote(np.zeros(4), [1]) for _ in range(4)])

    def everything(weights: np.ndarray, chunks: list[list[int]]) -> Evaluated:
        shared = weft.put(weights)
        return [one for part in weft.get([task.remote(shared, seeds) for seeds in chunks]) for one in part]

    return evolve(everything, seed)


def on_redis(seed: int, socket: str, workers: int) -> dict[str, float]:
    import redis

    store = redis.Redis(unix_socket_path=socket)
    store.flushall()
    running = [subprocess.Popen([sys.executable, __file__, "--worker", socket]) for _ in range(workers)]
    for _ in running:
        store.blpop("up")

    def everything(weights: np.ndarray, chunks: list[list[int]]) -> Evaluated:
        store.set("policy", pickle.dumps(weights))
        store.rpush("work", *(pickle.dumps(seeds) for seeds in chunks))
        return [one for _ in chunks for one in pickle.loads(store.blpop("results")[1])]  # type: ignore[index]

    found = evolve(everything, seed)
    store.rpush("work", *(pickle.dumps(None) for _ in running))
    for worker in running:
        worker.wait()
    store.close()
    return found


def redis_worker(socket: str) -> None:
    import redis

    store = redis.Redis(unix_socket_path=socket)
    episode(np.zeros(4), 0)
    store.rpush("up", b"1")
    while (seeds := pickle.loads(store.blpop("work")[1])) is not None:  # type: ignore[index]
        weights = pickle.loads(store.get("policy"))  # type: ignore[arg-type]
        store.rpush("results", pickle.dumps(evaluate(weights, seeds)))


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Its socket's path."""
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    if server is None:
        raise SystemExit("the peer of this script needs redis-server: install it first")
    with tempfile.TemporaryDirectory() as folder:
        socket = str(Path(folder) / "redis.sock")
        options = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        running = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                if running.poll() is not None:
                    raise SystemExit(f"{server} ended with status {running.returncode}")
                time.sleep(0.05)
            yield socket
        finally:
            running.terminate()
            running.wait()


def measure(short: bool) -> Outcome:
    import weft
    from weft.demos import chart

    workers, seeds = os.cpu_count() or 2, 1 if short else 5
    found: dict[str, list[dict[str, float]]] = {"Weft": [], "Redis": []}
    with redis_server() as socket:
        weft.init(num_cpus=workers)
        try:
            for seed in range(seeds):
                found["Weft"].append(on_weft(seed))
                found["Redis"].append(on_redis(seed, socket, workers))
        finally:
            weft.shutdown()
    assert [one["generations"] for one in found["Weft"]] == [one["generations"] for one in found["Redis"]]
    seconds = {name: statistics.median(one["seconds"] for one in runs) for name, runs in found.items()}
    rates = {name: statistics.median(one["steps"] / one["seconds"] for one in runs) for name, runs in found.items()}
    return Outcome(
        "Figure 14a",
        "Evolution strategies, beside a special-purpose system",
        [
            Row(
                "time to the goal",
                "3.7 minutes with 8,192 cores; the special-purpose system 10 minutes at its best, none beyond "
                "1,024 cores",
                f"{seconds['Weft']:.1f} s; on Redis {seconds['Redis']:.1f} s, "
                f"{seconds['Redis'] / seconds['Weft']:.2f} times ours",
            ),
            Row("steps a second", "not given", f"{rates['Weft']:,.0f}; on Redis {rates['Redis']:,.0f}"),
        ],
        f"the paper: Humanoid-v1 to a score of 6,000 on up to 8,192 cores; here: CartPole-v1 to {GOAL:.0f} with a "
        f"linear policy on {workers} cores, median of {seeds} seeds; both sides make the same generations.",
        [chart.bars(seconds, "Seconds to the goal, less is better", "seconds")],
    )


if __name__ == "__main__":
    if "--worker" in sys.argv:
        redis_worker(sys.argv[2])
    else:
        run("evolution", measure)
