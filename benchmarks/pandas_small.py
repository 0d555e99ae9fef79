"""Small frames in weft.pandas beside plain pandas: what a call costs more, in turns, in one process.

    python benchmarks/pandas_small.py [--rows 1000 10000 100000 400000] [--rounds 15]

A figure is the median CPU time of the rounds, which hardly swings where other programs run; each round calls
pandas, then weft.pandas. Frames stay small: no engine starts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

CASES: dict[str, Callable[[Any], Any]] = {
    'frame["b"]': lambda f: f["b"],
    'frame["b"].sum()': lambda f: f["b"].sum(),
    "frame.b.mean()": lambda f: f.b.mean(),
    "frame.mean()": lambda f: f.mean(),
    'frame["b"] + frame["c"]': lambda f: f["b"] + f["c"],
    'frame[frame["b"] > 0]': lambda f: f[f["b"] > 0],
    "frame.fillna(0)": lambda f: f.fillna(0.0),
    "frame.isna()": lambda f: f.isna(),
    "frame.describe()": lambda f: f.describe(),
    'frame.sort_values("b")': lambda f: f.sort_values("b"),
    "frame.drop_duplicates()": lambda f: f.drop_duplicates(),
    'frame.groupby("k").b.sum()': lambda f: f.groupby("k").b.sum(),
    'frame.groupby("k").agg({...})': lambda f: f.groupby("k").agg({"b": "mean", "c": "max"}),
    'frame.merge(other, on="k")': lambda f: f.merge(f.iloc[:100].drop_duplicates("k"), on="k"),
    "frame.iloc[10:20]": lambda f: f.iloc[10:20],
    'frame.loc[10, "b"]': lambda f: f.loc[10, "b"],
    'frame.assign(d=frame["b"])': lambda f: f.assign(d=f["b"]),
    "len(frame)": len,
    "frame.shape": lambda f: f.shape,
}


def made(rows: int) -> Any:
    import numpy as np
    import pandas

    random = np.random.default_rng(0)
    values = {name: random.normal(size=rows) for name in "bcdefgh"}
    return pandas.DataFrame({"k": random.integers(0, 100, rows), **values})


def measure(run: Callable[[Any], Any], theirs: Any, ours: Any, rounds: int) -> tuple[float, float]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for frame, into in zip((theirs, ours), seconds, strict=True):
            start = time.process_time()
            run(frame)
            into.append(time.process_time() - start)
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000, 400_000])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    import weft.pandas as pd

    print("| rows | case | pandas, ms | weft.pandas, ms | × pandas' time | more, µs |\n|---|---|---|---|---|---|")
    for rows in options.rows:
        theirs = made(rows)
        ours = pd.DataFrame(theirs)
        for name, run in CASES.items():
            before, after = measure(run, theirs, ours, options.rounds)
            figures = f"{before * 1e3:.3f} | {after * 1e3:.3f} | {after / before:.2f} | {(after - before) * 1e6:.0f}"
            print(f"| {rows} | `{name}` | {figures} |", flush=True)


if __name__ == "__main__":
    main()
