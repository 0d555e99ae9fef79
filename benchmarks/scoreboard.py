"""Weft beside what people would use instead, in one run on one machine, losses shown.

    python benchmarks/scoreboard.py --peers-python .venv-peers/bin/python [--short] [--sections engine,pools]
    python benchmarks/scoreboard.py --page          only the page, of the figures that are there

The cases are those of the other files here. Figures go to benchmarks/scoreboard.json, a section at a time, and from
there to docs/scoreboard.md with its bars: nothing on the page is written by hand. Sides take turns, one process of its
own each; the best of the rounds counts. What failed says so.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "scoreboard.json"
DOCS = HERE.parent / "docs"
IMAGES = DOCS / "images" / "scoreboard"
PEER_TIMEOUT_S = 1800
STEPS = 1_200  # of a search, all workers together
WEFT = "Weft"


def reason(error: Exception) -> str:
    """Why there is no figure, for the page: no paths of this machine, which the error itself is full of."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"its process ended with status {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return "it took longer than its time limit"
    return "its process gave no figure" if isinstance(error, KeyError) else type(error).__name__


@dataclasses.dataclass
class Case:
    """One workload; a contender without a figure has a reason."""

    name: str
    unit: str
    less_is_better: bool = False
    figures: dict[str, float] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, contender: str, measure: Callable[[], float]) -> None:
        """The better one of this and what is there."""
        try:
            value = float(measure())
        except Exception as error:
            print(f"{contender}, {self.name}: {error!r}", file=sys.stderr)
            self.failed[contender] = reason(error)
            return
        if not math.isfinite(value):
            self.failed[contender] = "it failed, or took longer than its time limit"
            return
        better = min if self.less_is_better else max
        self.figures[contender] = better(self.figures.get(contender, value), value)
        self.failed.pop(contender, None)

    def speed(self, contender: str) -> float:
        """Times as fast as Weft; more than 1 is a loss."""
        ours, theirs = self.figures[WEFT], self.figures[contender]
        return ours / theirs if self.less_is_better else theirs / ours


@dataclasses.dataclass(frozen=True)
class Run:
    """What all sections are told."""

    peers: str
    rounds: int
    short: bool


# ---- sections: each gives its cases ------------------------------------------------------------------


def engine_section(run: Run) -> list[Case]:
    """Tasks, actors and objects: Ray's core."""
    import engine

    engine.PEER_TIMEOUT_S = PEER_TIMEOUT_S
    names = ["tasks_sync", "tasks_async", "actor_sync", "actor_async", "put_gib"]
    names += [] if run.short else ["tasks_nested", "put_small", "get_100mb", "wait_drain_10k_s", "actors_20_created_s"]
    units = {"put_gib": "GiB/s", "tasks_sync": "tasks/s", "tasks_async": "tasks/s", "tasks_nested": "tasks/s"}
    cases = {}
    for _ in range(run.rounds):
        for contender, package, python in ((WEFT, "weft", sys.executable), ("Ray", "ray", run.peers)):
            try:
                found = engine.measure_elsewhere(package, python, ",".join(names), os.cpu_count() or 2)
            except SystemExit as error:
                found = {}
                print(error, file=sys.stderr)
            for name in (*names, "init_s"):
                is_time = engine.is_time(name)
                unit = "s" if is_time else units.get(name, "calls/s")
                case = cases.setdefault(name, Case(name, unit, is_time))
                case.add(contender, lambda: found[name])  # noqa: B023
    return list(cases.values())


def pools_section(run: Run) -> list[Case]:
    """Calls of a function that does nothing: process pools, Dask, loky, MPI for Python."""
    import pools

    counts = [1, 1_000] if run.short else [1, 1_000, 100_000]
    options = argparse.Namespace(
        counts=",".join(map(str, counts)), cpus=os.cpu_count() or 2, limit_s=1.0 if run.short else 10.0
    )
    contenders = {
        WEFT: ("weft", sys.executable),
        "ProcessPoolExecutor": ("executor", sys.executable),
        "Pool.apply_async": ("pool_apply_async", sys.executable),
        "joblib's loky": ("loky", sys.executable),
        "Dask": ("dask", run.peers),
        "MPI for Python": ("mpi", run.peers),
    }
    cases = {count: Case(f"{count:,} calls at once", "calls/s") for count in counts}
    for contender, (name, python) in contenders.items():
        try:
            found = pools.measure_elsewhere(name, python, options) or {}
        except OSError as error:  # there is no mpiexec
            found = {}
            print(error, file=sys.stderr)
        for count, case in cases.items():
            case.add(contender, lambda: found[str(count)][0])  # noqa: B023
    return list(cases.values())


def tune_section(run: Run) -> list[Case]:
    """weft.tune: Ray Tune's overhead, Optuna's answers."""
    import tune as overhead

    number = 30 if run.short else 100
    trivial = Case(f"{number} trials that report once, with starting", "s", less_is_better=True)
    for _ in range(run.rounds):
        trivial.add(WEFT, lambda: overhead.run(sys.executable, "weft", f"trivial_{number}")["s"])
        trivial.add("Ray Tune", lambda: overhead.run(run.peers, "ray", f"trivial_{number}")["s"])
    return [trivial, *tune_quality(3 if run.short else 30)]


