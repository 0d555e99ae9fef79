"""Small frames in weft.pandas.modin beside plain pandas: what a call costs more, in turns, in one process.

    python benchmarks/pandas_small.py [--rows 1000 100000] [--rounds 100] [--all]

A round calls pandas for a while and then weft.pandas.modin, as often; a figure is the best of the rounds, by the clock.
Frames stay small: no engine starts. Without `--all` only what takes more than 1.1 times pandas' time is listed, and how
many cases do not.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

BATCH_S = 2e-4
LONG_S = 1e-3
"""A call that takes longer gets fewer rounds."""

CASES = """
    frame["b"] | frame.b | frame.get("b") | frame[["b", "c"]] | frame["b"].iloc[3] | frame["b"][3] | frame.iloc[3]
    frame.iloc[10:20] | frame.loc[3] | frame.loc[10, "b"] | frame.at[10, "b"] | frame.loc[frame["b"] > 0, "c"]
    frame.loc[lambda f: f["b"] > 0] | frame[frame["b"] > 0] | frame.query("b > 0") | frame.xs(3) | frame.head()
    frame.sample(3) | frame.nlargest(3, "b") | frame.filter(like="b") | frame.select_dtypes("number") | len(frame)
    frame.shape | frame.columns | frame.index | frame.dtypes | frame["b"].dtype | frame["b"].name | "b" in frame
    list(frame) | frame["b"].is_unique | frame.T | frame.copy() | repr(frame.head()) | frame["b"].sum()
    frame.b.mean() | frame["b"].max() | frame["b"].idxmax() | frame["b"].quantile([0.1, 0.9])
    frame[["b", "c"]].mean() | frame[["b", "c"]].sum(axis=1) | frame[["b", "c"]].describe() | frame["k"].nunique()
    frame["k"].unique() | frame["k"].value_counts() | frame["k"].mode() | frame["k"].duplicated()
    frame["b"].argsort() | frame[["b", "c"]].agg(["sum", "mean"]) | frame[["b", "c"]].corr()
    frame[["b", "c"]].corrwith(frame["d"]) | frame["b"] + frame["c"] | frame["b"] * 2 | -frame["b"]
    (frame["b"] > 0) & (frame["c"] > 0) | np.sqrt(frame["k"]) | frame["b"].abs() | frame["b"].clip(0, 1)
    frame["b"].cumsum() | frame["b"].diff() | frame["b"].shift() | frame["b"].rank()
    frame["b"].where(frame["c"] > 0) | frame["k"].isin([1, 2]) | frame["b"].between(0, 1) | frame["b"].interpolate()
    frame["k"].astype(float) | frame.isna() | frame[["b", "c"]].fillna(0) | frame.dropna() | frame["b"].apply(abs)
    frame["k"].map({1: 2}) | frame["k"].map(lambda k: k + 1) | frame["b"].transform(np.abs)
    frame[["b", "c"]].apply(np.sum) | frame[["b", "c"]].head(20).apply(lambda row: row.b, axis=1) | frame.pipe(len)
    next(frame.iterrows()) | next(frame.itertuples()) | sum(frame["k"]) | list(zip(frame["b"], frame["c"]))
    frame["b"].rolling(3).mean() | frame["b"].expanding().sum() | frame["b"].ewm(span=3).mean()
    frame.set_index("t")["b"].resample("D").mean() | frame["w"].str.upper() | frame["w"].str.contains("1")
    frame["w"].str[0] | frame["t"].dt.hour | frame["g"].cat.codes | frame.groupby("k").b.sum()
    frame.groupby("k").size() | frame.groupby("k").agg({"b": "mean", "c": "max"})
    frame.groupby("k").agg(x=("b", "sum")) | frame.groupby("k").b.transform("mean")
    frame.groupby("k").b.apply(len) | [len(g) for _, g in frame.groupby("k")] | frame.groupby("k").get_group(5)
    frame.sort_values("b") | frame.sort_index(ascending=False) | frame.drop_duplicates()
    frame.rename(columns={"b": "x"}) | frame.drop(columns="b") | frame.set_index("k") | frame.reset_index()
    frame.assign(z=frame["b"]) | frame.assign(z=lambda f: f["b"] * 2) | frame[["k", "b"]].melt("k")
    frame.pivot_table(index="k", values="b") | frame[["b", "c"]].stack()
    frame.merge(frame.head(20)[["k"]], on="k") | pd.concat([frame, frame])
    pd.merge(frame.head(20), frame.head(10), on="k") | pd.to_datetime(frame["w"].str[5:] + "/1/2020")
    pd.to_numeric(frame["k"]) | pd.cut(frame["b"], 5) | pd.get_dummies(frame["g"]) | pd.isna(frame)
    pd.DataFrame({"a": [1, 2]}) | pd.DataFrame(np.zeros((10, 3))) | pd.Series([1, 2]) | frame["z"] = 1.0
    frame["z"] = frame["b"] | frame.at[3, "b"] = 1.0 | frame.loc[3, "b"] = 1.0 | frame.iloc[3, 1] = 1.0
    frame.loc[frame["b"] > 0, "c"] = 1.0 | frame.columns = list(frame.columns)
    frame.copy().drop(columns="b", inplace=True) | frame.head(3).to_csv() | frame[["b"]].head(3).to_json()
    frame[["b"]].to_records() | frame["k"].tolist() | frame["b"].values | np.asarray(frame[["b", "c"]])
    frame[["b"]].head().to_dict("records")
