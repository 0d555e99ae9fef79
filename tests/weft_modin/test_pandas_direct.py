"""What small frames do in pandas directly gives what pandas gives, as Modin's objects, and writes into nothing that is
shared."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas
import pytest
from frames import assert_same, made, plain

import weft
import weft.pandas.modin as pd
from weft.pandas.modin.journal import journal

LIMIT = 20_000


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    pd.set_small_rows(LIMIT)
    journal.fallbacks.clear()
    yield
    pd.set_small_rows(None)


def _module(frame: Any) -> Any:
    return pandas if isinstance(frame, pandas.DataFrame) else pd


def _spread(column: Any) -> Any:
    return column.max() - column.min()


CALLS: dict[str, Callable[[Any], Any]] = {
    "rename": lambda f: f.rename(columns={"price": "cost"}),
    "query": lambda f: f.query("key > 10 and word == 'weft'"),
    "eval": lambda f: f.eval("key + price"),
    "transposed": lambda f: f[["key", "price"]].T,
    "apply a function to elements": lambda f: f["price"].apply(abs),
    "apply a function to columns": lambda f: f[["key", "price"]].apply(np.sum),
    "apply a function to rows": lambda f: f[["key", "price"]].head(9).apply(lambda row: row.key * 2, axis=1),
    "apply a function that gives a series": lambda f: f.head(9).apply(
        lambda row: _module(f).Series([row.key, row.price], index=["k", "p"]), axis=1
    ),
    "map by a dict": lambda f: f["key"].map({1: 2}),
    "map by a function": lambda f: f["key"].map(lambda key: key + 1),
    "map a frame": lambda f: f[["key"]].map(str),
    "transform": lambda f: f["price"].transform(np.abs),
    "agg by functions": lambda f: f[["key", "price"]].agg(["sum", np.mean]),
    "agg by a function with a name": lambda f: f[["key", "price"]].agg(["sum", _spread]),
    "rolling": lambda f: f["price"].rolling(3, min_periods=1).mean(),
    "rolling of a frame": lambda f: f[["key", "price"]].rolling(3).agg({"key": "sum", "price": "mean"}),
    "rolling of a column": lambda f: f.rolling(3)["price"].max(),
    "expanding": lambda f: f["price"].expanding().sum(),
    "ewm": lambda f: f["price"].ewm(span=3).mean(),
    "resample": lambda f: f.set_index("day")["price"].resample("7D").mean(),
    "resample of a frame": lambda f: f.resample("7D", on="day")[["price"]].sum(),
    "str.upper": lambda f: f["word"].str.upper(),
    "str.contains": lambda f: f["word"].str.contains("w", regex=False),
    "str[0]": lambda f: f["word"].str[0],
    "str.split": lambda f: f["word"].str.split("e", expand=True),
    "dt.month": lambda f: f["day"].dt.month,
    "dt.strftime": lambda f: f["day"].dt.strftime("%Y %j"),
    "dt.components": lambda f: (f["day"] - f["day"].min()).dt.components,
    "cat.codes": lambda f: f["kind"].cat.codes,
    "cat.categories": lambda f: f["kind"].cat.categories,
    "cat.rename_categories": lambda f: f["kind"].cat.rename_categories(["x", "y"]),
    "groups transformed": lambda f: f.groupby("key").price.transform("mean"),
    "groups transformed by a function": lambda f: f.groupby("key").price.transform(
        lambda column: column - column.mean()
    ),
    "groups by weeks": lambda f: f.groupby(_module(f).Grouper(key="day", freq="W")).price.sum(),
    "groups applied": lambda f: f.groupby("key").price.apply(len),
    "groups filtered": lambda f: f.groupby("key").filter(lambda group: len(group) > 5),
    "one group": lambda f: f.groupby("word").get_group("weft"),
    "named aggregates": lambda f: f.groupby("word").agg(total=("price", "sum"), last=("key", "max")),
    "concat": lambda f: _module(f).concat([f.head(3), f.tail(3)], ignore_index=True),
    "concat of a dict": lambda f: _module(f).concat({"a": f.head(3), "b": f.tail(3)}),
    "merge of the module": lambda f: _module(f).merge(f.head(20), f.head(10), on="key"),
    "to_datetime": lambda f: _module(f).to_datetime(f["day"].astype(str)),
    "to_numeric": lambda f: _module(f).to_numeric(f["key"].astype(str)),
    "cut": lambda f: _module(f).cut(f["price"], 5),
    "get_dummies": lambda f: _module(f).get_dummies(f["word"]),
    "crosstab": lambda f: _module(f).crosstab(f["key"], f["word"]),
    "isna of the module": lambda f: _module(f).isna(f),
    "a frame of columns": lambda f: _module(f).DataFrame({"a": f["key"], "b": f["price"] * 2, "c": 1}),
    "a frame of an array": lambda f: _module(f).DataFrame(np.arange(6).reshape(3, 2), columns=["a", "b"]),
    "a frame of dicts": lambda f: _module(f).DataFrame([{"a": 1, "b": "x"}, {"a": 2}]),
    "a series": lambda f: _module(f).Series([1, 2, 3], index=list("abc"), name="n", dtype="float32"),
    "a series of a dict": lambda f: _module(f).Series({"a": 1, "b": 2}),
    "filter": lambda f: f.filter(like="e"),
    "interpolate": lambda f: f["price"].interpolate(),
    "unstack": lambda f: f.groupby(["key", "word"]).price.sum().unstack(),
    "xs": lambda f: f.xs(3),
    "squeeze": lambda f: f[["price"]].squeeze(),
    "argsort": lambda f: f["key"].argsort(kind="stable"),
    "combine_first": lambda f: f[["price"]].combine_first(f[["key"]]),
    "corrwith": lambda f: f[["key", "price"]].corrwith(f["key"]),
    "dot": lambda f: f[["key"]].T.dot(f["key"]),
    "a function of NumPy": lambda f: np.sqrt(f["key"]) + np.add(f["key"], f["price"]),
    "a function of NumPy that reduces": lambda f: np.maximum.reduce(f["key"]),
    "set_axis": lambda f: f.set_axis(list(range(5)), axis=1),
    "a column by its number": lambda f: f.set_axis(list(range(5)), axis=1)[1],
    "get": lambda f: f.get("price"),
    "get of none": lambda f: f.get("none", 7),
    "assign of functions": lambda f: f.assign(a=lambda g: g["key"] * 2, b=lambda g: g["a"] + 1),
    "loc by a function": lambda f: f.loc[lambda g: g["price"] > 0, ["key", "word"]],
    "where by a function": lambda f: f["price"].where(lambda column: column > 0, 0.0),
    "pipe": lambda f: f.pipe(lambda g, n: g.head(n), 4),
    "sum of a generator": lambda f: sum(f["key"]),
    "stack": lambda f: f[["key", "price"]].stack(),
    "memory_usage": lambda f: f.memory_usage(deep=True),
    "dtypes": lambda f: f.dtypes,
    "columns": lambda f: f.columns,
    "the type of a column": lambda f: f["price"].dtype,
    "the name of a column": lambda f: f["price"].name,
    "is_unique": lambda f: f["key"].is_unique,
    "equals": lambda f: f.equals(f.copy()),
    "to_csv": lambda f: f.to_csv(),
    "to_json": lambda f: f[["key", "word"]].to_json(orient="records"),
    "to_records": lambda f: f[["key", "word"]].to_records(index=False).tolist(),
    "repr": lambda f: repr(f) + repr(f["price"]),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_small_frame_does_what_pandas_does(call: Callable[[Any], Any]) -> None:
    theirs = made(200)
    frame = pd.DataFrame(theirs.copy())
    ours, expected = call(frame), call(theirs)
    assert_same(ours, expected)
    assert_same(frame, theirs)
    if isinstance(expected, pandas.DataFrame | pandas.Series) and call is not CALLS["dtypes"]:
        assert type(ours) in (pd.DataFrame, pd.Series)
        assert ours.get_backend() == "Pandas"
    assert not weft.is_initialized()


def test_what_is_iterated_over_is_modins() -> None:
    theirs = made(5)
    frame = pd.DataFrame(theirs)
    assert list(frame) == list(theirs)
    for (ours_name, ours), (name, column) in zip(frame.items(), theirs.items(), strict=True):
        assert isinstance(ours, pd.Series)
        assert ours_name == name
        assert_same(ours, column)
    for (ours_label, ours), (label, row) in zip(frame.iterrows(), theirs.iterrows(), strict=True):
        assert isinstance(ours, pd.Series)
        assert ours_label == label
        assert_same(ours, row)
    assert list(frame[["key", "word"]].itertuples()) == list(theirs[["key", "word"]].itertuples())
    assert list(frame["key"]) == list(theirs["key"])


def test_query_knows_the_variables_of_its_caller() -> None:
    least = 25  # noqa: F841
    theirs = made(50)
    assert_same(pd.DataFrame(theirs).query("key > @least"), theirs.query("key > @least"))


def test_methods_of_modin_are_given_frames_of_pandas() -> None:
    theirs = made(20)[["key", "price"]]
    assert_same(pd.DataFrame(theirs).apply(pd.Series.sum), theirs.apply(pandas.Series.sum))


def test_a_function_that_fails_is_called_once() -> None:
    calls = []

    def fail(row: Any) -> None:
        calls.append(row.key)
        raise ValueError("no such key")

    with pytest.raises(ValueError, match="no such key"):
        pd.DataFrame(made(5)).apply(fail, axis=1)
    assert len(calls) == 1


def test_methods_are_documented_as_modins_are_and_are_pickled() -> None:
    import inspect

    frame = pd.DataFrame(made(5))
    assert "by" in inspect.signature(pd.DataFrame.sort_values).parameters
    assert "by" in inspect.signature(frame.sort_values).parameters
    assert pd.DataFrame.isna.__name__ == "isna"
    assert_same(pickle.loads(pickle.dumps(frame.isna))(), made(5).isna())


def test_a_subclass_of_a_frame_keeps_its_class() -> None:
    class Prices(pd.DataFrame):  # type: ignore[misc]
        @property
        def _constructor(self) -> Any:
            return Prices

    prices = Prices(made(5))
    assert type(prices) is Prices
    assert_same(prices["price"].isna(), made(5)["price"].isna())


def test_a_frame_is_written_to_a_buffer() -> None:
    into: tuple[io.StringIO, io.StringIO] = io.StringIO(), io.StringIO()
    theirs = made(5)
    pd.DataFrame(theirs).to_csv(into[0])
    theirs.to_csv(into[1])
    assert into[0].getvalue() == into[1].getvalue()


# ---- writing ---------------------------------------------------------------------------------------


def _by_loc(frame: Any) -> None:
    frame.loc[1, "a"] = 20


def _by_loc_mask(frame: Any) -> None:
    frame.loc[frame["b"] > 4.0, "a"] = 0


def _by_loc_rows(frame: Any) -> None:
    frame.loc[:, ["a", "b"]] = frame[["b", "a"]].to_numpy()


def _by_iloc(frame: Any) -> None:
    frame.iloc[0, 1] = 40.0


def _by_at(frame: Any) -> None:
    frame.at[2, "b"] = 60.0
    frame.iat[1, 1] = 50.0


def _by_at_and_read(frame: Any) -> None:
    for row in range(3):
        frame.at[row, "b"] = frame.at[row, "a"] * frame.loc[row, "b"]


def _one_row_more(frame: Any) -> None:
    frame.loc[3] = [7, 7.0]


def _by_name(frame: Any) -> None:
    frame["b"] = [7.0, 8.0, 9.0]
    frame["new"] = frame["a"]
    frame.b = 1.0


def _insert(frame: Any) -> None:
    frame.insert(1, "new", [1, 2, 3])


def _delete(frame: Any) -> None:
    del frame["a"]


def _pop(frame: Any) -> None:
    assert frame.pop("a").tolist() == [1, 2, 3]


def _labels(frame: Any) -> None:
    frame.columns = ["x", "y"]
    frame.index = [7, 8, 9]


def _update(frame: Any) -> None:
    frame.update(_module(frame).DataFrame({"b": [1.0]}))


def _in_place(frame: Any) -> None:
    frame.replace(5.0, np.nan, inplace=True)
    frame.fillna({"b": 0.0}, inplace=True)
    frame.rename(columns={"a": "c"}, inplace=True)
    frame.drop(index=0, inplace=True)


WRITES = [
    _by_loc,
    _by_loc_mask,
    _by_loc_rows,
    _by_iloc,
    _by_at,
    _by_at_and_read,
    _one_row_more,
    _by_name,
    _insert,
    _delete,
    _pop,
    _labels,
    _update,
    _in_place,
]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_is_in_no_other_frame(write: Callable[[Any], None]) -> None:
    """Neither in one that was made of it before, nor in it where that one is written."""
    theirs = pandas.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    original = theirs.copy()
    frame = pd.DataFrame(original)
    parts = {"rows": frame.iloc[:2], "column": frame["b"], "values": frame.copy(), "shallow": frame.copy(deep=False)}
    before = {name: part.copy() for name, part in parts.items() if name != "shallow"}
    groups = frame.groupby("a")
    write(frame)
    write(theirs)
    assert_same(frame, theirs)
    for name, part in before.items():
        assert_same(parts[name], part.modin.to_pandas())
    assert groups["b"].sum().tolist() == [4.0, 5.0, 6.0]
    assert original.to_dict("list") == {"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]}
    after = frame.copy()
    cut = frame.iloc[:1]
    cut.iloc[0, 0] = 99
    assert_same(frame, after.modin.to_pandas())


def test_values_that_nobody_else_sees_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    copy = pandas.DataFrame.copy
    monkeypatch.setattr(pandas.DataFrame, "copy", lambda self, deep=True: copies.append(deep) or copy(self, deep))
    frame = pd.DataFrame({"a": np.arange(10), "b": np.zeros(10)})
    for row in range(10):
        frame.at[row, "b"] = frame.at[row, "a"] * 2.0
        assert frame.shape == (10, 2)
    frame.loc[frame["a"] < 0, "b"] = 1.0
    assert copies == []
    column = frame["b"]
    frame.iloc[0, 1] = 100.0
    frame.iloc[1, 1] = 100.0
    assert copies == [True]
    assert column.tolist() == [row * 2.0 for row in range(10)]


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda f: f.iloc[:2],
    "columns": lambda f: f[["a", "b"]],
    "a column": lambda f: f["b"],
    "a part of a column": lambda f: f["b"].iloc[1:],
    "a shallow copy of a part": lambda f: f.iloc[:].copy(deep=False),
    "transposed": lambda f: f[["a", "b"]].T,
    "an array": lambda f: f[["a", "b"]].to_numpy(),
    "an array of a column": lambda f: f["b"].to_numpy(),
    "values of a column": lambda f: f["b"].values[1:],
    "memory": lambda f: memoryview(f["b"].values),
    "days": lambda f: f["day"].dt.day,
    "an array of days": lambda f: f["day"].array if hasattr(f["day"], "array") else f["day"].values,
    "categories": lambda f: f["kind"].cat.codes,
    "groups": lambda f: f.groupby("kind", observed=True).b,
    "windows": lambda f: f["b"].rolling(2, min_periods=1),
    "an iterator": lambda f: f.iterrows(),
    "a row": lambda f: f.iloc[0],
}


def _seen(held: Any) -> Any:
    if type(held) in (pd.DataFrame, pd.Series):
        return plain(held).to_dict()
    if hasattr(held, "__next__"):
        return [plain(row).to_dict() for _, row in held]
    is_array = isinstance(held, np.ndarray | memoryview | pandas.api.extensions.ExtensionArray)
    return np.asarray(held).tolist() if is_array else plain(held.sum()).to_dict()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_what_somebody_else_sees_is_not_written(hold: Callable[[Any], Any]) -> None:
    def new() -> Any:
        days = pandas.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"])
        kinds = pandas.Categorical(["x", "y", "x"])
        return pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "day": days, "kind": kinds})

    expected = _seen(hold(new()))
    frame = new()
    held = hold(frame)
    frame.iloc[:, 0] = 0.0
    frame.loc[:, "b"] = 0.0
    frame.at[1, "b"] = 7.0
    frame.loc[frame["a"] == 0.0, "day"] = pandas.Timestamp("2030-01-01")
    frame.loc[0, "kind"] = "y"
    assert _seen(held) == expected
    assert frame["b"].tolist() == [0.0, 7.0, 0.0]


def test_arrays_that_a_frame_was_made_of_are_not_written() -> None:
    values, theirs = np.zeros((3, 2)), pandas.DataFrame({"a": [1.0, 2.0, 3.0]})
    frame, other = pd.DataFrame(values), pd.DataFrame(theirs)
    frame.iloc[0, 0] = 1.0
    other.at[0, "a"] = 9.0
    other.loc[other["a"] > 1, "a"] = 9.0
    assert (values.sum(), theirs["a"].tolist()) == (0.0, [1.0, 2.0, 3.0])
    values.flags.writeable = False
    again = pd.DataFrame(values)
    del values
    again.iloc[0, 0] = 1.0
    assert again.to_numpy().sum() == 1.0


def test_a_write_into_many_rows_copies_its_columns_alone() -> None:
    frame = pd.DataFrame({"a": np.arange(10), "b": np.zeros(10), "c": np.zeros(10)})
    before, values = frame["b"], frame["c"].to_numpy()  # both seen by others than the frame
    frame.loc[frame["a"] > 4, "b"] = 1.0
    assert (before.sum(), frame["b"].sum()) == (0.0, 5.0)
    assert np.shares_memory(frame["c"].to_numpy(), values)
    frame.loc[frame["a"] > 4, ["b", "c"]] = 2.0
    assert (values.sum(), frame["b"].sum(), frame["c"].sum()) == (0.0, 10.0, 10.0)


def test_what_is_written_into_a_column_is_in_its_frame() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    column = frame["b"]
    column[0] = 40.0
    column.iloc[1] = 50.0
    column.loc[2] = 60.0
    assert column.tolist() == frame["b"].tolist() == [40.0, 50.0, 60.0]
    alone = column + 0
    alone[0] = 0.0
    alone.at[1] = 0.0
    assert (alone.tolist(), column.tolist()) == ([0.0, 0.0, 60.0], [40.0, 50.0, 60.0])


@pytest.mark.usefixtures("weft_session")
def test_a_frame_that_grows_by_a_row_moves_to_weft() -> None:
    frame = pd.DataFrame({"a": np.arange(LIMIT)})
    frame.loc[LIMIT] = 7
    assert (frame.get_backend(), len(frame)) == ("Weft", LIMIT + 1)


@pytest.mark.usefixtures("weft_session")
@pytest.mark.parametrize("limit", [LIMIT, None])
def test_a_frame_is_resampled(limit: int | None) -> None:
    pd.set_small_rows(limit)
    theirs = made(500)[["day", "price"]]
    frame = pd.DataFrame(theirs)
    assert_same(frame.resample("7D", on="day").mean(), theirs.resample("7D", on="day").mean())
    days, their_days = frame.groupby("day").sum(), theirs.groupby("day").sum()
    assert_same(days.price.resample("7D").max(), their_days.price.resample("7D").max())
    assert_same(days.resample("7D").agg({"price": "sum"}), their_days.resample("7D").agg({"price": "sum"}))


@pytest.mark.usefixtures("weft_session")
@pytest.mark.filterwarnings("ignore:.*defaulting to pandas")
@pytest.mark.parametrize("limit", [LIMIT, None])
def test_a_frame_without_cells_is_written(limit: int | None) -> None:
    pd.set_small_rows(limit)
    frame, theirs = pd.DataFrame(), pandas.DataFrame()
    for each in (frame, theirs):
        each["new"] = range(0)
    assert_same(frame, theirs)
    assert (frame.to_csv(), frame.rolling(2).sum().shape) == (theirs.to_csv(), (0, 1))


def test_the_arguments_of_a_reader_are_what_it_was_called_with() -> None:
    """On Python 3.13 its frame would show what it has set since, too."""
    import inspect

    from weft.pandas.modin.modin_repairs import arguments

    def read(path: str, *, lines: bool = False, **others: Any) -> dict[str, Any]:
        _, _, _, found = arguments(inspect.currentframe())
        found.pop("lines")
        return dict(found)

    assert read("a", lines=True, rows=3) == {"path": "a", "others": {"rows": 3}}


_REGISTERED_LATER = """
import weft.pandas.modin as pd
from modin.pandas.api.extensions import register_pd_accessor

frame = pd.DataFrame({"a": [1]})
print(len(pd.concat([frame, frame])), end="; ")

@register_pd_accessor("concat")
def concat(*args, **kwargs):
    return "mine"

print(pd.concat([frame, frame]), end="")
"""


def test_an_extension_of_the_module_comes_before_pandas() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _REGISTERED_LATER], capture_output=True, text=True, timeout=280, check=False
    )
    assert printed.stdout == "2; mine", printed.stderr
