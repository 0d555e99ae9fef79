"""Collective operations give what NumPy gives, on every member, for arrays smaller and larger than a slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import train
from weft.util.shared_block import ELEMENT_TYPES

SIZES = (1, 2, 5)
# Nothing, less than a cache line, reduced in one round, one slot and a bit, many slots.
LENGTHS = (0, 3, 1000, 9000, 70_001)
SLOT_BYTES = 64 << 10
NUMPY_REDUCTIONS = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "mean": np.mean}


def inputs(rank: int, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
    return np.random.default_rng(rank).integers(1, 9, shape).astype(dtype)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size}-members")
def group(request: Any, members: Callable[..., Any]) -> Any:
    return members(request.param, SLOT_BYTES)


@pytest.mark.parametrize("op", NUMPY_REDUCTIONS)
def test_all_reduce_is_numpys_reduction_over_the_ranks(group: Any, op: str) -> None:
    def work(member: train.Group, lengths: tuple[int, ...], op: str) -> list[Any]:
        arrays = [inputs(member.rank, length, np.float64) for length in lengths]
        assert all(member.all_reduce(array, op) is array for array in arrays)
        return arrays

    results = group.run(work, LENGTHS, op)
    for i, length in enumerate(LENGTHS):
        terms = np.stack([inputs(rank, length, np.float64) for rank in range(len(group.actors))])
        for result in results:
            np.testing.assert_allclose(result[i], NUMPY_REDUCTIONS[op](terms, axis=0), rtol=1e-14)


def test_every_type_of_element_is_summed(group: Any) -> None:
    names = [name for name in ELEMENT_TYPES if name not in ("bfloat16", "bool")]

    def work(member: train.Group, names: list[str]) -> list[Any]:
        return [member.all_reduce(inputs(member.rank, 40_000, name)) for name in names]

    results = group.run(work, names)
    for i, name in enumerate(names):
        expected = sum(inputs(rank, 40_000, np.int64) for rank in range(len(group.actors)))
        for result in results:
            assert result[i].dtype == name
            np.testing.assert_array_equal(result[i], expected.astype(name))


@pytest.mark.parametrize(("op", "both"), [("sum", np.logical_or), ("prod", np.logical_and)])
def test_booleans_are_joined_by_or_and_and(group: Any, op: str, both: Any) -> None:
    def work(member: train.Group, op: str) -> Any:
        return member.all_reduce(inputs(member.rank, 40_000) > 4, op)

    expected = both.reduce([inputs(rank, 40_000) > 4 for rank in range(len(group.actors))])
    for result in group.run(work, op):
        assert result.dtype == bool
        np.testing.assert_array_equal(result, expected)


def test_float16_is_added_up_in_float32_and_rounded_once(group: Any) -> None:
    def values(rank: int) -> Any:
        every = np.arange(65536, dtype=np.uint16).view(np.float16)  # all numbers there are
        return np.roll(every, 777 * rank)

    def work(member: train.Group) -> Any:
        return member.all_reduce(values(member.rank))

    with np.errstate(all="ignore"):
        total = values(0).astype(np.float32)
        for rank in range(1, len(group.actors)):
            total = total + values(rank).astype(np.float32)
        expected = total.astype(np.float16)
    for result in group.run(work):
        np.testing.assert_array_equal(result, expected)


def test_a_reduction_is_bit_equal_on_all_members_and_in_the_order_of_the_ranks(group: Any) -> None:
    def work(member: train.Group, length: int) -> Any:
        return member.all_reduce(np.random.default_rng(member.rank).normal(size=length).astype(np.float32))

    for length in (100, 50_000):
        expected = np.random.default_rng(0).normal(size=length).astype(np.float32)
        for rank in range(1, len(group.actors)):
            expected = expected + np.random.default_rng(rank).normal(size=length).astype(np.float32)
        for result in group.run(work, length):
            np.testing.assert_array_equal(result, expected)


def test_reduce_changes_the_roots_array_only(group: Any) -> None:
    root = len(group.actors) - 1

    def work(member: train.Group, length: int, root: int) -> Any:
        return member.reduce(inputs(member.rank, length), root, "max")

    for length in LENGTHS:
        results = group.run(work, length, root)
        terms = np.stack([inputs(rank, length) for rank in range(len(results))])
        for rank, result in enumerate(results):
            np.testing.assert_array_equal(result, terms.max(axis=0) if rank == root else terms[rank])


def test_reduce_scatter_gives_each_rank_its_share(group: Any) -> None:
    size = len(group.actors)

    def work(member: train.Group, shape: tuple[int, ...]) -> tuple[Any, Any]:
        whole = inputs(member.rank, shape)
        part = member.reduce_scatter(whole)
        own = whole[member.rank * len(part) : (member.rank + 1) * len(part)]
        assert member.reduce_scatter(whole, out=own) is own
        return part, own.copy()

    for length in LENGTHS:
        results = group.run(work, (size * 2, length))
        total = sum(inputs(rank, (size * 2, length)) for rank in range(size))
        for rank, (part, own) in enumerate(results):
            np.testing.assert_array_equal(part, total[2 * rank : 2 * rank + 2])
            np.testing.assert_array_equal(own, part)


def test_gathers_scatters_and_broadcasts_move_what_they_should(group: Any) -> None:
    size = len(group.actors)
    root = size // 2

    def work(member: train.Group, length: int, root: int) -> tuple[Any, ...]:
        mine = inputs(member.rank, length)
        everything = inputs(99, (member.size, length)) if member.rank == root else None
        return (
            member.all_gather(mine),
            member.gather(mine, root),
            member.scatter(np.zeros(length, np.float32), everything, root),
            member.broadcast(mine.copy(), root),
            member.all_to_all(inputs(member.rank, (member.size, length))),
        )

    for length in LENGTHS:
        results = group.run(work, length, root)
        rows = np.stack([inputs(rank, length) for rank in range(size)])
        blocks = np.stack([inputs(rank, (size, length)) for rank in range(size)])
        for rank, (all_gathered, gathered, scattered, broadcast, exchanged) in enumerate(results):
            np.testing.assert_array_equal(all_gathered, rows)
            if rank == root:
                np.testing.assert_array_equal(gathered, rows)
            else:
                assert gathered is None
            np.testing.assert_array_equal(scattered, inputs(99, (size, length))[rank])
            np.testing.assert_array_equal(broadcast, rows[root])
            np.testing.assert_array_equal(exchanged, blocks[:, rank])


def test_all_to_all_may_write_over_its_input(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> Any:
        array = inputs(member.rank, (member.size * 2, 30_000))
        return member.all_to_all(array, out=array).copy()

    results = members(3, SLOT_BYTES).run(work)
    blocks = np.stack([inputs(rank, (6, 30_000)) for rank in range(3)])
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, blocks[:, 2 * rank : 2 * rank + 2].reshape(6, 30_000))


def test_an_array_goes_round_a_ring_by_send_and_recv(members: Callable[..., Any]) -> None:
    def work(member: train.Group, length: int) -> Any:
        array = inputs(7, length, np.int64) if member.rank == 0 else np.zeros(length, np.int64)
        if member.rank > 0:
            member.recv(array, member.rank - 1)
            array += 1
        member.send(array, (member.rank + 1) % member.size) if member.rank < member.size - 1 else None
        if member.rank == member.size - 1:
            member.send(array, 0)
        if member.rank == 0:
            member.recv(array, member.size - 1)
        member.barrier()
        return array

    for length in (0, 5, 200_000):
        np.testing.assert_array_equal(members(3).run(work, length)[0], inputs(7, length, np.int64) + 2)


def test_many_small_operations_of_all_kinds_stay_in_step(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> int:
        total = np.zeros(1, np.int64)
        for i in range(500):
            total += member.all_reduce(np.full(1, i, np.int64))
            total += member.broadcast(np.full(1, member.rank, np.int64), root=i % member.size)
            member.barrier()
            total += member.all_gather(np.full(1, 1, np.int64)).sum()
        return int(total[0])

    assert members(3, SLOT_BYTES).run(work) == [sum(3 * i + i % 3 + 3 for i in range(500))] * 3


def test_members_can_be_tasks_and_leave_at_different_times(shared_weft_session: Any) -> None:
    weft = shared_weft_session

    @weft.remote(num_cpus=0)
    def work(meeting: train.Meeting, rank: int) -> float:
        with meeting.join(rank) as group:
            total = group.all_reduce(np.full(100_000, rank + 1.0))
        return float(total.sum())

    meeting = train.Meeting(3)
    assert weft.get([work.remote(meeting, rank) for rank in range(3)]) == [600_000.0] * 3


def test_jax_arrays_come_back_as_new_jax_arrays(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> None:
        import jax.numpy as jnp

        array = jnp.full((300, 300), member.rank + 1.0, jnp.float32)
        total = member.all_reduce(array)
        assert isinstance(total, type(array)) and total.shape == (300, 300)
        assert float(total[7, 7]) == 3.0 and float(array[0, 0]) == member.rank + 1.0
        assert member.all_gather(array).shape == (2, 300, 300)

        small = jnp.full(70_000, 1.0 + member.rank / 128, jnp.bfloat16)
        mean = member.all_reduce(small, "mean")
        assert mean.dtype == jnp.bfloat16
        assert float(mean[0]) == float(jnp.asarray(1.0 + 0.5 / 128, jnp.bfloat16))

    members(2).run(work)


def test_torch_tensors_are_written_in_place(members: Callable[..., Any]) -> None:
    pytest.importorskip("torch")

    def work(member: train.Group) -> None:
        import torch

        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            tensor = torch.full((300, 300), member.rank + 1, dtype=dtype)
            assert member.all_reduce(tensor) is tensor
            assert tensor.eq(3).all()
            assert member.all_gather(tensor).dtype == dtype
        weight = torch.nn.Parameter(torch.ones(5))
        member.broadcast(weight, root=1)

    members(2).run(work)