def tune_quality(seeds: int) -> Iterator[Case]:
    import optuna
    import tune_quality as quality

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ours, theirs, _ = quality.contenders()["ASHA"]
    for problem in (quality.Crossing, quality.Hartmann):
        name = f"loss after {STEPS:,} steps, ASHA, {problem.__name__}, median of {seeds}"
        case = Case(name, "loss", less_is_better=True)
        for contender, search in ((WEFT, ours), ("Optuna", theirs)):
            case.add(
                contender,
                lambda: statistics.median(search(problem, seed, STEPS).at(STEPS) for seed in range(seeds)),  # noqa: B023
            )
        yield case


def serve_section(run: Run) -> list[Case]:
    """weft.serve: a no-op over HTTP, beside bare uvicorn and Ray Serve."""
    import serve as cases_of_serve
    import weft
    from weft import serve

    cases = [Case(f"no-op over HTTP, {count} connections", "requests/s") for count in (1, 32)]
    seconds = 1.0 if run.short else 3.0

    def measure(contender: str, address: str) -> None:
        for case, connections in zip(cases, (1, 32), strict=True):
            case.add(contender, lambda: cases_of_serve.wrk(address, connections, seconds).per_second)  # noqa: B023

    for _ in range(run.rounds):
        weft.init()
        try:
            address = serve.start(http_options=serve.HTTPOptions(port=0))
            serve.run(cases_of_serve.nothing.bind(), name="nothing", route_prefix="/")
            measure(WEFT, address)
            serve.shutdown()
        finally:
            weft.shutdown()
        process, address = cases_of_serve.bare_uvicorn()
        measure("bare uvicorn", address)
        process.terminate()
        process.wait()
        try:
            with cases_of_serve.ray_serving(run.peers) as address:
                measure("Ray Serve", address)
        except (AssertionError, OSError) as error:
            print(f"Ray Serve: {error!r}", file=sys.stderr)
            for case in cases:
                case.failed["Ray Serve"] = "it did not start"
    return cases


def data_section(run: Run) -> list[Case]:
    """weft.data: from Parquet files to an answer, beside Ray Data, Dask, Polars and pandas."""
    from data_sets import generate

    import data

    options = SimpleNamespace(ray_python=run.peers, other_python=run.peers, rounds=run.rounds, timeout_s=300)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder), 0.01 if run.short else 0.1)
        for name in ("scan", "group") if run.short else ("scan", "group", "group_many", "join", "sort"):
            case = Case(name, "s", less_is_better=True)
            for contender, engine in {WEFT: "weft", "Ray Data": "ray", "Dask": "dask", "Polars": "polars"}.items():
                case.add(contender, lambda: min(data.run_child(options, made, engine, name)["seconds"]))  # noqa: B023
            cases.append(case)
    return cases


def rl_section(run: Run) -> list[Case]:
    """weft.rl: PPO on CartPole, beside Stable-Baselines3 and RLlib."""
    rate = Case("PPO on CartPole, steps a second", "steps/s")
    goal = Case("PPO on CartPole, to a mean reward of 475", "s", less_is_better=True)
    limit = ["--steps", "6000"] if run.short else []
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(1, run.rounds + 1):
        for contender, side, python in (
            (WEFT, "weft", sys.executable),
            ("Stable-Baselines3", "sb3", run.peers),
            ("RLlib", "rllib", run.peers),
        ):
            command = [python, str(HERE / "rl" / "peers.py"), "--one", side, "ppo-cartpole", str(seed), *limit]
            found.setdefault(contender, []).append(last_line(command))
            rate.add(contender, lambda: found[contender][-1]["steps"] / found[contender][-1]["seconds"])  # noqa: B023
    if run.short:
        return [rate]
    for contender, runs in found.items():
        if all(one["reached"] for one in runs):
            goal.add(contender, lambda: statistics.median(one["seconds"] for one in runs))  # noqa: B023
        else:
            goal.failed[contender] = f"{sum(not one['reached'] for one in runs)} of {len(runs)} runs did not get there"
    return [rate, goal]


