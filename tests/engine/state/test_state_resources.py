"""Amounts, devices and lending."""

from __future__ import annotations

import pytest

from weft.engine.state.resources import UNIT, ResourcePool, at_least, to_amounts, to_floats


def test_a_thousand_tenths_add_up_exactly() -> None:
    pool = ResourcePool({"CPU": 100})
    holdings = [pool.acquire(to_amounts({"CPU": 0.1})) for _ in range(1000)]
    assert pool.available["CPU"] == 0
    assert pool.acquire(to_amounts({"CPU": 0.0001})) is None
    for holding in holdings:
        assert holding is not None
        pool.release(holding)
    pool.check([])


@pytest.mark.parametrize(
    ("resources", "complaint"),
    [
        ({"CPU": -1}, "must be zero or more, but got -1"),
        ({"CPU": float("nan")}, "must be zero or more"),
        ({"GPU": 1.5}, "must be a whole number, but got 1.5"),
        ({"disk": 0.00001}, "must be at least 0.0001"),
    ],
)
def test_impossible_amounts_are_refused_with_their_name(resources: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        to_amounts(resources)


def test_whole_gpus_are_given_by_lowest_id_and_come_back() -> None:
    pool = ResourcePool({"GPU": 3}, gpu_ids=[4, 5, 6])
    two = pool.acquire(to_amounts({"GPU": 2}))
    assert two is not None and two.gpu_ids == (4, 5)
    assert pool.acquire(to_amounts({"GPU": 2})) is None
    pool.release(two)
    pool.check([])


def test_shares_of_a_gpu_fill_one_device_before_the_next() -> None:
    pool = ResourcePool({"GPU": 2}, gpu_ids=[0, 1])
    shares = [pool.acquire(to_amounts({"GPU": 0.4})) for _ in range(3)]
    assert [share.gpu_ids for share in shares if share] == [(0,), (0,), (1,)]
    assert pool.shortage(to_amounts({"GPU": 1})) == ("GPU",)  # 0.8 are free, but on two devices
    pool.check([(share, False) for share in shares if share])


def test_a_gpu_split_over_devices_is_short_even_if_the_sum_suffices() -> None:
    pool = ResourcePool({"GPU": 2}, gpu_ids=[0, 1])
    first = pool.acquire(to_amounts({"GPU": 0.6}))
    second = pool.acquire(to_amounts({"GPU": 0.5}))
    assert first is not None and second is not None
    assert first.gpu_ids != second.gpu_ids
    assert pool.available["GPU"] == 9_000
    assert pool.acquire(to_amounts({"GPU": 0.8})) is None


def test_lent_cpu_may_be_taken_back_below_zero() -> None:
    pool = ResourcePool({"CPU": 1, "disk": 1})
    first = pool.acquire(to_amounts({"CPU": 1, "disk": 1}))
    assert first is not None
    pool.lend_cpu(first)
    assert pool.available == {"CPU": UNIT, "disk": 0}
    second = pool.acquire(to_amounts({"CPU": 1}))
    assert second is not None
    pool.take_back_cpu(first)
    assert pool.available["CPU"] == -UNIT
    pool.check([(first, False), (second, False)])
    pool.release(second)
    pool.lend_cpu(first)
    pool.release(first, lent=True)
    pool.check([])


def test_misfit_names_the_resource_what_was_asked_and_what_there_is() -> None:
    pool = ResourcePool({"CPU": 2})
    assert pool.misfit(to_amounts({"CPU": 2})) == ""
    assert pool.misfit(to_amounts({"CPU": 1, "GPU": 1})) == "1 GPU is asked for, but the node has 0"
    assert pool.misfit(to_amounts({"CPU": 2.5})) == "2.5 CPU is asked for, but the node has 2"


def test_need_is_checked_but_only_what_is_wanted_is_taken() -> None:
    pool = ResourcePool({"CPU": 1})
    assert pool.acquire((), need=to_amounts({"CPU": 1})) is not None
    assert to_floats(pool.available) == {"CPU": 1.0}
    assert at_least(to_amounts({"CPU": 2}), to_amounts({"CPU": 1, "disk": 1})) == (("CPU", 20_000), ("disk", 10_000))
