"""Parallel maps and sharded iterators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import weft
import weft.util.iter as weft_iter
from weft.util.iter import from_items, from_iterators, from_range

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def double(x: int) -> int:
    return 2 * x


def test_map_keeps_the_order_and_reads_a_bounded_way_ahead() -> None:
    assert list(weft_iter.map(double, range(300))) == [2 * i for i in range(300)]
    assert list(weft_iter.map(weft.remote(double), [1, 2], in_flight=1)) == [2, 4]
    source = itertools.count()
    assert list(itertools.islice(weft_iter.map(double, source, in_flight=5), 20)) == [2 * i for i in range(20)]
    assert next(source) <= 26
    with pytest.raises(ValueError, match="in_flight"):
        weft_iter.map(double, [1], in_flight=0)


def test_map_unordered_gives_all() -> None:
    assert sorted(weft_iter.map_unordered(double, range(50), in_flight=4)) == [2 * i for i in range(50)]


def test_items_and_ranges_are_spread_over_shards() -> None:
    assert from_items([1, 2, 3, 4, 5], num_shards=2).gather_sync().take(9) == [1, 2, 3, 4, 5]
    assert list(from_range(5, num_shards=2).get_shard(1)) == [2, 3, 4]
    assert [list(shard) for shard in from_items("abc", num_shards=3).shards()] == [["a"], ["b"], ["c"]]
    assert from_range(4, num_shards=8).num_shards() == 8
    assert sorted(from_range(4, num_shards=8).gather_async()) == [0, 1, 2, 3]


def test_stages_run_in_the_shards() -> None:
    numbers = from_range(10, num_shards=2).for_each(lambda x: x * x).filter(lambda x: x % 2 == 0)
    assert sorted(numbers.gather_sync()) == [0, 4, 16, 36, 64]
    assert sorted(numbers.gather_async()) == [0, 4, 16, 36, 64]
    assert list(from_range(4, num_shards=2).batch(3).gather_sync()) == [[0, 1], [2, 3]]
    assert list(from_items([[1], [2, 3]], num_shards=1).flatten().gather_sync()) == [1, 2, 3]
    assert list(from_range(3, num_shards=1).combine(lambda x: [x] * x).gather_sync()) == [1, 2, 2]
    assert sorted(from_range(20, num_shards=2).local_shuffle(4, seed=1).gather_sync()) == list(range(20))


def test_a_local_iterator_can_be_chained_and_starts_anew() -> None:
    numbers = from_range(6, num_shards=2).gather_sync().for_each(double).batch(4)
    assert list(numbers) == [[0, 6, 2, 8], [4, 10]]
    assert next(numbers) == [0, 6, 2, 8] and next(numbers) == [4, 10]
    assert numbers.take(1) == [[0, 6, 2, 8]]


def test_endless_shards_stream_as_they_are_taken() -> None:
    assert from_items([1, 2], num_shards=2, repeat=True).take(5) == [1, 2, 1, 2, 1]

    def forever() -> Iterator[int]:
        yield from itertools.count()

    assert from_iterators([forever]).gather_async().take(1_000) == list(range(1_000))


def test_shards_can_be_joined_and_chosen() -> None:
    both = from_range(2, num_shards=1).union(from_items([7, 8], num_shards=1))
    assert list(both.gather_sync()) == [0, 7, 1, 8]
    assert list(both.select_shards([1]).gather_sync()) == [7, 8]
    assert "2 shards" in repr(both)


def test_an_error_in_a_shard_is_raised_where_it_is_taken() -> None:
    items = iter(from_items([1, 0, 2], num_shards=1).for_each(lambda x: 1 // x).gather_sync())
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError):
        next(items)


def test_misuse_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="num_shards"):
        from_range(3, num_shards=0)
    with pytest.raises(ValueError, match="n must"):
        from_range(3).batch(0)
    with pytest.raises(TypeError, match="gather_sync"):
        iter(from_range(3))
