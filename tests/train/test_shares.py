"""Parts of batches and datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.train.session import TrainContext
from weft.train.shares import Part, share_of, split_dataset


@pytest.mark.parametrize(("total", "size"), [(10, 3), (2, 4), (0, 2), (7, 1), (64, 8)])
def test_shares_are_all_of_it_once_and_differ_by_one_at_most(total: int, size: int) -> None:
    shares = [share_of(total, rank, size) for rank in range(size)]
    assert [number for share in shares for number in range(total)[share]] == list(range(total))
    lengths = [share.stop - share.start for share in shares]
    assert max(lengths) - min(lengths) <= 1


def test_a_rank_beyond_the_size_is_refused() -> None:
    with pytest.raises(ValueError, match="rank below 2, but got total=10 and rank=2"):
        share_of(10, 2, 2)


@pytest.mark.parametrize("dataset", [list(range(5)), np.arange(5), range(5)], ids=["list", "array", "range"])
def test_sequences_are_sliced(dataset: Any) -> None:
    assert [list(part) for part in split_dataset(dataset, 2)] == [[0, 1, 2], [3, 4]]


def test_what_has_items_but_no_slices_is_divided_by_index() -> None:
    class Squares:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> int:
            return {number: number * number for number in range(5)}[index]

    parts = split_dataset(Squares(), 2)
    assert [list(part) for part in parts] == [[0, 1, 4], [9, 16]]
    assert (parts[1][-1], parts[0][1:]) == (16, [1, 4])
    with pytest.raises(IndexError, match="within 2 items, but got 2"):
        parts[1][2]
    assert isinstance(parts[0], Part)


def test_what_splits_itself_must_give_as_many_parts() -> None:
    class Halves:
        def split(self, size: int) -> list[str]:
            return ["left", "right"]

    assert split_dataset(Halves(), 2) == ["left", "right"]
    with pytest.raises(ValueError, match=r"split\(3\) must give 3 parts, but gave 2"):
        split_dataset(Halves(), 3)


def test_what_can_not_be_split_is_refused() -> None:
    with pytest.raises(TypeError, match="a dataset must have streaming_split"):
        split_dataset(object(), 2)


def test_a_worker_knows_its_place_among_those_of_its_node() -> None:
    nodes = ("b", "a", "b", "b")
    contexts = [TrainContext(rank, nodes, 0, "", None) for rank in range(4)]
    assert [one.size for one in contexts] == [4] * 4
    assert [one.get_local_rank() for one in contexts] == [0, 0, 1, 2]
    assert [one.get_local_world_size() for one in contexts] == [3, 1, 3, 3]
    assert [one.get_node_rank() for one in contexts] == [0, 1, 0, 0]
