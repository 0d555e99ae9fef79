"""Calls that Modin answers otherwise than pandas, on frames forced onto the engine: the answers are those of pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from frames import assert_same, plain

import weft.pandas.modin as pd
from weft.pandas.modin.journal import FallbackError, journal

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*defaulting to pandas"),
    pytest.mark.filterwarnings("ignore:.*has mismatches with pandas"),
]


@pytest.fixture(autouse=True)
def _all_on_weft(shared_weft_session: None) -> Iterator[None]:
    pd.set_small_rows(None)
    yield
    pd.strict(False)


def odd(rows: int) -> pandas.DataFrame:
    """All kinds of columns, with holes and duplicates, and labels that repeat."""
    random = np.random.default_rng(rows)
    seconds = random.integers(0, 10**6, rows) * 1000
    words = [["a", "b", "", None][place] for place in random.integers(0, 4, rows)]
    return pandas.DataFrame(
        {
            "i": random.integers(-3, 4, rows),
            "j": random.integers(0, 3, rows),
            "f": np.where(random.random(rows) < 0.2, np.nan, random.integers(-8, 8, rows) / 4),
            "s": words,
            "n": pandas.array([[1, 2, None][place] for place in random.integers(0, 3, rows)], dtype="Int64"),
            "c": pandas.Categorical(random.choice(["x", "y"], rows), categories=["y", "x", "w"]),
            "z": pandas.to_datetime(seconds, unit="s").tz_localize("UTC").tz_convert("Europe/Zurich"),
        },
        index=random.choice(["p", "q", "r"], rows),
    )


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "corr": lambda frame, _: frame.corr(numeric_only=True),
    "cov": lambda frame, _: frame.cov(numeric_only=True),
    "corrwith": lambda frame, _: frame[["i", "j", "f"]].corrwith(frame["i"]),
    "mean of integers with holes": lambda frame, _: frame[["i", "j", "n"]].mean(),
    "melt keeps the order": lambda frame, _: frame.melt(id_vars="i"),
    "mode": lambda frame, _: frame[["i", "j"]].mode(),
    "idxmax": lambda frame, _: frame.reset_index(drop=True).idxmax(numeric_only=True),
    "combine_first": lambda frame, _: (
        frame[["i", "f"]].reset_index(drop=True).combine_first(frame[["i"]].head(2).reset_index(drop=True))
    ),
    "value_counts": lambda frame, _: frame[["j"]].value_counts(),
    "crosstab": lambda frame, module: module.crosstab(
        frame["i"].reset_index(drop=True), frame["j"].reset_index(drop=True)
    ),
    "get_dummies": lambda frame, module: module.get_dummies(frame[["c"]]),
    "pivot_table": lambda frame, _: frame.pivot_table(
        index="c", columns="j", values="f", aggfunc="sum", observed=False
    ),
    "groups in their order": lambda frame, _: frame.groupby("i", sort=False)["f"].sum(),
    "groupby.size": lambda frame, _: frame.groupby("j", sort=False, as_index=False).size(),
    "groupby.cumcount": lambda frame, _: frame.groupby("j").cumcount(),
    "groupby.ngroup": lambda frame, _: frame.groupby("j").ngroup(),
    "groupby.rank": lambda frame, _: frame.groupby("j")["f"].rank(),
    "groupby.cummax": lambda frame, _: frame.groupby("j")["i"].cummax(),
    "groupby.ffill": lambda frame, _: frame.groupby("j")[["f", "s"]].ffill(),
    "groupby.tail": lambda frame, _: frame.groupby("j")["f"].tail(2),
    "groupby.skew": lambda frame, _: frame[["i", "j", "f"]].groupby("j").skew(),
    "groupby.ngroups": lambda frame, _: frame.groupby("j").ngroups,
    "groupby of a column": lambda frame, _: frame["f"].groupby(frame["j"]).cumsum(),
    "groupby.agg": lambda frame, _: frame.groupby("j")[["f"]].agg(["count", "first"]),
    "groups by attribute": lambda frame, _: frame.groupby("j").f.shift(),
    "a series' own item": lambda frame, _: frame["i"].head(1).item(),
    "agg of a list": lambda frame, _: frame[["i", "s"]].agg(["count", "nunique"]),
    "diff": lambda frame, _: frame[["i", "f"]].diff(),
    "sort": lambda frame, _: frame.sort_values(["j", "i"], kind="stable"),
}


@pytest.mark.parametrize("rows", [7, 300])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_an_odd_frame_gives_what_pandas_gives(call: str, rows: int) -> None:
    theirs = odd(rows)
    assert_same(CALLS[call](pd.DataFrame(theirs), pd), CALLS[call](theirs, pandas))


def test_groups_are_gone_through_as_pandas_does() -> None:
    theirs = odd(60)
    ours = pd.DataFrame(theirs).groupby("c", observed=False)
    expected = list(theirs.groupby("c", observed=False))
    assert [name for name, _ in ours] == [name for name, _ in expected]
    for (_, group), (_, wanted) in zip(ours, expected, strict=True):
        assert_same(group, wanted)
    assert len(ours) == len(expected)


def test_a_sort_in_place_changes_the_frame_of_few_rows() -> None:
    theirs = odd(7)
    ours = pd.DataFrame(theirs)
    assert ours.sort_values("i", kind="stable", inplace=True) is None
    assert_same(ours, theirs.sort_values("i", kind="stable"))


def test_what_is_given_to_pandas_is_told_and_refused_in_strict_mode() -> None:
    frame = pd.DataFrame(odd(300))
    journal.fallbacks.clear()
    frame.groupby("j").cumcount()
    assert "another result than pandas" in journal.fallbacks["groupby.cumcount"].reason
    with pd.strict(), pytest.raises(FallbackError, match="corrwith"):
        frame.corrwith(frame["i"])


def test_plain_sums_of_sorted_groups_stay_on_weft() -> None:
    frame = pd.DataFrame(odd(300)[["i", "j", "f", "s"]])
    with pd.strict():
        assert_same(frame.groupby("j")["f"].sum(), plain(frame).groupby("j")["f"].sum())


# ---- files -----------------------------------------------------------------------------------------


def test_a_column_of_numbers_and_later_of_text_is_text(tmp_path: Path) -> None:
    rows = 200_000
    lines = (
        f"{row},{row if row < rows - 1_000 else 'text'},{'' if row < rows // 2 else 'late'}" for row in range(rows)
    )
    path = tmp_path / "mixed.csv"
    path.write_text("\n".join(["x,y,z", *lines]))
    frame = plain(pd.read_csv(path))
    assert Counter(type(value) for value in frame["y"]) == {str: rows}
    assert_same(frame, pandas.read_csv(path, low_memory=False))


def test_a_late_column_of_text_does_not_keep_a_file_from_being_read_in_parts(tmp_path: Path) -> None:
    lines = (f"{row},{'' if row < 100_000 else 'late'},{row if row % 2 else ''}" for row in range(200_000))
    path = tmp_path / "late.csv"
    path.write_text("\n".join(["x,y,z", *lines]))
    with pd.strict():
        assert_same(pd.read_csv(path), pandas.read_csv(path, low_memory=False))


@pytest.mark.filterwarnings("ignore:The argument 'date_parser' is deprecated")
def test_dates_may_be_read_by_a_function(tmp_path: Path) -> None:
    path = tmp_path / "dates.csv"
    path.write_text("\n".join(["t,x", *(f"2024-01-{row % 28 + 1:02d},{row}" for row in range(500))]))
    wanted: dict[str, Any] = {"parse_dates": ["t"], "date_parser": lambda text: datetime.strptime(text, "%Y-%m-%d")}
    assert_same(pd.read_csv(path, **wanted), pandas.read_csv(path, **wanted))
