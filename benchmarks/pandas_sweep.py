"""What users call most, on weft.pandas.modin beside pandas, in turns in one program: seconds by the clock, and of CPU.

    python benchmarks/pandas_sweep.py [--rows 600000] [--rounds 5] [--cases "sort_values" "str.upper"]

Eight columns: a key, four of numbers with holes, whole numbers, a date, and a name. Read as `pandas_turns.py` is.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
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


def given(pd: Any, frame: Any, folder: str) -> SimpleNamespace:
    """What the cases of one library work on."""
    whole = f"{folder}/{pd.__name__}.parquet"
    frame.to_parquet(whole)
    return SimpleNamespace(
        pd=pd,
        frame=frame,
        folder=folder,
        whole=whole,
        numbers=finish(frame[["a", "b", "c", "d"]]),
        right=finish(pd.DataFrame({"key": range(1100), "label": [f"label {number}" for number in range(1100)]})),
        days=finish(frame["day"].astype(str)),
        names={f"name {number}": number for number in range(5000)},
        is_positive=finish(frame["a"] > 0),
        indexed=finish(frame.set_index("number")),
        few=finish(frame.head(20_000)) if pd.__name__ == "pandas" else frame.head(20_000),
    )


def _assigned(data: SimpleNamespace) -> Any:
    data.frame["d"] = data.frame["a"] + 1
    return data.frame


CASES: dict[str, Callable[[SimpleNamespace], Any]] = {
    "sort_values": lambda data: data.frame.sort_values("number"),
    "value_counts": lambda data: data.frame["name"].value_counts(),
    "drop_duplicates": lambda data: data.frame.drop_duplicates(subset=["key", "name"]),
    "nunique": lambda data: data.frame["name"].nunique(),
    "frame.nunique": lambda data: data.frame.nunique(),
    "unique": lambda data: data.frame["name"].unique(),
    "describe": lambda data: data.frame.describe(),
    "query": lambda data: data.frame.query("a > 0 and key < 500"),
    "rename": lambda data: data.frame.rename(columns={"a": "alpha"}),
    "astype": lambda data: data.frame.astype({"number": "float64"}),
    "assign": lambda data: data.frame.assign(z=data.frame["a"]),
    'frame["a"]': lambda data: data.frame["a"],
    'frame[["a", "b"]]': lambda data: data.frame[["a", "b"]],
    "boolean filter": lambda data: data.frame[data.frame["a"] > 0],
    "filter by a mask": lambda data: data.frame[data.is_positive],
    "iloc slice": lambda data: data.frame.iloc[1000:200_000],
    "loc slice": lambda data: data.frame.loc[1000:200_000],
    "loc of a mask": lambda data: data.frame.loc[data.is_positive, ["a", "b"]],
    "head": lambda data: data.frame.head(),
    "concat": lambda data: data.pd.concat([data.frame, data.frame]),
    "rolling mean": lambda data: data.frame["a"].rolling(10).mean(),
    "str.upper": lambda data: data.frame["name"].str.upper(),
    "str.contains": lambda data: data.frame["name"].str.contains("12"),
    "to_datetime": lambda data: data.pd.to_datetime(data.days),
    "dt.year": lambda data: data.frame["day"].dt.year,
    "groupby size": lambda data: data.frame.groupby("key").size(),
    "groupby count": lambda data: data.frame.groupby("key").count(),
    "groupby sum": lambda data: data.frame.groupby("key")[["a", "b"]].sum(),
    "groupby name mean": lambda data: data.frame.groupby("name")["a"].mean(),
    "groupby transform": lambda data: data.frame.groupby("key")["a"].transform("mean"),
    "pivot_table": lambda data: data.frame.pivot_table(index="key", values="a", aggfunc="mean"),
    "corr": lambda data: data.numbers.corr(),
    "quantile": lambda data: data.numbers.quantile(0.9),
    "median": lambda data: data.numbers.median(),
    "cumsum": lambda data: data.numbers.cumsum(),
    "shift": lambda data: data.numbers.shift(1),
    "diff": lambda data: data.numbers.diff(),
    "rank": lambda data: data.frame["a"].rank(),
    "isin": lambda data: data.frame["key"].isin([1, 2, 3]),
    "map with a dict": lambda data: data.frame["name"].map(data.names),
    "apply by row": lambda data: data.few.apply(lambda row: row["a"] + row["b"], axis=1),
    "sum": lambda data: data.numbers.sum(),
    "min": lambda data: data.numbers.min(),
    "max": lambda data: data.numbers.max(),
    "std": lambda data: data.numbers.std(),
    "sum axis=1": lambda data: data.numbers.sum(axis=1),
    "max axis=1": lambda data: data.numbers.max(axis=1),
    "std axis=1": lambda data: data.numbers.std(axis=1),
    "column sum": lambda data: data.frame["a"].sum(),
    "column mean": lambda data: data.frame["a"].mean(),
    "frame + frame": lambda data: data.numbers + data.numbers,
    "frame * 2": lambda data: data.numbers * 2,
    "column + column": lambda data: data.frame["a"] + data.frame["b"],
    "column > 0": lambda data: data.frame["a"] > 0,
    "clip": lambda data: data.numbers.clip(-1, 1),
    "round": lambda data: data.numbers.round(2),
    "abs": lambda data: data.numbers.abs(),
    "replace": lambda data: data.frame["key"].replace(5, 6),
    "where": lambda data: data.frame["a"].where(data.frame["a"] > 0, 0.0),
    "merge left": lambda data: data.frame.merge(data.right, on="key", how="left"),
    "merge outer": lambda data: data.frame.merge(data.right, on="key", how="outer"),
    "to_csv": lambda data: data.few.to_csv(f"{data.folder}/{data.pd.__name__}.csv"),
    "to_parquet": lambda data: data.frame.to_parquet(f"{data.folder}/{data.pd.__name__}_written.parquet"),
    "read_parquet": lambda data: data.pd.read_parquet(data.whole),
    "set_index": lambda data: data.frame.set_index("number"),
    "reset_index": lambda data: data.indexed.reset_index(),
    "dropna": lambda data: data.frame.dropna(),
    "sample": lambda data: data.frame.sample(frac=0.1, random_state=1),
    "nlargest": lambda data: data.frame.nlargest(10, "a"),
    "drop": lambda data: data.frame.drop(columns=["a"]),
    "duplicated": lambda data: data.frame.duplicated(subset=["key", "name"]),
    "melt": lambda data: data.numbers.melt(),
    "isna sum": lambda data: data.frame.isna().sum(),
    "fillna column": lambda data: data.frame["a"].fillna(0.0),
    "to_numpy": lambda data: data.numbers.to_numpy(),
    "dtypes": lambda data: data.frame.dtypes,
    "len": lambda data: len(data.frame),
    'frame["d"] = frame["a"] + 1': _assigned,
}


def runs_of(pd: Any, frame: Any, folder: str) -> dict[str, Callable[[], Any]]:
    data = given(pd, frame, folder)
    return {name: functools.partial(run, data) for name, run in CASES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=CASES)
    options = parser.parse_args()
    import pandas

    import weft.pandas.modin as ours

    frame = made(options.rows)
    print("| case | clock, ms: pandas | weft.pandas.modin | × | CPU, ms: pandas | weft.pandas.modin | × |")
    print("|---" * 7 + "|")
    with tempfile.TemporaryDirectory() as folder:
        libraries = (
            runs_of(pandas, frame, folder),
            runs_of(ours, finish(ours.DataFrame(frame)), folder),
        )
        for case in options.cases or libraries[0]:
            print(line_of(case, libraries, options.rounds), flush=True)


if __name__ == "__main__":
    main()
