"""Merges by columns of frames whose blocks have whole rows: what pandas gives, in one task a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import modin.config
import numpy as np
import pandas
import pytest
from frames import assert_same, made

import weft.pandas.modin as pd
from weft.pandas.modin import joining

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@pytest.fixture(autouse=True)
def _whole_rows() -> Iterator[None]:
    with modin.config.context(MinColumnPartitionSize=32):
        yield


@pytest.fixture
def own_merges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each merge of the form that is tested was done."""
    done: list[str] = []
    merged = joining.merged

    def noted(left: Any, right: Any, how: str, on: list[Any]) -> Any:
        done.append(how)
        return merged(left, right, how, on)

    monkeypatch.setattr(joining, "merged", noted)
    return done


def names(m: Any) -> Any:
    return m.DataFrame({"key": np.arange(45), "word": ["warp", "weft", "loom"] * 15, "name": list(map(str, range(45)))})


OWN: dict[str, Callable[[Any, Any], Any]] = {
    "inner": lambda m, f: f.merge(names(m).drop(columns=["word"]), on="key"),
    "left, with holes": lambda m, f: f.merge(names(m).drop(columns=["word"]), on="key", how="left"),
    "by two columns": lambda m, f: f.merge(names(m), on=["key", "word"]),
    "without a match": lambda m, f: f.merge(m.DataFrame({"key": [-1, -2], "x": [1, 2]}), on="key"),
    "renamed": lambda m, f: f.rename(columns={"key": "k"}).merge(names(m)[["key"]].set_axis(["k"], axis=1), on="k"),
    "several on the right": lambda m, f: f.merge(m.DataFrame({"key": [1, 1, 2], "x": [1.0, 2.0, 3.0]}), on="key"),
    "of large frames": lambda m, f: f.merge(
        m.DataFrame({"key": np.arange(5_000) + 40, "x": np.arange(5_000.0)}), on="key"
    ),
    "then grouped": lambda m, f: f.merge(names(m)[["key", "name"]], on="key").groupby("name").agg({"price": "sum"}),
}
MODINS: dict[str, Callable[[Any, Any], Any]] = {
    "columns of one name": lambda m, f: f.merge(names(m), on="key"),
    "sorted": lambda m, f: f.merge(names(m)[["key", "name"]], on="key", sort=True)[["key", "name"]],
    "by different names": lambda m, f: f.merge(names(m).add_suffix("_r"), left_on="key", right_on="key_r"),
    "by all common columns": lambda m, f: f.merge(names(m)),
    "a level of the labels": lambda m, f: f.merge(names(m)[["key", "name"]].set_index("key"), on="key"),
}


@pytest.mark.parametrize("case", OWN)
def test_a_merge_by_own_columns_gives_what_pandas_gives(case: str, own_merges: list[str]) -> None:
    theirs = made()
    ours = OWN[case](pd, pd.DataFrame(theirs))
    assert_same(ours, OWN[case](pandas, theirs))
    assert len(own_merges) == 1


@pytest.mark.parametrize("case", MODINS)
def test_other_merges_are_left_to_modin(case: str, own_merges: list[str]) -> None:
    theirs = made()
    assert_same(MODINS[case](pd, pd.DataFrame(theirs)), MODINS[case](pandas, theirs))
    assert not own_merges


def test_types_are_known_before_the_merge_is_done_where_no_holes_can_come() -> None:
    frame, right = pd.DataFrame(made()), names(pd)[["key", "name"]]
    inner, left = frame.merge(right, on="key"), frame.merge(right.head(3), on="key", how="left")
    assert inner._query_compiler.frame_has_materialized_dtypes
    assert_same(inner.dtypes, made().merge(names(pandas)[["key", "name"]], on="key").dtypes)
    assert_same(left.dtypes, made().merge(names(pandas)[["key", "name"]].head(3), on="key", how="left").dtypes)
