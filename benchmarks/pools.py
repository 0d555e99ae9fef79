"""Weft beside the pools that people reach for first, at 1, 1,000 and 100,000 calls of a function that does nothing.

    python benchmarks/pools.py --dask-python .venv-ray/bin/python
    python benchmarks/pools.py --only weft,executor --counts 1,1000

A figure is calls per second: all calls are submitted, then all results are collected; workers are up before the
clock starts. A contender too slow for the whole count within --limit-s runs fewer calls, and its figure says so (*).
Dask takes part when an interpreter that has `distributed` is named, MPI for Python where that one or this has it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COUNTS = (1, 1_000, 100_000)
SHORTEST_ROUND_S = 0.3
ROUNDS = 3
LONGEST_S = 300.0
MARK = "figures: "

RunMany = Callable[[int], Any]


def nothing(*_: object) -> bytes:
    return b"ok"


# ---- contenders: each yields a function that makes so many calls and collects their results --------


@contextmanager
def weft_tasks(cpus: int) -> Iterator[RunMany]:
    import weft

    weft.init(num_cpus=cpus)
    task = weft.remote(nothing)
    yield lambda count: weft.get([task.remote() for _ in range(count)])
    weft.shutdown()


@contextmanager
def weft_actor(cpus: int) -> Iterator[RunMany]:
    import weft

    @weft.remote
    class Listener:
        def nothing(self) -> bytes:
            return b"ok"

    weft.init(num_cpus=cpus)
    actor = Listener.remote()
    yield lambda count: weft.get([actor.nothing.remote() for _ in range(count)])
    weft.shutdown()


@contextmanager
def executor(cpus: int) -> Iterator[RunMany]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(cpus) as pool:
        yield lambda count: [future.result() for future in [pool.submit(nothing) for _ in range(count)]]


@contextmanager
def pool_apply_async(cpus: int) -> Iterator[RunMany]:
    from multiprocessing import Pool

    with Pool(cpus) as pool:
        yield lambda count: [result.get() for result in [pool.apply_async(nothing) for _ in range(count)]]


@contextmanager
def dask(cpus: int) -> Iterator[RunMany]:
    from distributed import Client

    with Client(n_workers=cpus, threads_per_worker=1, dashboard_address=None) as client:
        # Dask takes calls of the same arguments for the same result unless told that they are impure.
        yield lambda count: client.gather([client.submit(nothing, pure=False) for _ in range(count)])


@contextmanager
def loky(cpus: int) -> Iterator[RunMany]:
    """What joblib runs on."""
    from joblib.externals.loky import get_reusable_executor

    pool = get_reusable_executor(cpus)
    yield lambda count: [future.result() for future in [pool.submit(nothing) for _ in range(count)]]
    pool.shutdown()


@contextmanager
def joblib(cpus: int) -> Iterator[RunMany]:
    """The same workers as its users reach them: it puts several calls into one message by itself."""
    from joblib import Parallel, delayed

    with Parallel(n_jobs=cpus) as parallel:
        yield lambda count: parallel(delayed(nothing)() for _ in range(count))


@contextmanager
def mpi(cpus: int) -> Iterator[RunMany]:
    """The executor of MPI for Python: its workers are ranks, started by `mpiexec -n N python -m mpi4py.futures`."""
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor(cpus) as pool:
        yield lambda count: [future.result() for future in [pool.submit(nothing) for _ in range(count)]]


CONTENDERS = {
    "weft": weft_tasks,
    "weft_actor": weft_actor,
    "executor": executor,
    "pool_apply_async": pool_apply_async,
    "dask": dask,
    "loky": loky,
    "joblib": joblib,
    "mpi": mpi,
}


# ---- measuring -------------------------------------------------------------------------------------


def calls_per_second(run: RunMany, count: int) -> float:
    """The best of some rounds; a round repeats the count until it is long enough to time."""
    best = 0.0
    for _ in range(ROUNDS if count < 10_000 else 1):
        calls, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < SHORTEST_ROUND_S:
            run(count)
            calls += count
        best = max(best, calls / spent)
    return best


def measure(name: str, counts: list[int], cpus: int, limit_s: float) -> dict[str, list[float]]:
    """By count: (calls per second, calls that a round made)."""
    figures = {}
    with CONTENDERS[name](cpus) as run:
        run(cpus * 10)
        rate = calls_per_second(run, 100)
        for count in counts:
            tried = min(count, max(1_000, int(rate * limit_s)))
            rate = calls_per_second(run, tried)
            figures[str(count)] = [rate, tried]
    return figures


def measure_elsewhere(name: str, python: str, args: argparse.Namespace) -> dict[str, list[float]] | None:
    command = [python, __file__, "--measure", name, "--counts", args.counts, "--cpus", str(args.cpus)]
    if name == "mpi":
        started = [str(Path(python).with_name("mpiexec")), "-n", str(args.cpus + 1), python, "-m", "mpi4py.futures"]
        command = [*started, *command[1:]]
    command += ["--limit-s", str(args.limit_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            output, _ = child.communicate(timeout=LONGEST_S)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            print(f"{name} took longer than {LONGEST_S} s", file=sys.stderr)
            return None
    for line in output.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    print(f"{name} gave no figures (exit status {child.returncode})", file=sys.stderr)
    return None


def compare(args: argparse.Namespace, counts: list[int]) -> None:
    wanted = [name for name in args.only.split(",") if name] or list(CONTENDERS)
    print(f"{'calls per second at':22}" + "".join(f"{count:>14,}" for count in counts))
    for name in wanted:
        python = args.dask_python if name in ("dask", "mpi") else sys.executable
        figures = measure_elsewhere(name, python, args) if python else None
        if not figures:
            print(f"{name:22}" + f"{'not measured':>14}" * len(counts))
            continue
        row = f"{name:22}"
        for count in counts:
            rate, tried = figures[str(count)]
            row += f"{rate:>13,.0f}{'*' if tried < count else ' '}"
        print(row.rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {', '.join(CONTENDERS)}; all when empty")
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)))
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--limit-s", type=float, default=30.0, help="about the longest that one round may take")
    parser.add_argument("--dask-python", default="", help="an interpreter that has dask.distributed")
    parser.add_argument("--measure", default="", metavar="NAME", help="one contender, here; prints JSON")
    args = parser.parse_args()
    counts = [int(count) for count in args.counts.split(",")]
    if args.measure:
        print(MARK + json.dumps(measure(args.measure, counts, args.cpus, args.limit_s)))
    else:
        compare(args, counts)


if __name__ == "__main__":
    main()
