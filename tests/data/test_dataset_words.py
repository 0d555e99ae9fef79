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
    "a column by index": (lambda: data.range(3)["id"], TypeError, r"\.select\('id'\) is a column"),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_another_library_is_answered_with_ours(word: str) -> None:
    call, kind, said = WORDS[word]
    with pytest.raises(kind, match=said):
        call()


def test_a_keyed_stream_counts() -> None:
    words = data.stream_from(lambda: ["a", "b", "a"]).key_by(lambda word: word)
    assert sorted(words.count(parallelism=1).run()) == [("a", 1), ("a", 2), ("b", 1)]
