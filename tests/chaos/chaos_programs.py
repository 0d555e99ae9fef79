"""Programs that chaos is let loose on: python chaos_programs.py NAME ADDRESS SEED SECONDS.

Each works in rounds until its time is over, checks every round's answer against one that it has computed by itself, and
prints a line for each round. A wrong answer or any error is a traceback and exit status 1.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import weft

FOR_EVER = -1


# ---- map-reduce over large arrays ------------------------------------------------------------------


@weft.remote(max_retries=FOR_EVER)
def make(seed: int, size: int) -> Any:
    return np.random.default_rng(seed).integers(0, 1000, size)


@weft.remote(max_retries=FOR_EVER)
def split(array: Any, parts: int) -> list[Any]:
    return [array[array % parts == part] for part in range(parts)]


@weft.remote(max_retries=FOR_EVER)
def reduce(*arrays: Any) -> int:
    return int(sum(int(array.sum()) for array in arrays))


def map_reduce(rng: random.Random) -> None:
    """Every array is in some node's arena, and goes when the node does: then it is made again."""
    seeds, parts, size = [rng.randrange(1 << 30) for _ in range(6)], 3, 200_000
    made = [make.remote(seed, size) for seed in seeds]
    pieces = [split.options(num_returns=parts).remote(array, parts) for array in made]
    totals = weft.get([reduce.remote(*(piece[part] for piece in pieces)) for part in range(parts)])
    arrays = [np.random.default_rng(seed).integers(0, 1000, size) for seed in seeds]
    expected = [sum(int(array[array % parts == part].sum()) for array in arrays) for part in range(parts)]
    assert totals == expected, f"{totals} instead of {expected}"


# ---- more than fits into memory --------------------------------------------------------------------


@weft.remote(max_retries=FOR_EVER)
def count_from(start: int, size: int) -> Any:
    return np.arange(start, start + size)


@weft.remote(max_retries=FOR_EVER)
def add(one: Any, other: Any) -> int:
    return int(one.sum()) + int(other.sum())


