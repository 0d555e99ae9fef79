"""Columns of Python objects come out of their packed form as they went in."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pandas
import pytest

from weft.pandas.packing import FEWEST_ROWS, PackedFrame, packed

ROWS = 3 * FEWEST_ROWS
COLUMNS: dict[str, Callable[[], list[object]]] = {
    "few words": lambda: ["warp", "weft", "loom"] * (ROWS // 3),
    "few words and holes": lambda: ["warp", None, np.nan] * (ROWS // 3),
    "a word a row": lambda: [f"word {number}" for number in range(ROWS)],
    "a word a row and None": lambda: [f"word {number}" if number % 7 else None for number in range(ROWS)],
    "a word a row and nan": lambda: [f"word {number}" if number % 7 else np.nan for number in range(ROWS)],
    "a word a row and bytes": lambda: [f"word {number}" if number % 7 != 3 else b"bytes" for number in range(ROWS)],
    "words that are no Unicode": lambda: [f"\ud800{number}" for number in range(ROWS)],
    "numbers of any size": lambda: [10**30 + number for number in range(ROWS)],
    "lists": lambda: [[number] for number in range(ROWS)],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_objects_comes_back(kind: str) -> None:
    frame = pandas.DataFrame({"n": range(ROWS), "o": COLUMNS[kind](), "x": np.arange(ROWS) / 2, "p": ["a"] * ROWS})
    frame.index = pandas.Index(range(5, ROWS + 5), name="place")
    sent = packed(frame)
    assert isinstance(sent, PackedFrame)
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(sent, protocol=5, buffer_callback=buffers.append)
    back = pickle.loads(pickled, buffers=buffers)
    pandas.testing.assert_frame_equal(back, frame)
    assert [type(value) for value in back["o"]] == [type(value) for value in frame["o"]]


def test_objects_that_repeat_are_sent_once_and_stay_one_object() -> None:
    one, other = ["a list"], ["another"]
    frame = pandas.DataFrame({"o": [one, other] * ROWS})
    pickled = pickle.dumps(packed(frame), protocol=5, buffer_callback=lambda _: False)
    assert pickled.count(b"a list") == 1
    back = pickle.loads(pickle.dumps(packed(frame)))
    assert back["o"][0] is back["o"][2]
    assert back["o"][0] is not back["o"][1]


def test_a_packed_frame_can_be_written() -> None:
    back = pickle.loads(pickle.dumps(packed(pandas.DataFrame({"o": ["a", "b"] * ROWS}))))
    back.loc[0, "o"] = "c"
    assert back["o"].tolist()[:3] == ["c", "b", "a"]


def test_frames_without_objects_and_short_ones_are_stored_as_they_are() -> None:
    for frame in (pandas.DataFrame({"n": range(ROWS)}), pandas.DataFrame({"o": ["a", "b"]})):
        assert packed(frame) is frame
    assert packed("text") == "text"
