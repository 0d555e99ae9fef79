"""Operations on frames give what pandas gives, on frames cut into several blocks both ways."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import modin.config
import numpy as np
import pandas
import pytest
from frames import ROWS, assert_same, made, plain

import weft
import weft.pandas.modin as pd
from weft.pandas.modin.partition import WeftPartition

pytestmark = pytest.mark.usefixtures("shared_weft_session")

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a filter": lambda _, f: f[f.price > 0],
    "a new column": lambda _, f: f.assign(double=f.price * 2, upper=f.word.str.upper()),
    "a sum": lambda _, f: f.price.sum(),
    "describe": lambda _, f: f.describe(),
    "isna and mean": lambda _, f: f.isna().mean(),
    "fillna": lambda _, f: f.fillna({"price": 0.0}),
    "value_counts": lambda _, f: f.word.value_counts(),
    "nunique": lambda _, f: f.nunique(),
    "a grouped aggregation": lambda _, f: f.groupby("key").agg({"price": ["mean", "max"], "word": "count"}),
    "a grouped sum by two keys": lambda _, f: f.groupby(["key", "word"]).price.sum(),
    "grouped sums of all": lambda _, f: f[["key", "price"]].groupby("key").sum(),
    "grouped means without an index": lambda _, f: f.groupby(["key", "word"], as_index=False).price.mean(),
    "plain sums of groups": lambda _, f: f.groupby("word").agg({"price": "mean", "key": "max"}),
    "plain extremes of groups": lambda _, f: f.groupby(["key", "word"]).agg({"price": "min"}),
    "plain sums of groups with holes": lambda _, f: (
        f.assign(gap=f.word.where(f.key > 3)).groupby("gap", dropna=False).agg({"key": "count", "price": "sum"})
    ),
    "plain sums of groups by a function": lambda _, f: f.groupby(lambda row: row % 4).agg(
        {"price": "sum", "key": "mean"}
    ),
    "plain sums of groups by levels": lambda _, f: (
        f.set_index(["key", "word"]).groupby(["key", "word"]).agg({"price": "sum"})
    ),
    "grouped sizes": lambda _, f: f.groupby("word").size(),
    "a grouped count by a category": lambda _, f: f.groupby("kind", observed=True).price.count(),
    "groups by an index that has a column's name": lambda _, f: f.set_index("word").groupby("key").price.max(),
    "a merge that is indexed": lambda m, f: f.merge(m.DataFrame({"key": [3, 1]}), on="key").iloc[10:30],
    "a merge that is grouped": lambda m, f: f.merge(m.DataFrame({"key": [3, 1]}), on="key").groupby("key").price.sum(),
    "labels of a filter reset": lambda _, f: f[f.price > 0].reset_index(drop=True),
    "columns that are renamed": lambda _, f: f.rename(columns={"key": "k"}).set_axis(range(len(f)), axis=0).tail(7),
    "means": lambda _, f: f[["key", "price"]].mean(),
    "comparisons": lambda _, f: (f.price > 0) & ~(f.key == 3) | f.word.isin(["warp"]),
    "arithmetic of columns": lambda _, f: 1 / (f.price.abs() + 1) - f.key % 7,
    "dropped columns": lambda _, f: (
        f.drop(columns=["word"]).dropna().drop_duplicates().sort_values(["key", "price"]).head(3)
    ),
    "a grouped apply": lambda _, f: f.groupby("key")[["price"]].apply(lambda group: group.price.max()),
    "a grouped transform": lambda _, f: f.groupby("key").price.transform("cumsum"),
    "a sort": lambda _, f: f.sort_values(["price", "key"], kind="stable").reset_index(drop=True),
    "a sort of the index": lambda _, f: f.sample(frac=1.0, random_state=1).sort_index(),
    "a merge": lambda m, f: f.merge(m.DataFrame({"key": range(40), "name": [str(i) for i in range(40)]}), on="key"),
    "an outer merge": lambda m, f: f.merge(m.DataFrame({"key": [1, 99], "x": [1, 2]}), on="key", how="outer"),
    "a join": lambda m, f: f.join(m.DataFrame({"extra": range(100)}), how="inner"),
    "an apply by row": lambda _, f: f[["key", "price"]].apply(lambda row: row.key + row.price, axis=1),
    "an apply by column": lambda _, f: f[["key", "price"]].apply(lambda column: column.max() - column.min()),
    "a map of elements": lambda _, f: f.word.map(len),
    "concat": lambda m, f: m.concat([f, f.head(10)], ignore_index=True),
    "drop_duplicates": lambda _, f: f.drop_duplicates(["key", "word"]),
    "a pivot table": lambda _, f: f.pivot_table(values="price", index="key", columns="word", aggfunc="mean"),
    "melt": lambda _, f: f.melt(id_vars="key", value_vars=["price"]),
    "rolling": lambda _, f: f.price.rolling(5).mean(),
    "loc": lambda _, f: f.loc[10:200, ["price", "key"]],
    "iloc": lambda _, f: f.iloc[5:-5:7, 1:3],
    "a transpose": lambda _, f: f[["key", "price"]].head(40).T,
    "quantile": lambda _, f: f[["key", "price"]].quantile([0.1, 0.9]),
    "correlations": lambda _, f: f[["key", "price"]].corr(),
    "correlations of ranks": lambda _, f: f[["key", "price"]].corr(method="spearman"),
    "a query": lambda _, f: f.query("key > 10 and price < 0"),
    "cumsum": lambda _, f: f[["key", "price"]].cumsum(),
    "astype": lambda _, f: f.astype({"key": "float32", "word": "string"}),
    "categories": lambda _, f: f.kind.cat.codes,
}


@pytest.fixture(params=["cut both ways", "whole rows", "small"])
def _arranged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Blocks of some rows and columns, blocks of some whole rows, or no blocks: in this process."""
    pd.set_small_rows(ROWS * 10 if request.param == "small" else None)
    with modin.config.context(MinColumnPartitionSize=2 if request.param == "cut both ways" else 64):
        yield
    pd.set_small_rows(None)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("_arranged")
