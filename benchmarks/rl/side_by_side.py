"""Several measurements at once, each on cores of its own, that add what they find to one file.

An engine, NumPy and torch take as many cores as the process may use, so a measurement that was given its cores before
it starts anything does not disturb those beside it. `--cores 2-4` says which; `--jobs 5` shares them out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import json
import os
import queue
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

TaskT = TypeVar("TaskT")


def cores_of(text: str) -> list[int]:
    """The cores that `0-3,8` names."""
    spans = [part.partition("-") for part in text.split(",")]
    cores = [core for first, _, last in spans for core in range(int(first), int(last or first) + 1)]
    absent = sorted(set(cores) - os.sched_getaffinity(0))
    if absent:
        raise argparse.ArgumentTypeError(f"this process may not use cores {absent}")
    return cores


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cores", type=cores_of, metavar="LIST", help="use these alone, such as 0-3,8")
    parser.add_argument(
        "--jobs", type=int, default=1, help="measurements at a time, each on an equal part of the cores"
    )


def on_own_cores(
    tasks: Iterable[TaskT], jobs: int, cores: list[int] | None, work: Callable[[TaskT, str], None]
) -> None:
    """Call work(task, cores) for each task, `jobs` at a time; the first error is raised when all have ended."""
    cores = sorted(os.sched_getaffinity(0)) if cores is None else cores
    each = len(cores) // jobs
    if not each:
        raise SystemExit(f"--jobs must be at most the number of cores, {len(cores)}, but got {jobs}")
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for job in range(jobs):
        free.put(",".join(map(str, cores[job * each : (job + 1) * each])))

    def one(task: TaskT) -> None:
        mine = free.get()
        try:
            work(task, mine)
        finally:
            free.put(mine)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(one, task) for task in tasks]:
            done.result()


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    """Replace the JSON of a file by edit(what it is, None if there is no file), as if nobody else wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        edited = edit(json.loads(path.read_text()) if path.exists() else None)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(edited, allow_nan=False) + "\n")
        fresh.replace(path)  # whoever is killed meanwhile leaves the file as it was
    finally:
        os.close(folder)
