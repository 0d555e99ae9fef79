"""weft.pandas.modin beside pandas on large frames, in turns in one program: seconds by the clock, and of CPU.

    python benchmarks/pandas_turns.py [--rows 5000000] [--rounds 9] [--cases isna fillna]

By the clock a busy machine tells little. CPU time tells more: of pandas it is what one thread took; of Weft the
driver's and that of the worker that took longest, one after the other: about the time on idle cores. The best of the
rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

COLUMNS = 19
CASES = ("groupby agg", "merge", "fillna", "isna", "mean")


def made(rows: int) -> Any:
    import numpy as np
    import pandas

    random = np.random.default_rng(0)
    values = random.normal(size=(COLUMNS, rows)).round(4)
    values[random.random(values.shape) < 0.05] = np.nan
    frame = pandas.DataFrame(values.T, columns=[f"c{number}" for number in range(1, COLUMNS + 1)], copy=False)
    frame.insert(0, "key", random.integers(0, 1000, rows))
    return frame


def runs_of(pd: Any, frame: Any) -> dict[str, Callable[[], Any]]:
    right = finish(pd.DataFrame({"key": range(1000), "name": [f"name {number}" for number in range(1000)]}))
    numbers = finish(frame.drop(columns=["key"]))
    return {
        "groupby agg": lambda: frame.groupby("key").agg({"c1": "mean", "c2": "max", "c3": "sum"}),
        "merge": lambda: frame.merge(right, on="key"),
        "fillna": lambda: numbers.fillna(0.0),
        "isna": lambda: numbers.isna(),
        "mean": lambda: numbers.mean(),
    }


def finish(result: Any) -> Any:
    if hasattr(result, "_query_compiler"):
        result._query_compiler.execute()
    return result


def cpu_seconds() -> dict[int, float]:
    """Of each descendant of this process, all threads."""
    import psutil

    seconds = {}
    for pid in (child.pid for child in psutil.Process().children(recursive=True)):
        try:
            threads = list(Path(f"/proc/{pid}/task").iterdir())
            seconds[pid] = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
        except OSError:
            continue  # it has ended
    return seconds


def measure(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU one after another: this process, then the busiest other."""
    before, own_before, start = cpu_seconds(), time.process_time(), time.perf_counter()
    result = finish(run())
    clock, own = time.perf_counter() - start, time.process_time() - own_before
    after = cpu_seconds()
    del result
    spent = (seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    return clock, own + max(spent, default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    options = parser.parse_args()
    import pandas

    import weft.pandas.modin

    frame = made(options.rows)
    libraries = (runs_of(pandas, frame), runs_of(weft.pandas.modin, finish(weft.pandas.modin.DataFrame(frame))))
    print("| case | clock, ms: pandas | weft.pandas.modin | × | CPU, ms: pandas | weft.pandas.modin | × |")
    print("|---" * 7 + "|")
    for case in options.cases:
        print(line_of(case, libraries, options.rounds), flush=True)


def line_of(case: str, libraries: Sequence[dict[str, Callable[[], Any]]], rounds: int) -> str:
    """Of the table: the case once for nothing in each library, then in turns."""
    for library in libraries:
        measure(library[case])
    taken = [[measure(library[case]) for library in libraries] for _ in range(rounds)]
    cells = []
    for kind in (0, 1):
        theirs, ours = (min(turn[place][kind] for turn in taken) * 1e3 for place in (0, 1))
        cells += [f"{theirs:.1f}", f"{ours:.1f}", f"{theirs / ours:.2f}"]
    return f"| {case} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