@pytest.mark.filterwarnings("default::UserWarning:modin", "ignore::FutureWarning", "ignore:.*efaulting to pandas")
def test_an_operation_gives_what_pandas_gives(name: str) -> None:
    operation = OPERATIONS[name]
    theirs = made()
    assert_same(operation(pd, pd.DataFrame(theirs)), operation(pandas, theirs))


# Not those through an accessor (`str`, `cat`): it holds its series, and the series keeps it, in Modin as in pandas.
@pytest.mark.parametrize(
    "name",
    [
        *("a filter", "a sum", "fillna", "grouped sizes", "a grouped aggregation", "a sort", "a merge", "a query"),
        *("an outer merge", "an apply by row", "labels of a filter reset", "columns that are renamed", "concat"),
    ],
)
@pytest.mark.filterwarnings("default::UserWarning:modin", "ignore::FutureWarning", "ignore:.*efaulting to pandas")
def test_a_dropped_result_frees_its_blocks_without_the_garbage_collector(name: str) -> None:
    operation, frame = OPERATIONS[name], pd.DataFrame(made())
    operation(pd, frame)  # what the frame itself learns by it is there from now on
    gc.collect()
    before = _living_blocks()
    gc.disable()
    try:
        result = operation(pd, frame)
        if hasattr(result, "_query_compiler"):
            result._query_compiler.execute()
        del result
        assert _living_blocks() == before
    finally:
        gc.enable()


def _living_blocks() -> int:
    return sum(type(thing) is WeftPartition for thing in gc.get_objects())


def test_types_of_a_frame_are_known_after_its_columns_were_renamed() -> None:
    """They are computed late, from a twin of the frame, which must see the new names."""
    frame = pd.DataFrame(made())[["key", "price"]].apply(lambda column: column * 2)
    frame.columns = ["k", "p"]
    assert frame.dtypes.to_dict() == {"k": np.dtype("int64"), "p": np.dtype("float64")}