def spilling(rng: random.Random) -> None:
    """The arrays together are more than the nodes' memory for objects, so that most are on disk when they are read."""
    count, size = 20, 1_000_000
    starts = [rng.randrange(1000) for _ in range(count)]
    arrays = [count_from.remote(start, size) for start in starts]
    weft.wait(arrays, num_returns=count, fetch_local=False)
    sums = weft.get([add.remote(arrays[n], arrays[-1 - n]) for n in range(count // 2)])
    expected = [size * (starts[n] + starts[-1 - n] + size - 1) for n in range(count // 2)]
    assert sums == expected, f"{sums} instead of {expected}"


# ---- a parameter server ----------------------------------------------------------------------------


@weft.remote(checkpoint=10, num_cpus=0, resources={"worker": 0.01})
class Parameters:
    """Must count each update once, whatever dies."""

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size, dtype=np.int64)
        self.updates = 0

    def push(self, gradient: Any) -> int:
        self.values = self.values + gradient
        self.updates += 1
        return self.updates

    def pull(self) -> Any:
        return self.values

    def count(self) -> int:
        return self.updates


@weft.remote(max_retries=FOR_EVER)
def gradient(seed: int, size: int, at: Any) -> Any:
    assert len(at) == size
    return np.random.default_rng(seed).integers(-10, 10, size)


def parameter_server(rng: random.Random) -> None:
    size, steps, width = 500, 3, 6
    server = Parameters.remote(size)
    expected = np.zeros(size, dtype=np.int64)
    for _ in range(steps):
        seeds = [rng.randrange(1 << 30) for _ in range(width)]
        at = server.pull.remote()
        weft.get([server.push.remote(gradient.remote(seed, size, at)) for seed in seeds])
        for seed in seeds:
            expected += np.random.default_rng(seed).integers(-10, 10, size)
    values, count = weft.get([server.pull.remote(), server.count.remote()])
    assert count == steps * width, f"{count} updates instead of {steps * width}"
    assert np.array_equal(values, expected)


# ---- a loop as in reinforcement learning -----------------------------------------------------------


@weft.remote(max_restarts=FOR_EVER, max_task_retries=FOR_EVER)
class Rollouts:
    """Walks at random, as the weights say; the same seed gives the same walk."""

    def walk(self, weights: Any, seed: int) -> tuple[float, Any]:
        return walk(weights, seed)


def walk(weights: Any, seed: int) -> tuple[float, Any]:
    noise = np.random.default_rng(seed).standard_normal(len(weights))
    position = np.cumsum(np.tanh(weights + noise))
    return float(-np.abs(position - 1.0).sum()), noise


def learn(weights: Any, outcomes: list[tuple[float, Any]]) -> Any:
    rewards = np.array([reward for reward, _ in outcomes])
    scaled = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    return weights + 0.1 * sum(one * noise for one, (_, noise) in zip(scaled, outcomes, strict=True)) / len(outcomes)


def rl_loop(rng: random.Random) -> None:
    workers = [Rollouts.remote() for _ in range(2)]
    weights = expected = np.zeros(20_000)
    for _ in range(3):
        seeds = [rng.randrange(1 << 30) for _ in range(4)]
        shared = weft.put(weights)
        calls = [workers[n % len(workers)].walk.remote(shared, seed) for n, seed in enumerate(seeds)]
        weights = learn(weights, weft.get(calls))
        expected = learn(expected, [walk(expected, seed) for seed in seeds])
    assert np.array_equal(weights, expected)


# ---- a tuning run ----------------------------------------------------------------------------------


def train(config: dict[str, Any]) -> None:
    from weft import tune

    value = 0.0
    for _ in range(3):
        value += config["rate"] * (1.0 - value)
        tune.report(value=value)


def tuning(rng: random.Random) -> None:
    from weft import tune

    rates = sorted({round(rng.uniform(0.1, 0.9), 3) for _ in range(4)})
    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(
            train,
            config={"rate": tune.grid_search(rates)},
            metric="value",
            mode="max",
            max_failures=FOR_EVER,
            storage_path=folder,
            verbose=0,
        )
    values = {trial.config["rate"]: trial.last_result["value"] for trial in found.trials}
    assert sorted(values) == rates
    assert found.best_config["rate"] == rates[-1], found.best_config
    for rate, value in values.items():
        assert abs(value - (1.0 - (1.0 - rate) ** 3)) < 1e-9, (rate, value)


# ---- a stream of large items -----------------------------------------------------------------------


@weft.remote(num_returns="streaming", max_retries=FOR_EVER)
def items(seed: int, count: int, size: int) -> Iterator[Any]:
    for number in range(count):
        yield np.random.default_rng(seed + number).integers(0, 1000, size)


def stream(rng: random.Random) -> None:
    """Each item once, in order, though whoever makes them dies in the middle."""
    seed, count, size = rng.randrange(1 << 30), 6, 100_000
    sums = [int(weft.get(ref).sum()) for ref in items.remote(seed, count, size)]
    expected = [int(np.random.default_rng(seed + number).integers(0, 1000, size).sum()) for number in range(count)]
    assert sums == expected, f"{sums} instead of {expected}"


# ---- a detached actor that is found by its name ----------------------------------------------------


@weft.remote(checkpoint=5, num_cpus=0, resources={"worker": 0.01})
class Tally:
    """Counts exactly, whatever dies."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def detached(rng: random.Random) -> None:
    name = f"tally-{rng.randrange(1 << 60)}"
    Tally.options(name=name, lifetime="detached").remote()
    counts = [weft.get(weft.get_actor(name).add.remote()) for _ in range(10)]
    weft.kill(weft.get_actor(name))
    assert counts == list(range(1, 11)), counts


# ---- tasks in placement groups ---------------------------------------------------------------------


@weft.remote(max_retries=FOR_EVER, num_cpus=0.5)
def square(number: int) -> int:
    return number * number


def groups(rng: random.Random) -> None:
    """A bundle whose node dies is set aside elsewhere, and what was to run there runs."""
    numbers = [rng.randrange(1000) for _ in range(8)]
    group = weft.util.placement_group([{"CPU": 0.5}, {"CPU": 0.5}], strategy="SPREAD")
    weft.get(group.ready())
    calls = []
    for number in numbers:
        place = weft.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
        calls.append(square.options(scheduling_strategy=place).remote(number))
    found = weft.get(calls)
    weft.util.remove_placement_group(group)
    assert found == [number * number for number in numbers], found


# ---- a dataset's shuffle ---------------------------------------------------------------------------


def shuffle(rng: random.Random) -> None:
    import weft.data

    rows, seed = 2000, rng.randrange(1 << 30)
    doubled = weft.data.range(rows, blocks=6).map(lambda row: {"id": 2 * row["id"]})
    found = [row["id"] for row in doubled.random_shuffle(seed=seed).take_all()]
    assert sorted(found) == list(range(0, 2 * rows, 2)), "rows were lost or came twice"
    assert found != sorted(found)


# ---- a served model --------------------------------------------------------------------------------


def serving(rng: random.Random) -> None:
    """Requests that replicas died with are sent again; each answer is the model's."""
    from weft import serve

    factor = rng.randrange(2, 1000)

    @serve.deployment(num_replicas=2, retry_on_death=True, ray_actor_options={"num_cpus": 0.1})
    class Model:
        def __call__(self, number: int) -> int:
            return factor * number

    handle = serve.run(Model.bind(), name="chaos", route_prefix=None)
    numbers = [rng.randrange(1000) for _ in range(20)]
    found = [response.result(timeout_s=110) for response in [handle.remote(number) for number in numbers]]
    assert found == [factor * number for number in numbers], found
    serve.delete("chaos")


# ---- values that outlive their node ----------------------------------------------------------------


@weft.remote(max_retries=FOR_EVER)
def keep(name: str, seed: int, size: int) -> list[Any]:
    """Run again, it finds what it had put."""
    try:
        return [weft.get_object(name)]
    except ValueError:
        return [weft.put(np.random.default_rng(seed).integers(0, 1000, size), durable=True, name=name)]


@weft.remote(max_retries=FOR_EVER)
def total(refs: list[Any]) -> list[int]:
    return [int(value.sum()) for value in weft.get(refs)]


def lasting(rng: random.Random) -> None:
    """Put durable on nodes that die; read by the ref, and by the name."""
    seed, size = rng.randrange(1 << 30), 100_000
    names = [f"kept-{rng.randrange(1 << 60)}" for _ in range(4)]
    refs = weft.get([keep.remote(name, seed + number, size) for number, name in enumerate(names)])
    found = weft.get([total.remote([weft.get_object(name), *put]) for name, put in zip(names, refs, strict=True)])
    for name in names:
        weft.delete_object(name)
    sums = [int(np.random.default_rng(seed + number).integers(0, 1000, size).sum()) for number in range(len(names))]
    assert found == [[one] * 2 for one in sums], f"{found} instead of {sums}"


PROGRAMS: dict[str, Callable[[random.Random], None]] = {
    "map_reduce": map_reduce,
    "spilling": spilling,
    "parameter_server": parameter_server,
    "rl_loop": rl_loop,
    "tuning": tuning,
    "stream": stream,
    "detached": detached,
    "groups": groups,
    "shuffle": shuffle,
    "serving": serving,
    "lasting": lasting,
}


def main(name: str, address: str, seed: str, seconds: str) -> None:
    weft.init(address=address, log_to_driver=False)
    until = time.monotonic() + float(seconds)
    rng = random.Random(int(seed))
    number = 0
    while time.monotonic() < until or number == 0:
        PROGRAMS[name](rng)
        number += 1
        print(f"round {number}", flush=True)
    weft.shutdown()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
