"""What deferred frames give is what pandas gives, to the bit: call by call, and in random chains of calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import odd_frames
import pandas
import pytest

import weft.pandas as pd
from weft.pandas.frames import is_deferred
from weft.pandas.moves import moves

Call = Callable[[Any], Any]
RIGHT = pandas.DataFrame({"key": [*range(0, 60, 2), 4], "z": np.arange(31.0), "n": range(31)})
NUMBERED = pandas.DataFrame({"number": range(500), "n": range(500)})

ON_PARTS: dict[str, Call] = {
    "filter": lambda df: df[df.price > 0],
    "filter of all": lambda df: df[df.key >= 0],
    "filter of none": lambda df: df[df.key < 0],
    "filter of every second": lambda df: df[(df.key - df.key) == 0][["key"]],
    "filters": lambda df: df[(df.price > 0) & ~df.flag][["key", "word"]],
    "filter of a filter": lambda df: (lambda kept: kept[kept.key > 20])(df[df.price > 0]),
    "filter of a column": lambda df: df.price[df.flag],
    "one row": lambda df: df[df.index.size - 1 + df.key * 0 == df.key * 0 + 999],
    "arithmetic": lambda df: df.price * 2 + df.key / 3 - 1,
    "whole division": lambda df: df.key // 7 + df.key % 7,
    "division by zero": lambda df: df.key / (df.key - df.key),
    "reversed": lambda df: 1 - df.price,
    "objects that are all holes": lambda df: df[["key", "price"]] - pandas.NA,
    "power": lambda df: df.key**2,
    "comparison": lambda df: df.key == 3,
    "times compared": lambda df: df.day > pandas.Timestamp("2026-02-01"),
    "texts compared": lambda df: df.word == "weft",
    "frame arithmetic": lambda df: df[["key", "price"]] * 2,
    "negative": lambda df: -df.price,
    "absolute": lambda df: abs(df.price),
    "isna": lambda df: df.isna(),
    "notna": lambda df: df.word.notna(),
    "fillna": lambda df: df.price.fillna(0.0),
    "fillna of texts": lambda df: df.word.fillna("none"),
    "fillna of a frame": lambda df: df[["key", "price"]].fillna(1.5),
    "round": lambda df: df.price.round(2),
    "clip": lambda df: df.price.clip(-1, 1),
    "isin": lambda df: df.key.isin([1, 2, 3]),
    "isin of texts": lambda df: df.word.isin(["weft", "loom"]),
    "between": lambda df: df.key.between(3, 8),
    "astype": lambda df: df.key.astype("float32"),
    "astype text": lambda df: df.key.astype(str),
    "map": lambda df: df.key.map(lambda value: value * 2),
    "map by a dict": lambda df: df.kind.map({"a": 1, "b": 2}),
    "apply": lambda df: df.price.apply(lambda value: value + 1),
    "apply to rows": lambda df: df[["key", "price"]].apply(lambda row: row.key + row.price, axis=1),
    "apply to rows, frames": lambda df: df[["key"]].apply(lambda row: pandas.Series({"s": row.key, "t": 1}), axis=1),
    "replace": lambda df: df.key.replace(3, 300),
    "ufunc": lambda df: np.log1p(df.key),
    "ufunc of two": lambda df: np.maximum(df.price, 0.5),
    "str.upper": lambda df: df.word.str.upper(),
    "str.slice": lambda df: df.word.str[1:3],
    "str.replace": lambda df: df.word.str.replace("w", "v"),
    "dt.month": lambda df: df.day.dt.month,
    "dt.floor": lambda df: df.zoned.dt.floor("D"),
    "dt.hour": lambda df: df.zoned.dt.hour,
    "nullable": lambda df: df.whole + 1,
    "nullable compared": lambda df: df.whole.isna(),
    "columns": lambda df: df[["word", "key"]],
    "assign": lambda df: df.assign(double=df.price * 2, one=1, text="t", again=lambda made: made.double + 1),
    "drop": lambda df: df.drop(columns=["word", "day"]),
    "drop one": lambda df: df.drop("word", axis=1),
    "rename": lambda df: df.rename(columns={"key": "k"}),
    "rename a column": lambda df: df.key.rename("k"),
    "to_frame": lambda df: df.key.to_frame("k"),
    "query": lambda df: df.query("key > 20 and price < 0"),
    "head": lambda df: df.head(),
    "tail": lambda df: df.tail(400),
    "sum": lambda df: df.price.sum(),
    "sum of ints": lambda df: df.key.sum(),
    "sum of bools": lambda df: df.flag.sum(),
    "sum of a filter": lambda df: df[df.key > 3].price.sum(),
    "sums": lambda df: df[["key", "price", "flag"]].sum(),
    "mean": lambda df: df.price.mean(),
    "mean of ints": lambda df: df.key.mean(),
    "means": lambda df: df[["key", "price"]].mean(),
    "mean of a filter": lambda df: df[df.flag].price.mean(),
    "min": lambda df: df.price.min(),
    "maxima": lambda df: df[["key", "price"]].max(),
    "any": lambda df: df.flag.any(),
    "all": lambda df: (df.key >= 0).all(),
    "count": lambda df: df.count(),
    "count of a column": lambda df: df.word.count(),
    "length of a filter": lambda df: len(df[df.key > 10]),
    "groupby.size": lambda df: df.groupby("key").size(),
    "groupby.sum": lambda df: df[["key", "flag"]].assign(n=df.key * 3).groupby("flag")[["n"]].sum(),
    "groupby.max": lambda df: df.groupby("key").price.max(),
    "groupby.min of two keys": lambda df: df.groupby(["key", "flag"])[["price"]].min(),
    "groupby.count": lambda df: df.groupby("key", sort=False).word.count(),
    "groupby.count as a frame": lambda df: df.groupby("key", as_index=False).word.count(),
    "groupby.count of a filter": lambda df: df[df.price > 0].groupby("key").price.count(),
    "groupby.mean": lambda df: df.groupby("key").price.mean(),
    "groupby.sum of floats": lambda df: df.groupby("flag", sort=False)[["price", "number"]].sum(),
    "groupby.std": lambda df: df.groupby(["flag", "key"]).price.std(),
    "groupby.median": lambda df: df.groupby("key", as_index=False)[["price"]].median(),
    "groupby.nunique": lambda df: df.groupby("day").key.nunique(),
    "groupby.first": lambda df: df.groupby("key", sort=False)[["price", "number"]].first(),
    "groupby.last": lambda df: df[df.price > 0].groupby("key").price.last(),
    "groupby.var": lambda df: df.groupby("key", as_index=False, sort=False).price.var(),
    "merge": lambda df: df.merge(RIGHT[["key", "z"]], on="key"),
    "left merge": lambda df: df.merge(RIGHT[["key", "n"]], on="key", how="left"),
    "transposed": lambda df: df[["key", "price"]].head(3).T,
    "merge with two": lambda df: df[["key", "price"]].merge(RIGHT, on=["key"], how="inner"),
}
IN_PANDAS: dict[str, Call] = {
    "str.len with holes": lambda df: df.word.str.len(),
    "left merge with holes in some parts": lambda df: df.merge(NUMBERED, on="number", how="left"),
    "outer merge": lambda df: df[["key", "price"]].merge(RIGHT, on="key", how="outer"),
    "sort_values": lambda df: df.sort_values(["key", "price"]),
    "drop_duplicates": lambda df: df.drop_duplicates("key"),
    "value_counts": lambda df: df.word.value_counts(),
    "describe": lambda df: df.describe(),
    "std": lambda df: df.price.std(),
    "quantile": lambda df: df.price.quantile([0.1, 0.9]),
    "loc": lambda df: df.loc[3:9, ["key", "price"]],
    "iloc": lambda df: df.iloc[-5:],
    "set_index": lambda df: df.set_index("key").price,
    "groupby.mean by texts": lambda df: df.groupby("word").price.mean(),
    "groupby.agg": lambda df: df.groupby("word").agg({"price": ["mean", "max"], "key": "sum"}),
    "groupby.transform": lambda df: df.groupby("key").price.transform("mean"),
    "groupby.apply": lambda df: df.groupby("key")[["price"]].apply(lambda group: group.price.sum()),
    "rolling": lambda df: df.price.rolling(5).mean(),
    "cumsum": lambda df: df.price.cumsum(),
    "shift": lambda df: df.price.shift(),
    "pivot_table": lambda df: df.pivot_table(index="key", columns="flag", values="price", aggfunc="mean"),
    "melt": lambda df: df[["key", "price"]].melt(id_vars="key"),
    "concat": lambda df: pandas.concat([df, df[df.key > 3]]),
    "resample": lambda df: df.set_index("zoned").price.resample("D").sum(),
    "corr": lambda df: df[["key", "price"]].corr(),
    "nunique": lambda df: df.nunique(),
    "other rows side by side": lambda df: df.price + df[df.flag].price,
    "iteration": lambda df: sum(df.key),
    "ints and then floats by map": lambda df: df.number.map(lambda value: value if value < 500 else value / 2),
    "str.split": lambda df: df.word.str.split("e", expand=True),
    "mean of large ints": lambda df: (df.key * 2**50).mean(),
    "query of a mean": lambda df: df.query("price > price.mean()"),
    "query of a column in a column": lambda df: df.query("key in number"),
    "query with a name of the program": lambda df: (lambda bound: df.query("key > @bound and word == 'weft'"))(bound=4),
    "repeated by a list": lambda df: df.word.fillna("").str.repeat([1, 2] * (len(df) // 2) + [1] * (len(df) % 2)),
    "text to times": lambda df: df.day.astype(str).astype("datetime64[ns]"),
    "a function that remembers": lambda df: (lambda seen: df.key.map(lambda k: seen.append(k) or len(seen)))(seen=[]),
    "string": lambda df: df[["key", "price"]].to_string(),
}


@pytest.mark.parametrize("name", ON_PARTS)
def test_on_parts_it_is_what_pandas_gives(name: str) -> None:
    frame, plain = pd.DataFrame(odd_frames.columns()), pandas.DataFrame(odd_frames.columns())
    ours, theirs = ON_PARTS[name](frame), ON_PARTS[name](plain)
    assert is_deferred(frame)
    assert not moves.in_pandas
    odd_frames.assert_same(ours, theirs)


@pytest.mark.parametrize("name", IN_PANDAS)
def test_what_pandas_does_is_what_pandas_gives(name: str) -> None:
    frame, plain = pd.DataFrame(odd_frames.columns()), pandas.DataFrame(odd_frames.columns())
    ours, theirs = IN_PANDAS[name](frame), IN_PANDAS[name](plain)
    assert moves.in_pandas
    odd_frames.assert_same(ours, theirs)
    odd_frames.assert_same(frame, plain)


def test_a_column_may_be_named_none() -> None:
    columns = {"a": [1, 1, 2, 2], None: [1.5, 1.5, 2.5, 3.5]}
    frame, plain = pd.DataFrame(columns), pandas.DataFrame(columns)
    odd_frames.assert_same(frame.groupby("a")[None].nunique(), plain.groupby("a")[None].nunique())
    odd_frames.assert_same(frame[None].sum(), plain[None].sum())
    with pytest.raises(TypeError, match="supply one of"):
        frame.groupby(None)


@pytest.mark.parametrize("rows", [1, 2, 5, 8_193, 40_001])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_floats_are_added_in_the_order_of_numpy(rows: int, name: str) -> None:
    values = odd_frames.columns(rows)["price"]
    odd_frames.assert_same(getattr(pd.Series(list(values)), name)(), getattr(pandas.Series(list(values)), name)())
    both = {"a": list(values), "b": list(values * 3)}
    odd_frames.assert_same(getattr(pd.DataFrame(both), name)(), getattr(pandas.DataFrame(both), name)())


FRAME_CALLS = [call for name, call in {**ON_PARTS, **IN_PANDAS}.items() if name not in ("groupby.apply", "string")]


def made_by(call: Call, frame: Any) -> Any:
    """What a call gives, or the type of what it raises."""
    try:
        return call(frame)
    except Exception as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(12))
def test_random_chains_of_calls_give_what_pandas_gives(seed: int) -> None:
    choice = random.Random(seed)
    rows = choice.choice([1, 2, 7, 300])
    ours, theirs = pd.DataFrame(odd_frames.columns(rows, seed)), pandas.DataFrame(odd_frames.columns(rows, seed))
    for _ in range(12):
        call = choice.choice(FRAME_CALLS)
        made, expected = made_by(call, ours), made_by(call, theirs)
        if isinstance(expected, type):
            assert made is expected
        elif isinstance(expected, pandas.DataFrame) and "key" in expected.columns and choice.random() < 0.5:
            ours, theirs = made, expected
            continue
        else:
            odd_frames.assert_same(made, expected)
        if isinstance(expected, pandas.Series) and len(expected) == len(theirs) and choice.random() < 0.5:
            outcomes = [
                made_by(lambda frame, value=value: frame.__setitem__("made", value), frame)
                for frame, value in ((ours, made), (theirs, expected))
            ]
            assert outcomes[0] is outcomes[1]
    odd_frames.assert_same(ours, theirs)
