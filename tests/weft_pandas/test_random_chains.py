"""Random chains of calls on odd frames give what pandas gives: values, types, labels, and the class of an error.

Which of two columns an error names depends on how pandas has put them together, so its text is not compared.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import odd_frames
import pandas
import pytest

from weft.pandas.facade import deferred

CHAINS = 150
Call = Callable[[Any], Any]


def column(rng: random.Random, rows: int, kind: str) -> Any:
    holes = rng.choice([0.0, 0.2, 1.0])

    def each(make: Callable[[], Any]) -> list[Any]:
        return [None if rng.random() < holes else make() for _ in range(rows)]

    first = pandas.Timestamp("2024-01-01")
    if kind == "int64":
        return np.array([rng.choice([rng.randint(-5, 5), 2**62]) for _ in range(rows)], kind)
    if kind == "float64":
        return np.array([rng.choice([np.nan, np.inf, -0.0, 0.1, rng.random() * 1e6]) for _ in range(rows)], kind)
    if kind in ("bool", "int8", "uint64", "float32"):
        return np.array([rng.choice([0, 1]) for _ in range(rows)], kind)
    if kind == "category":
        return pandas.Categorical(each(lambda: rng.choice("xy")), categories=list("xyz"), ordered=rng.random() < 0.5)
    made: dict[str, Callable[[], Any]] = {
        "object": lambda: rng.choice(["a", "b", "", "Zü"]),
        "string": lambda: rng.choice(["q", "rr"]),
        "Int64": lambda: rng.randint(0, 9),
        "datetime64[ns]": lambda: first + pandas.Timedelta(hours=rng.randint(0, 99)),
        "datetime64[ns, Europe/Berlin]": lambda: (
            first.tz_localize("UTC") + pandas.Timedelta(hours=rng.randint(0, 9999))
        ),
        "timedelta64[ns]": lambda: pandas.Timedelta(minutes=rng.randint(-9, 99)),
    }
    return pandas.Series(each(made[kind]), dtype=kind)


KINDS = (
    "int64 float64 float64 bool int8 uint64 float32 category object string Int64 datetime64[ns] timedelta64[ns]".split()
)
KINDS += ["datetime64[ns, Europe/Berlin]"]


def frame_of(rng: random.Random) -> pandas.DataFrame:
    rows = rng.choice([0, 1, 2, 5, 60, 60])
    kinds = ["int64", *rng.choices(KINDS, k=rng.randint(1, 4))]
    frame = pandas.DataFrame({f"c{number}": column(rng, rows, kind) for number, kind in enumerate(kinds)})
    odd = rng.random()
    if odd < 0.1:
        frame.columns = pandas.Index([*frame.columns[:-1], frame.columns[0]])
    elif odd < 0.2:
        frame.index = pandas.Index([rng.randint(0, 3) for _ in range(rows)])
    elif odd < 0.3:
        frame.index = pandas.MultiIndex.from_arrays([[rng.randint(0, 1) for _ in range(rows)], range(rows)])
    return frame


def written(value: Any, key: Any, what: Any) -> Any:
    value[key] = what
    return value


def call_of(rng: random.Random, value: Any) -> tuple[str, Call]:
    number, rows = rng.choice([0, 1, -2, 0.5]), rng.choice([0, 1, 3, -2, 100])
    calls: dict[str, Call] = {
        name: lambda value, name=name: getattr(value, name)()  # type: ignore[misc]
        for name in (
            "isna notna sum mean min max count any all abs copy drop_duplicates cumsum nunique value_counts dropna std "
            "median describe diff shift rank __len__ __neg__"
        ).split()
    }
    calls |= {
        "fillna": lambda value: value.fillna(number),
        "+": lambda value: value + number,
        "reversed -": lambda value: 1 - value,
        "//": lambda value: value // 2,
        ">": lambda value: value > number,
        "==": lambda value: value == number,
        "head": lambda value: value.head(rows),
        "tail": lambda value: value.tail(rows),
        "iloc": lambda value: value.iloc[1:7],
        "texts": lambda value: value.astype(str),
        "round": lambda value: value.round(1),
        "clip": lambda value: value.clip(0, 3),
        "isin": lambda value: value.isin([1, "a", None]),
        "replace": lambda value: value.replace({1: 7}),
    }
    if value.ndim == 1:
        calls |= {
            "map": lambda value: value.map({1: 10, "a": "b"}),
            "map a function": lambda value: value.map(str),
            "upper": lambda value: value.str.upper(),
            "contains": lambda value: value.str.contains("a"),
            "year": lambda value: value.dt.year,
            "floor": lambda value: value.dt.floor("D"),
            "codes": lambda value: value.cat.codes,
            "between": lambda value: value.between(0, 3),
            "filter": lambda value: value[value > number],
            "to_frame": lambda value: value.to_frame(),
            "write": lambda value: written(value, 0, 1),
        }
        return rng.choice(list(calls.items()))
    if value.shape[1] == 0:
        return rng.choice(list(calls.items()))
    key, other = rng.choice(list(value.columns)), rng.choice(list(value.columns))
    more: dict[str, Call] = {
        "a column": lambda value: value[key],
        "columns": lambda value: value[[key, other]],
        "filter": lambda value: value[value[key] > number],
        "loc": lambda value: value.loc[value[key].notna(), other],
        "assign": lambda value: value.assign(n=value[key]),
        "write": lambda value: written(value, key, number),
        "write a column": lambda value: written(value, "n", value[other]),
        "drop": lambda value: value.drop(columns=[key]),
        "rename": lambda value: value.rename(columns={key: "zz"}),
        "sums of groups": lambda value: value.groupby(key)[other].sum(),
        "means of groups": lambda value: value.groupby(key)[other].mean(),
        "sizes of groups": lambda value: value.groupby([key, other]).size(),
        "extremes of groups": lambda value: value.groupby(key)[other].agg(["min", "max", "count"]),
        "firsts of groups": lambda value: value.groupby(key, sort=False).first(),
        "distinct of groups": lambda value: value.groupby(key, dropna=False)[other].nunique(),
        "sort": lambda value: value.sort_values(key, kind="stable"),
        "merge": lambda value: value.merge(value[[key]].head(3), on=key),
        "merge left": lambda value: value.merge(value[[key, other]].head(3), on=key, how="left"),
        "apply": lambda value: value.apply(lambda row: str(row[key]), axis=1),
        "transpose": lambda value: value.T,
        "melt": lambda value: value.melt(),
    }
    return rng.choice([*calls.items(), *more.items(), *more.items()])


def after(call: Call, value: Any) -> Any:
    """What it gives, or what it raises."""
    try:
        return call(value)
    except Exception as error:
        return error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, CHAINS, 50))
def test_a_random_chain_of_calls_gives_what_pandas_gives(first: int) -> None:
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        frame = frame_of(rng)
        ours, theirs = deferred(frame.copy()), frame.copy()
        story = [f"seed {seed}: {list(map(str, frame.dtypes))}, {len(frame)} rows"]
        for _ in range(rng.randint(1, 6)):
            name, call = call_of(rng, theirs)
            story.append(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made, expected = after(call, ours), after(call, theirs)
            if isinstance(expected, Exception):
                assert type(made) is type(expected), (story, made, expected)
                continue
            if not isinstance(expected, pandas.DataFrame | pandas.Series):
                assert type(made) is type(expected), (story, made, expected)
                assert repr(made) == repr(expected), story
                continue
            ours, theirs = made, expected
        try:
            odd_frames.assert_same(ours, theirs)
        except AssertionError as error:
            raise AssertionError("\n  ".join(map(str, [error, *story]))) from None


@pytest.mark.filterwarnings("ignore")
def test_parts_without_rows_are_of_the_type_of_the_others() -> None:
    frame = pandas.DataFrame({"key": [5], "day": pandas.Series([None], dtype="datetime64[ns]")})
    expected = frame.fillna(0).groupby("key")["day"].mean()
    odd_frames.assert_same(deferred(frame).fillna(0).groupby("key")["day"].mean(), expected)
