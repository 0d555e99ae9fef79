"""What the scoreboard measures: in each section the same work, done by Weft and by what people would use instead.

The workloads are those of the other files here. A contender's `measure` makes one round and gives a figure for each
case of its section; the scoreboard runs it in a process of its own, under a time limit, as often as there is time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WEFT = "Weft"
CPUS = os.cpu_count() or 2


@dataclasses.dataclass(frozen=True)
class Setting:
    """What one round of one contender is told."""

    python: str
    """An interpreter that has what the contender needs."""
    folder: Path
    """For the files that the contenders of a section share; they are made once."""
    short: bool


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    unit: str
    less_is_better: bool = False


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    measure: Callable[[Setting], dict[str, float]]
    """Gives the figures by the name of the case."""
    needs: tuple[str, ...] = ()
    """Distributions, the first of which is the peer itself; none for what this interpreter has anyway."""


@dataclasses.dataclass(frozen=True)
class Section:
    title: str
    work: str
    """What is done, for the page."""
    cases: tuple[Case, ...]
    contenders: tuple[Contender, ...]
    tool: str = ""
    """A program that all of them need."""


# ---- tasks, actors, objects --------------------------------------------------------------------------

ENGINE_CASES = {
    "tasks_sync": Case("tasks, one at a time", "a second"),
    "tasks_async": Case("tasks, 1,000 at once", "a second"),
    "tasks_nested": Case("tasks that submit tasks", "a second"),
    "actor_sync": Case("actor calls, one at a time", "a second"),
    "actor_async": Case("actor calls, 1,000 at once", "a second"),
    "actors_20_created_s": Case("20 actors made, called, killed", "s", less_is_better=True),
    "put_small": Case("put of a number", "a second"),
    "put_gib": Case("put of 100 MB", "GiB/s"),
    "get_100mb": Case("get of 100 MB", "a second"),
    "wait_drain_1k_s": Case("wait for 1,000 tasks, one by one", "s", less_is_better=True),
    "init_s": Case("init", "s", less_is_better=True),
}


def engine_side(package: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        import engine

        engine.ROUND_S = 0.1 if setting.short else 0.4
        names = ",".join(name for name in ENGINE_CASES if name != "init_s")
        found = engine.measure_elsewhere(package, setting.python, names, CPUS)
        return {case.name: found[name] for name, case in ENGINE_CASES.items() if name in found}

    return measure


ENGINE = Section(
    "Tasks, actors, objects",
    "A function or a method that does nothing, a small value and a large one; workers are up before the clock starts.",
    tuple(ENGINE_CASES.values()),
    (Contender(WEFT, engine_side("weft")), Contender("Ray", engine_side("ray"), ("ray",))),
)


# ---- pools -------------------------------------------------------------------------------------------

POOL_CASES = {1: Case("1 call", "calls/s"), 1_000: Case("1,000 calls at once", "calls/s")}


def pool_side(name: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        import pools

        options = argparse.Namespace(counts=",".join(map(str, POOL_CASES)), cpus=CPUS, limit_s=2.0)
        found = pools.measure_elsewhere(name, setting.python, options)
        if found is None:
            raise RuntimeError("its process gave no figures")
        return {case.name: found[str(count)][0] for count, case in POOL_CASES.items()}

    return measure


POOLS = Section(
    "Process pools",
    "Calls of a function that does nothing, submitted together, all results collected; workers are up before the clock "
    "starts. joblib alone may put several calls into one message.",
    tuple(POOL_CASES.values()),
    (
        Contender(WEFT, pool_side("weft")),
        Contender("ProcessPoolExecutor", pool_side("executor")),
        Contender("Pool.apply_async", pool_side("pool_apply_async")),
        Contender("joblib", pool_side("joblib"), ("joblib",)),
        Contender("loky", pool_side("loky"), ("joblib",)),
        Contender("Dask", pool_side("dask"), ("dask", "distributed")),
        Contender("MPI for Python", pool_side("mpi"), ("mpi4py", "mpich")),
    ),
)


# ---- collectives -------------------------------------------------------------------------------------

REDUCED = {4 << 10: "4 KB", 4 << 20: "4 MB", 100 << 20: "100 MB"}


def all_reduce_side(way: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        import train_collectives as collectives

        sizes = list(REDUCED)
        if way == "weft":
            found = collectives.in_weft(2, sizes)
        else:
            found = getattr(collectives, f"in_{way}")(setting.python, 2, sizes)
        return {f"all-reduce of {name}": statistics.median(found[size]) for size, name in REDUCED.items()}

    return measure


COLLECTIVES = Section(
    "weft.train: all-reduce",
    "Two members of one machine add up arrays of 32-bit floats; the slower member's time, median of the repetitions.",
    tuple(Case(f"all-reduce of {name}", "s", less_is_better=True) for name in REDUCED.values()),
    (
        Contender(WEFT, all_reduce_side("weft")),
        Contender("gloo", all_reduce_side("gloo"), ("torch",)),
        Contender("MPI for Python", all_reduce_side("mpi"), ("mpi4py", "mpich")),
    ),
)


# ---- searches ----------------------------------------------------------------------------------------

TRIVIAL = Case("10 trials that report once", "s", less_is_better=True)
BUSY = Case("8 trials of 0.25 s of Python", "s", less_is_better=True)
STEPS, SEEDS = 1_200, 30
CROSSING = Case("ASHA, curves that cross", "loss", less_is_better=True)
HARTMANN = Case("ASHA, Hartmann's function", "loss", less_is_better=True)


def search_side(engine: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        import tune

        found = {
            TRIVIAL.name: tune.run(setting.python, engine, "trivial_10")["s"],
            BUSY.name: tune.run(setting.python, engine, "busy_8")["s"],
        }
        return found if engine == "ray" else found | answers(engine, 3 if setting.short else SEEDS)

    return measure


def answers(engine: str, seeds: int) -> dict[str, float]:
    """How good what a search finds is: no clock in it."""
    import optuna
    import tune_quality

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ours, theirs, _ = tune_quality.contenders()["ASHA"]
    search = ours if engine == "weft" else theirs
    assert search is not None
    return {
        case.name: statistics.median(search(problem, seed, STEPS).at(STEPS) for seed in range(seeds))
        for case, problem in ((CROSSING, tune_quality.Crossing), (HARTMANN, tune_quality.Hartmann))
    }


TUNE = Section(
    "weft.tune: searches",
    "Seconds from starting the session to the results, imports not counted, two trials at once; Optuna on two threads "
    f"of one process, without a session. Loss of the answer after {STEPS:,} steps in virtual time, median of {SEEDS} "
    "seeds; Ray Tune has no such mode.",
    (TRIVIAL, BUSY, CROSSING, HARTMANN),
    (
        Contender(WEFT, search_side("weft")),
        Contender("Ray Tune", search_side("ray"), ("ray", "pyarrow", "pandas")),
        Contender("Optuna", search_side("optuna"), ("optuna",)),
    ),
)


# ---- serving -----------------------------------------------------------------------------------------

CONNECTIONS = {1: "1 connection", 32: "32 connections"}


def http_rates(address: str, setting: Setting) -> dict[str, float]:
    import serve

    seconds = 1.0 if setting.short else 2.0
    serve.wrk(address, 32, 1.0)  # warm
    return {name: serve.wrk(address, count, seconds).per_second for count, name in CONNECTIONS.items()}


def weft_serve(setting: Setting) -> dict[str, float]:
    import serve as cases
    import weft
    from weft import serve

    weft.init()
    try:
        address = serve.start(http_options=serve.HTTPOptions(port=0))
        serve.run(cases.nothing.bind(), name="nothing", route_prefix="/")
        return http_rates(address, setting)
    finally:
        serve.shutdown()
        weft.shutdown()


def bare_uvicorn(setting: Setting) -> dict[str, float]:
    import serve

    process, address = serve.bare_uvicorn()
    try:
        return http_rates(address, setting)
    finally:
        process.terminate()
        process.wait()


def ray_serve(setting: Setting) -> dict[str, float]:
    import serve

    with serve.ray_serving(setting.python) as address:
        return http_rates(address, setting)


SERVE = Section(
    "weft.serve: HTTP",
    "A deployment that answers with two bytes, asked by `wrk` over loopback; uvicorn alone is what any framework on it "
    "can reach at most.",
    tuple(Case(name, "requests/s") for name in CONNECTIONS.values()),
    (
        Contender(WEFT, weft_serve),
        Contender("bare uvicorn", bare_uvicorn),
        Contender("Ray Serve", ray_serve, ("ray", "uvicorn", "fastapi")),
    ),
    tool="wrk",
)


# ---- data --------------------------------------------------------------------------------------------

DATA_CASES = {
    "scan": "filter and sum",
    "group": "group, few keys",
    "group_many": "group, many keys",
    "join": "join and group",
    "sort": "sort",
}


def data_side(engine: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        from data_sets import generate

        made = generate(setting.folder, 0.01 if setting.short else 0.1)
        child = [str(HERE / "data.py"), str(made), "--child", engine, ",".join(DATA_CASES), "--rounds", "3"]
        found = last_line([setting.python, *child])
        return {name: statistics.median(found[case]["seconds"]) for case, name in DATA_CASES.items()}

    return measure


DATA = Section(
    "weft.data: from Parquet files to an answer",
    "600,000 order lines, 150,000 orders and 5 million telemetry rows (TPC-H's shapes at a tenth of scale 1); starting "
    "and importing are not counted, the median of 3 runs in one process.",
    tuple(Case(name, "s", less_is_better=True) for name in DATA_CASES.values()),
    (
        Contender(WEFT, data_side("weft")),
        Contender("Ray Data", data_side("ray"), ("ray", "pyarrow", "psutil")),
        Contender("Dask", data_side("dask"), ("dask", "pyarrow", "psutil")),
        Contender("Polars", data_side("polars"), ("polars", "psutil")),
        Contender("pandas", data_side("pandas"), ("pandas", "pyarrow", "psutil")),
    ),
)


# ---- reinforcement learning --------------------------------------------------------------------------

LEARNING_S = 40.0
RATE = Case("PPO on CartPole, steps", "steps/s")
REWARD = Case(f"mean reward when {LEARNING_S:.0f} s are over", "of 475")


def learning_side(side: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        seconds = 8.0 if setting.short else LEARNING_S
        child = [str(HERE / "rl" / "peers.py"), "--one", side, "ppo-cartpole", "1", "--most-seconds", str(seconds)]
        found = last_line([setting.python, *child])
        reward = found["reward"] if found["reward"] > 0 else 0.0  # not a number before the first episode has ended
        return {RATE.name: found["steps"] / found["seconds"], REWARD.name: reward}

    return measure


RL = Section(
    "weft.rl: PPO",
    "The same environment and network; Stable-Baselines3 with the settings that its authors published, RLlib with "
    "ours. Starting and compiling are counted; a run that is at 475 ends there. How long the way to 475 takes is in "
    "benchmarks/README.md.",
    (RATE, REWARD),
    (
        Contender(WEFT, learning_side("weft")),
        Contender("Stable-Baselines3", learning_side("sb3"), ("stable-baselines3", "gymnasium")),
        Contender("RLlib", learning_side("rllib"), ("ray", "torch", "gymnasium")),
    ),
)


# ---- frames ------------------------------------------------------------------------------------------

FRAME_CASES = ("read_csv", "apply by row", "groupby agg", "merge", "fillna", "isna", "mean")


def frame_side(library: str) -> Callable[[Setting], dict[str, float]]:
    def measure(setting: Setting) -> dict[str, float]:
        import pandas_frames

        rows = 20_000 if setting.short else 500_000
        path = setting.folder / f"table-{rows}.csv"
        if not path.exists():
            pandas_frames.write_table(path.with_suffix(".part"), rows)
            path.with_suffix(".part").rename(path)
        options = argparse.Namespace(rows=rows, rounds=3)
        return pandas_frames.run_library(setting.python, library, options, str(path))[0]

    return measure


FRAMES = Section(
    "weft.pandas.modin: frames",
    "500,000 rows of 20 columns; a result counts when it is there, not when it is promised; the best of 3 in one "
    "process.",
    tuple(Case(name, "s", less_is_better=True) for name in FRAME_CASES),
    (
        Contender(WEFT, frame_side("weft")),
        Contender("pandas", frame_side("pandas"), ("pandas",)),
        Contender("Modin on Ray", frame_side("ray"), ("modin", "ray")),
    ),
)


def last_line(command: list[str]) -> dict[str, Any]:
    """The JSON that a process prints last."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


SECTIONS = {
    "engine": ENGINE,
    "pools": POOLS,
    "collectives": COLLECTIVES,
    "tune": TUNE,
    "serve": SERVE,
    "data": DATA,
    "rl": RL,
    "pandas": FRAMES,
}


def contender(section: str, name: str) -> Contender:
    return next(one for one in SECTIONS[section].contenders if one.name == name)


if __name__ == "__main__":
    sys.exit("this is the list of cases; `make scoreboard` measures them")