""".replace("\n", " | ").split(" | ")


def made(rows: int) -> Any:
    import numpy as np
    import pandas

    random = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "k": random.integers(0, 100, rows),
            **{name: random.normal(size=rows) for name in "bcde"},
            "w": [f"word {1 + number % 12}" for number in range(rows)],
            "t": pandas.date_range("2020", periods=rows, freq="min"),
        }
    )
    frame["g"] = frame["w"].astype("category")
    return frame


def compiled(case: str) -> Callable[[Any, Any], None]:
    import numpy as np

    found: dict[str, Any] = {"np": np}
    exec(f"def run(frame, pd):\n    {case}", found)
    run: Callable[[Any, Any], None] = found["run"]
    return run


def seconds(run: Callable[[Any, Any], None], frame: Any, library: Any, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run(frame, library)
    return (time.perf_counter() - start) / times


def measure(case: str, theirs: tuple[Any, Any], ours: tuple[Any, Any], rounds: int) -> tuple[float, float]:
    run = compiled(case)
    seconds(run, *ours, 1)
    once = min(seconds(run, *theirs, 1) for _ in range(3))
    times = max(1, int(BATCH_S / once))
    best = [math.inf, math.inf]
    for _ in range(rounds if once < LONG_S else max(5, rounds // 10)):
        for place, (frame, library) in enumerate((theirs, ours)):
            best[place] = min(best[place], seconds(run, frame, library, times))
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--all", action="store_true", help="list every case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import pandas

    import weft.pandas.modin as pd

    cases = [case.strip() for case in CASES if case.strip()]
    print("| rows | case | pandas, µs | weft.pandas.modin, µs | × pandas' time | more, µs |\n|---|---|---|---|---|---|")
    for rows in options.rows:
        source, ratios = made(rows), []
        for case in cases:
            theirs, ours = source.copy(), pd.DataFrame(source.copy())
            before, after = measure(case, (theirs, pandas), (ours, pd), options.rounds)
            ratios.append(after / before)
            if options.all or ratios[-1] > 1.1:
                figures = f"{before * 1e6:.2f} | {after * 1e6:.2f} | {ratios[-1]:.2f} | {(after - before) * 1e6:.2f}"
                print(f"| {rows} | `{case}` | {figures} |", flush=True)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(
            f"{rows} rows: {sum(ratio <= 1.1 for ratio in ratios)} of {len(ratios)} cases within 1.1; mean {mean:.3f}"
        )


if __name__ == "__main__":
    main()
