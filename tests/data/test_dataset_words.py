"""What a notebook shows of a dataset, and how words of other libraries are answered."""

from __future__ import annotations

from typing import Any

import pytest

from weft import data

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def test_a_dataset_shows_its_columns_and_rows_once_it_has_run() -> None:
    rows = data.from_items([{"city": "<Oslo>", "fare": 3.0}]).map(lambda row: row)
    assert "It has not run" in rows._repr_html_()
    shown = rows.materialize()._repr_html_()
    assert "<th>city: " in shown and "<td>&lt;Oslo&gt;</td><td>3</td>" in shown and "1 rows" in shown


WORDS: dict[str, tuple[Any, type[Exception], str]] = {
    "a column method of Ray's": (lambda: data.range(3).select_columns, AttributeError, r"\.select\("),
    "pandas' head": (lambda: data.range(3).head, AttributeError, r"\.take\(rows\)"),
    "a misspelt method": (lambda: data.range(3).filtr, AttributeError, r"did you mean \.filter\(\)"),
    "a column as an attribute": (lambda: data.range(3).id, AttributeError, r"\.select\('id'\)"),
    "a column of groups": (lambda: data.range(3).groupby("id")["id"], TypeError, r"as in mean\("),
    "a mean of no columns": (lambda: data.range(3).groupby("id").mean(), TypeError, "of which columns"),
    "pandas' apply of groups": (lambda: data.range(3).groupby("id").apply, AttributeError, "map_groups"),
    "a stream of a list": (lambda: data.stream([1]), TypeError, "stream_from"),
    "a key by name": (lambda: data.stream_from(list).key_by("w"), TypeError, "lambda event"),
    "a count without keys": (lambda: data.stream_from(list).count, AttributeError, "key_by"),
    "a column by index": (lambda: data.range(3)["id"], TypeError, r"\.select\('id'\) is a column"),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_another_library_is_answered_with_ours(word: str) -> None:
    call, kind, said = WORDS[word]
    with pytest.raises(kind, match=said):
        call()


def test_a_dataset_that_has_nothing_yet_has_no_attribute_either() -> None:
    with pytest.raises(AttributeError, match="_plan"):
        data.Dataset.__new__(data.Dataset)._plan  # noqa: B018


def test_a_column_that_a_function_of_rows_misses_is_told_with_those_there_are() -> None:
    with pytest.raises(data.RowError, match=r"column 'word' of .*there is no such column\. There are: id"):
        data.range(3).map(lambda row: {"x": row["word"]}).take()


def test_aggregates_may_stand_in_a_dict_as_pandas_has_them() -> None:
    rows = data.from_items([{"k": 1, "v": 2.0}, {"k": 1, "v": 4.0}])
    assert (
        rows.groupby("k").agg({"v": ["mean", "max"]}).take_all() == rows.groupby("k").agg(v=["mean", "max"]).take_all()
    )


def test_a_keyed_stream_counts() -> None:
    words = data.stream_from(lambda: ["a", "b", "a"]).key_by(lambda word: word)
    assert sorted(words.count(parallelism=1).run()) == [("a", 1), ("a", 2), ("b", 1)]


def test_a_list_in_the_place_of_a_source_is_told_in_one_line() -> None:
    with pytest.raises(TypeError, match=r"write stream_from\(lambda: events\)") as raised:
        data.stream(["a line"] * 1000)  # type: ignore[arg-type]
    assert len(str(raised.value)) < 200