def test_a_frame_is_cut_into_blocks_that_live_in_object_memory() -> None:
    frame = pd.DataFrame(made())
    blocks = frame._query_compiler._modin_frame._partitions
    assert blocks.shape == (3, 3)
    assert all(isinstance(block._data, weft.ObjectRef) for block in blocks.flatten())
    assert frame.get_backend() == "Weft"


def test_numbers_are_read_from_object_memory_without_a_copy() -> None:
    frame = pd.DataFrame({"x": np.arange(90_000.0)})
    block = frame._query_compiler._modin_frame._partitions[0, 0]
    first, second = block.get(), block.get()
    assert np.shares_memory(first["x"].to_numpy(), second["x"].to_numpy())
    assert not first["x"].to_numpy().flags.writeable


def test_a_function_may_write_into_the_block_that_it_is_given() -> None:
    def zero_first(block: Any) -> Any:
        block.to_numpy()[0] = 0.0
        return block

    frame = pd.DataFrame({"x": np.ones(90)})
    written = frame._query_compiler._modin_frame._partitions[0, 0].apply(zero_first).get()
    assert written["x"].iloc[0] == 0.0
    assert frame["x"].iloc[0] == 1.0


def test_what_a_function_raises_reaches_the_caller_as_it_was_raised() -> None:
    def fail(row: Any) -> None:
        raise KeyError("no such row")

    with pytest.raises(KeyError, match="no such row") as raised:
        plain(pd.DataFrame(made())[["key", "price"]].apply(fail, axis=1))
    assert type(raised.value) is KeyError
    assert isinstance(raised.value.__cause__, weft.exceptions.TaskError)


def test_queued_calls_run_as_one_task() -> None:
    frame = pd.DataFrame({"x": np.arange(300.0)})
    block = frame._query_compiler._modin_frame._partitions[0, 0]
    queued = block.add_to_apply_calls(lambda f: f + 1).add_to_apply_calls(lambda f: f * 2)
    assert queued._data is block._data
    assert queued.get()["x"].iloc[1] == 4.0
    assert queued.length() == 100


def test_a_frame_can_be_pickled_and_sent_to_a_task() -> None:
    theirs = made()
    frame = pd.DataFrame(theirs)
    assert_same(pickle.loads(pickle.dumps(frame)), theirs)

    @weft.remote
    def total(sent: Any) -> float:
        return float(sent.price.sum())

    assert weft.get(total.remote(frame)) == pytest.approx(theirs.price.sum())


@pytest.mark.parametrize("name", ["price", None, 7])
def test_a_series_that_is_sent_to_a_task_is_a_series_there(name: Any) -> None:
    theirs = made().price.rename(name)
    ours = pd.DataFrame(made()).price.rename(name)
    assert_same(pickle.loads(pickle.dumps(ours)), theirs)

    @weft.remote
    def returned(sent: Any) -> Any:
        return sent

    back = weft.get(returned.remote(ours))
    assert type(back) is pandas.Series
    assert_same(back, theirs)


def test_a_function_for_each_element_may_look_into_a_series() -> None:
    lookup = pd.Series(np.arange(1_000.0), name="value")
    assert_same(pd.DataFrame(made()).key.map(lambda key: lookup[key]), made().key.map(float))


def test_a_large_frame_in_a_function_travels_through_object_memory() -> None:
    from weft.pandas.modin.calls import SentFunction, send_function

    table = np.arange(100_000.0)
    assert isinstance(send_function(lambda block: block), SentFunction)
    assert isinstance(send_function(lambda block: block + table[0]), weft.ObjectRef)


def test_frames_of_other_backends_meet_those_of_weft() -> None:
    theirs = made()
    small = pd.DataFrame(theirs).head(5).set_backend("Pandas")
    assert small.get_backend() == "Pandas"
    moved = small.set_backend("Weft")
    assert moved.get_backend() == "Weft"
    assert_same(moved, theirs.head(5))


def test_a_progress_bar_counts_the_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"x": np.arange(300.0)})
    with modin.config.context(ProgressBar=True):
        plain(frame + 1)
    assert "3/3" in capsys.readouterr().err
