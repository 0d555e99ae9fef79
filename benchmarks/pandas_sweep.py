"""What users call most, on weft.pandas beside pandas, in turns in one program: seconds by the clock, and of CPU.

    python benchmarks/pandas_sweep.py [--rows 600000] [--rounds 5] [--cases "sort_values" "str.upper"]

Eight columns: a key, four of numbers with holes, whole numbers, a date, and a name. Read as `pandas_turns.py` is.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

from pandas_turns import finish, line_of


def made(rows: int) -> Any:
    import numpy as np
    import pandas

    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"key": random.integers(0, 1000, rows)})
    for name in "abcd":
        values = random.normal(size=rows).round(4)
        values[random.random(rows) < 0.05] = np.nan
        frame[name] = values
    frame["number"] = random.integers(0, 1_000_000, rows)
    frame["day"] = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(random.integers(0, 1000, rows), unit="D")
    frame["name"] = np.array([f"name {number}" for number in range(5000)], dtype=object)[random.integers(0, 5000, rows)]
    return frame


def runs_of(pd: Any, frame: Any, folder: str) -> dict[str, Callable[[], Any]]:
    numbers = finish(frame[["a", "b", "c", "d"]])
    right = finish(pd.DataFrame({"key": range(1100), "label": [f"label {number}" for number in range(1100)]}))
    days = finish(frame["day"].astype(str))
    names = {f"name {number}": number for number in range(5000)}
    is_positive, indexed = finish(frame["a"] > 0), finish(frame.set_index("number"))
    few = finish(frame.head(20_000)) if pd.__name__ == "pandas" else frame.head(20_000)
    whole = f"{folder}/{pd.__name__}.parquet"
    frame.to_parquet(whole)

    def assigned() -> Any:
        frame["d"] = frame["a"] + 1
        return frame

    return {
        "sort_values": lambda: frame.sort_values("number"),
        "value_counts": lambda: frame["name"].value_counts(),
        "drop_duplicates": lambda: frame.drop_duplicates(subset=["key", "name"]),
        "nunique": lambda: frame["name"].nunique(),
        "frame.nunique": lambda: frame.nunique(),
        "unique": lambda: frame["name"].unique(),
        "describe": lambda: frame.describe(),
        "query": lambda: frame.query("a > 0 and key < 500"),
        "rename": lambda: frame.rename(columns={"a": "alpha"}),
        "astype": lambda: frame.astype({"number": "float64"}),
        "assign": lambda: frame.assign(z=frame["a"]),
        'frame["a"]': lambda: frame["a"],
        'frame[["a", "b"]]': lambda: frame[["a", "b"]],
        "boolean filter": lambda: frame[frame["a"] > 0],
        "filter by a mask": lambda: frame[is_positive],
        "iloc slice": lambda: frame.iloc[1000:200_000],
        "loc slice": lambda: frame.loc[1000:200_000],
        "loc of a mask": lambda: frame.loc[is_positive, ["a", "b"]],
        "head": lambda: frame.head(),
        "concat": lambda: pd.concat([frame, frame]),
        "rolling mean": lambda: frame["a"].rolling(10).mean(),
        "str.upper": lambda: frame["name"].str.upper(),
        "str.contains": lambda: frame["name"].str.contains("12"),
        "to_datetime": lambda: pd.to_datetime(days),
        "dt.year": lambda: frame["day"].dt.year,
        "groupby size": lambda: frame.groupby("key").size(),
        "groupby count": lambda: frame.groupby("key").count(),
        "groupby sum": lambda: frame.groupby("key")[["a", "b"]].sum(),
        "groupby name mean": lambda: frame.groupby("name")["a"].mean(),
        "groupby transform": lambda: frame.groupby("key")["a"].transform("mean"),
        "pivot_table": lambda: frame.pivot_table(index="key", values="a", aggfunc="mean"),
        "corr": lambda: numbers.corr(),
        "quantile": lambda: numbers.quantile(0.9),
        "median": lambda: numbers.median(),
        "cumsum": lambda: numbers.cumsum(),
        "shift": lambda: numbers.shift(1),
        "diff": lambda: numbers.diff(),
        "rank": lambda: frame["a"].rank(),
        "isin": lambda: frame["key"].isin([1, 2, 3]),
        "map with a dict": lambda: frame["name"].map(names),
        "apply by row": lambda: few.apply(lambda row: row["a"] + row["b"], axis=1),
        "sum": lambda: numbers.sum(),
        "min": lambda: numbers.min(),
        "max": lambda: numbers.max(),
        "std": lambda: numbers.std(),
        "sum axis=1": lambda: numbers.sum(axis=1),
        "max axis=1": lambda: numbers.max(axis=1),
        "std axis=1": lambda: numbers.std(axis=1),
        "column sum": lambda: frame["a"].sum(),
        "column mean": lambda: frame["a"].mean(),
        "frame + frame": lambda: numbers + numbers,
        "frame * 2": lambda: numbers * 2,
        "column + column": lambda: frame["a"] + frame["b"],
        "column > 0": lambda: frame["a"] > 0,
        "clip": lambda: numbers.clip(-1, 1),
        "round": lambda: numbers.round(2),
        "abs": lambda: numbers.abs(),
        "replace": lambda: frame["key"].replace(5, 6),
        "where": lambda: frame["a"].where(frame["a"] > 0, 0.0),
        "merge left": lambda: frame.merge(right, on="key", how="left"),
        "merge outer": lambda: frame.merge(right, on="key", how="outer"),
        "to_csv": lambda: few.to_csv(f"{folder}/{pd.__name__}.csv"),
        "to_parquet": lambda: frame.to_parquet(f"{folder}/{pd.__name__}_written.parquet"),
        "read_parquet": lambda: pd.read_parquet(whole),
        "set_index": lambda: frame.set_index("number"),
        "reset_index": lambda: indexed.reset_index(),
        "dropna": lambda: frame.dropna(),
        "sample": lambda: frame.sample(frac=0.1, random_state=1),
        "nlargest": lambda: frame.nlargest(10, "a"),
        "drop": lambda: frame.drop(columns=["a"]),
        "duplicated": lambda: frame.duplicated(subset=["key", "name"]),
        "melt": lambda: numbers.melt(),
        "isna sum": lambda: frame.isna().sum(),
        "fillna column": lambda: frame["a"].fillna(0.0),
        "to_numpy": lambda: numbers.to_numpy(),
        "dtypes": lambda: frame.dtypes,
        "len": lambda: len(frame),
        'frame["d"] = frame["a"] + 1': assigned,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+")
    options = parser.parse_args()
    import pandas

    import weft.pandas

    frame = made(options.rows)
    print("| case | clock, ms: pandas | weft.pandas | × | CPU, ms: pandas | weft.pandas | × |")
    print("|---" * 7 + "|")
    with tempfile.TemporaryDirectory() as folder:
        libraries = (runs_of(pandas, frame, folder), runs_of(weft.pandas, finish(weft.pandas.DataFrame(frame)), folder))
        for case in options.cases or libraries[0]:
            print(line_of(case, libraries, options.rounds), flush=True)


if __name__ == "__main__":
    main()