def pandas_section(run: Run) -> list[Case]:
    """weft.pandas: one machine's cores for pandas, beside pandas itself and Modin on Ray."""
    import pandas_frames as frames

    rows = 20_000 if run.short else 1_000_000
    options = argparse.Namespace(rows=rows, rounds=run.rounds)
    cases = {name: Case(f"{name}, {rows:,} rows", "s", less_is_better=True) for name in frames.CASES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frames.write_table(path, rows)
        for contender, library, python in (
            (WEFT, "weft", sys.executable),
            ("pandas", "pandas", sys.executable),
            ("Modin on Ray", "ray", run.peers),
        ):
            try:
                found, _ = frames.run_library(python, library, options, str(path))
            except (SystemExit, OSError) as error:
                found = {}
                print(error, file=sys.stderr)
            for name, case in cases.items():
                case.add(contender, lambda: found[name])  # noqa: B023
    return list(cases.values())


def collectives_section(run: Run) -> list[Case]:
    """weft.train: all-reduce between two members, beside PyTorch's gloo."""
    import train_collectives

    sizes = {"4 KB": 4096, "4 MB": 4 << 20} | ({} if run.short else {"100 MB": 100 << 20})
    cases = {size: Case(f"all-reduce of {name}, 2 members, median", "s", True) for name, size in sizes.items()}
    for _ in range(run.rounds):
        for contender, times in (
            (WEFT, train_collectives.in_weft(2, list(sizes.values()))),
            ("gloo", train_collectives.in_gloo(sys.executable, 2, list(sizes.values()))),
        ):
            for size, case in cases.items():
                case.add(contender, lambda: statistics.median(times[size]))  # noqa: B023
    return list(cases.values())


SECTIONS = {
    "engine": engine_section,
    "pools": pools_section,
    "collectives": collectives_section,
    "tune": tune_section,
    "serve": serve_section,
    "data": data_section,
    "rl": rl_section,
    "pandas": pandas_section,
}


def last_line(command: list[str]) -> dict[str, Any]:
    """The JSON that a peer's process prints last; what says that it failed otherwise."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PEER_TIMEOUT_S)
    with contextlib.suppress(ValueError, IndexError):
        return dict(json.loads(done.stdout.splitlines()[-1]))
    print(done.stderr[-2000:], file=sys.stderr)
    return {"steps": math.nan, "seconds": math.nan, "reached": False}


# ---- the page ----------------------------------------------------------------------------------------

OPENING = """# The scoreboard

Made by `make scoreboard` from `benchmarks/scoreboard.json`; do not edit. Weft beside what people would use instead, in
one run on one machine. The last column says how many times as fast as Weft the others were: **more than 1 is a loss of
Weft's**, and bold. A section says how busy the machine was: figures from a busy one are not to be quoted.
"""


def section_page(name: str, found: dict[str, Any]) -> str:
    from weft.demos import chart

    cases = [Case(**case) for case in found["cases"]]
    bars: dict[str, float] = {}
    notes = []
    lines = ["| case | Weft | others | times as fast as Weft |", "|---|---|---|---|"]
    for case in cases:
        others = [contender for contender in case.figures if contender != WEFT]
        if WEFT not in case.figures:
            lines.append(f"| {case.name} | failed: {case.failed.get(WEFT, '')} | | |")
            continue
        shown = [f"{other} {chart.number(case.figures[other])}" for other in others]
        shown += [f"{other}: not measured ({reason})" for other, reason in case.failed.items()]
        speeds = [
            f"**{case.speed(other):.2f}**" if case.speed(other) > 1 else f"{case.speed(other):.2g}" for other in others
        ]
        ours = f"{chart.number(case.figures[WEFT])} {case.unit}"
        lines.append(f"| {case.name} | {ours} | {'; '.join(shown)} | {', '.join(speeds)} |")
        for contender in (WEFT, *others):
            bars[f"{contender}: {case.name}"[:44]] = case.speed(contender)
            notes.append(f"{case.speed(contender):.2g}× ({chart.number(case.figures[contender])} {case.unit})")
    parts = [f"## {name}", SECTIONS[name].__doc__ or "", "\n".join(lines)]
    if bars:
        IMAGES.mkdir(parents=True, exist_ok=True)
        (IMAGES / f"{name}.svg").write_text(
            chart.bars(bars, f"{name}: times as fast as Weft", "longer is faster; logarithmic", log=True, notes=notes)
        )
        parts.append(f"![{name}: times as fast as Weft](images/scoreboard/{name}.svg)")
    sizes = "**short sizes, only to see that it works**" if found["short"] else f"best of {found['rounds']} rounds"
    parts.append(
        f"{found['date']}, {sizes}; {found['machine']}; load average {found['load'][0]} before and {found['load'][1]} "
        f"after; {found['seconds']} s."
    )
    return "\n\n".join(parts) + "\n"


def write_page() -> Path:
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    sections = [section_page(name, figures[name]) for name in SECTIONS if name in figures]
    missing = [name for name in SECTIONS if name not in figures]
    if missing:
        sections.append(f"Not measured yet: {', '.join(missing)}.\n")
    page = DOCS / "scoreboard.md"
    page.write_text("\n".join([OPENING, *sections]))
    return page


def measure(name: str, run: Run) -> dict[str, Any]:
    load, began = os.getloadavg()[0], time.perf_counter()
    cases = SECTIONS[name](run)
    return {
        "cases": [dataclasses.asdict(case) for case in cases],
        "short": run.short,
        "rounds": run.rounds,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", default="", help="an interpreter that has the peers")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="one round of small sizes: to see that it works")
    parser.add_argument("--page", action="store_true", help="measure nothing, make the page")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if not options.page:
        if not options.peers_python:
            parser.error("--peers-python is needed; `make scoreboard` makes one")
        run = Run(options.peers_python, 1 if options.short else options.rounds, options.short)
        for name in options.sections.split(","):
            found = measure(name, run)
            figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
            figures[name] = found
            FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
            print(section_page(name, found), flush=True)
    print(write_page())


if __name__ == "__main__":
    main()
