"""weft.pandas.modin beside pandas and Modin on Ray: seconds and memory of the same operations on the same frames.

    python benchmarks/pandas_frames.py [--rows 1000000] [--rounds 3] [--in-parts] [--ray-python PYTHON]

PYTHON has Modin and Ray.

Each library runs in processes of its own, one after another; a figure is the best of the rounds. Memory is the highest
sum of the proportional set sizes of the process and its descendants, sampled.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

COLUMNS = 20
CASES = ("read_csv", "apply by row", "groupby agg", "merge", "fillna", "isna", "mean")
APPLY_SHARE = 20
"""A function of Python by row is so slow that a part of the rows has to do."""


def measure(library: str, rows: int, rounds: int, path: str) -> dict[str, float]:
    """In the process of one library: the best seconds of each case."""
    if library == "pandas":
        import pandas as pd
    elif library == "weft":
        import weft.pandas.modin as pd
    elif library == "parts":
        import weft.pandas as pd
    else:
        import ray

        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
        import modin.pandas as pd
    frame = finish(pd.read_csv(path))
    right = finish(pd.DataFrame({"key": range(1000), "name": [f"name {number}" for number in range(1000)]}))
    numbers = finish(frame.drop(columns=["key"]))
    some = finish(frame.iloc[::APPLY_SHARE])
    runs: dict[str, Any] = {
        "read_csv": lambda: pd.read_csv(path),
        "apply by row": lambda: some.apply(lambda row: row["c1"] + row["c2"], axis=1),
        "groupby agg": lambda: frame.groupby("key").agg({"c1": "mean", "c2": "max", "c3": "sum"}),
        "merge": lambda: frame.merge(right, on="key"),
        "fillna": lambda: numbers.fillna(0.0),
        "isna": lambda: numbers.isna(),
        "mean": lambda: numbers.mean(),
    }
    best = dict.fromkeys(CASES, math.inf)
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            result = finish(run())
            best[name] = min(best[name], time.perf_counter() - start)
            del result
    return best


def finish(result: Any) -> Any:
    """Wait until it is there; pandas has it at once."""
    if hasattr(result, "_query_compiler"):
        result._query_compiler.execute()
    elif "_plan" in getattr(result, "__dict__", {}):
        from weft.pandas.frames import table_of

        table_of(result)
    return result


class PeakMemory:
    """Samples a process and its descendants from a thread."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        import psutil

        while not self._stopped.wait(0.25):
            total = 0
            try:
                process = psutil.Process(self._pid)
                for member in [process, *process.children(recursive=True)]:
                    rollup = Path(f"/proc/{member.pid}/smaps_rollup").read_text()
                    total += 1024 * int(rollup.split("Pss:")[1].split()[0])
            except (psutil.Error, OSError, IndexError):
                continue
            self.peak_bytes = max(self.peak_bytes, total)

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        return self.peak_bytes


def run_library(python: str, library: str, options: argparse.Namespace, path: str) -> tuple[dict[str, float], int]:
    command = [python, __file__, "--library", library, "--rows", str(options.rows), "--rounds", str(options.rounds)]
    command += ["--csv", path]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    memory = PeakMemory(process.pid)
    output, _ = process.communicate()
    peak = memory.stop()
    if process.returncode != 0:
        raise SystemExit(f"{library} failed with status {process.returncode}")
    return json.loads(output.strip().splitlines()[-1]), peak


def write_table(path: Path, rows: int) -> None:
    import numpy as np
    import pandas

    random = np.random.default_rng(0)
    values = random.normal(size=(rows, COLUMNS - 1)).round(4)
    values[random.random(values.shape) < 0.05] = np.nan
    frame = pandas.DataFrame(values, columns=[f"c{number}" for number in range(1, COLUMNS)])
    frame.insert(0, "key", random.integers(0, 1000, rows))
    frame.to_csv(path, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray-python", help="a Python that has Modin and Ray")
    parser.add_argument("--in-parts", action="store_true", help="weft.pandas itself, not the engine for Modin")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    parser.add_argument("--csv", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options.rows, options.rounds, options.csv)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_table(path, options.rows)
        pythons = {"pandas": sys.executable, "weft": sys.executable}
        if options.ray_python:
            pythons["ray"] = options.ray_python
        sides = {name: "parts" if name == "weft" and options.in_parts else name for name in pythons}
        measured = {name: run_library(python, sides[name], options, str(path)) for name, python in pythons.items()}
        report(measured, options.rows, path.stat().st_size)


def report(measured: dict[str, tuple[dict[str, float], int]], rows: int, size: int) -> None:
    print(f"{rows} rows × {COLUMNS} columns, a file of {size / 2**20:.0f} MiB\n")
    names = list(measured)
    print("| case | " + " | ".join(f"{name}, s" for name in names) + " | weft is × pandas | × Modin on Ray |")
    print("|---|" + "---|" * (len(names) + 2))
    for case in CASES:
        seconds = [measured[name][0][case] for name in names]
        ours = measured["weft"][0][case]
        ratios = [measured[name][0][case] / ours if name in measured else math.nan for name in ("pandas", "ray")]
        print(f"| {case} | " + " | ".join(f"{value:.3f}" for value in [*seconds, *ratios]) + " |")
    print("| peak memory, MiB | " + " | ".join(f"{measured[name][1] / 2**20:.0f}" for name in names) + " | | |")


if __name__ == "__main__":
    main()
