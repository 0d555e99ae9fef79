"""Collective operations by PyTorch's process groups: gloo here, and NCCL in `tests/devices/cuda_suite.py`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from group_members import Members, error_of

import weft
from weft import train

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module")
def group(shared_weft_session: Any) -> Iterator[Members]:
    made = Members(3, None, {"backend": "gloo"})
    yield made
    made.end()


def term(rank: int, shape: Any, dtype: Any) -> Any:
    made = torch.randint(1, 5, tuple(shape), generator=torch.Generator().manual_seed(rank))
    return (made > 2) if dtype == torch.bool else made.to(dtype)


@pytest.mark.parametrize("name", "float32 float64 float16 bfloat16 int8 uint8 int32 int64 bool".split())
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_reductions_give_what_the_host_gives(group: Members, name: str, op: str) -> None:
    dtype = getattr(torch, name)

    def work(member: train.Group) -> tuple[Any, Any, Any]:
        own, whole = term(member.rank, (1000,), dtype), term(member.rank, (6, 10), dtype)
        assert member.all_reduce(own, op) is own
        return own, member.reduce_scatter(whole, op), member.reduce(term(member.rank, (5,), dtype), 1, op)

    with np.errstate(over="ignore"):
        terms = [term(rank, (1000,), dtype).double().numpy() for rank in range(3)]
        reduce = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op].reduce
        expected = torch.tensor(reduce(terms)).to(dtype)
        whole = torch.tensor(reduce([term(rank, (6, 10), dtype).double().numpy() for rank in range(3)])).to(dtype)
        small = torch.tensor(reduce([term(rank, (5,), dtype).double().numpy() for rank in range(3)])).to(dtype)
    for rank, (reduced, part, at_root) in enumerate(group.run(work)):
        assert reduced.dtype == dtype
        assert torch.equal(reduced, expected)
        assert torch.equal(part, whole[2 * rank : 2 * rank + 2])
        assert torch.equal(at_root, small if rank == 1 else term(rank, (5,), dtype))


def test_a_mean_is_the_mean_and_of_floating_point_alone(group: Members) -> None:
    assert [
        float(one[0]) for one in group.run(lambda member: member.all_reduce(torch.ones(3) * member.rank, "mean"))
    ] == [1.0] * 3
    for error in group.errors(lambda member: member.all_reduce(torch.ones(3, dtype=torch.int64), "mean")):
        assert isinstance(error, TypeError | train.MismatchError)


def test_what_is_moved_comes_to_where_it_should(group: Members) -> None:
    def work(member: train.Group) -> tuple[Any, ...]:
        mine, rows = torch.arange(4) + 10 * member.rank, torch.arange(6).reshape(3, 2) + 10 * member.rank
        source = rows if member.rank == 1 else None
        out = torch.empty(3, 4, dtype=torch.int64)
        assert member.all_gather(mine, out=out) is out
        return (
            out,
            member.gather(mine, 1),
            member.scatter(torch.zeros(2, dtype=torch.int64), source, 1),
            member.broadcast(mine.clone(), 2),
            member.all_to_all(rows),
        )

    for rank, (all_gathered, gathered, scattered, broadcast, exchanged) in enumerate(group.run(work)):
        assert all_gathered.tolist() == [[10 * one + i for i in range(4)] for one in range(3)]
        assert (gathered is None) == (rank != 1)
        assert gathered is None or gathered.tolist() == all_gathered.tolist()
        assert scattered.tolist() == [10 + 2 * rank, 11 + 2 * rank]
        assert broadcast.tolist() == [20, 21, 22, 23]
        assert exchanged.tolist() == [[2 * rank + 10 * one, 2 * rank + 1 + 10 * one] for one in range(3)]


def test_types_that_cannot_be_reduced_are_moved(group: Members) -> None:
    for name in ("int16", "uint16", "uint32", "uint64"):
        dtype = getattr(torch, name)
        found = group.run(lambda member, dtype=dtype: member.broadcast(torch.tensor([7 + member.rank], dtype=dtype), 2))
        assert [int(one[0]) for one in found] == [9] * 3
        for error in group.errors(lambda member, dtype=dtype: member.all_reduce(torch.ones(2, dtype=dtype))):
            assert isinstance(error, TypeError | train.MismatchError)


def test_messages_go_from_one_to_another_and_arrays_of_the_host_as_before(group: Members) -> None:
    def work(member: train.Group) -> Any:
        value = torch.arange(100_000) * (member.rank + 1)
        if member.rank == 0:
            member.send(value, 2)
        elif member.rank == 2:
            member.recv(value, 0)
        return value[-1].item(), member.all_reduce(np.ones(3))[0]

    assert group.run(work) == [(99_999, 3.0), (2 * 99_999, 3.0), (99_999, 3.0)]


def test_what_differs_or_is_bad_on_one_raises_on_all_and_the_group_goes_on(group: Members) -> None:
    errors = group.errors(lambda member: member.all_reduce(torch.ones(4 if member.rank == 2 else 3)))
    for rank, error in enumerate(errors):
        assert isinstance(error, train.MismatchError)
        assert str(error) == (
            f"all_reduce on rank {rank} of 3: rank 0 asked for all_reduce of float32 (3,) by sum on the device, but "
            "rank 2 for all_reduce of float32 (4,) by sum on the device"
        )
    errors = group.errors(lambda member: member.all_reduce(torch.ones(3, 3).t() if member.rank == 1 else torch.ones(3)))
    assert isinstance(errors[1], ValueError)
    assert "rank 1 for nothing, since its own argument was bad" in str(errors[0])
    errors = group.errors(lambda member: member.all_gather(torch.ones(3), out=np.ones((3, 3), np.float32)))
    assert all("must lie where the other array lies" in str(error) or "nothing" in str(error) for error in errors)
    assert [float(one[0]) for one in group.run(lambda member: member.all_reduce(torch.ones(3)))] == [3.0] * 3


OPERATIONS: dict[str, Callable[[train.Group], Any]] = {
    "all_reduce": lambda member: member.all_reduce(torch.ones(5_000_000)),
    "broadcast": lambda member: member.broadcast(torch.ones(10), root=1),
    "recv": lambda member: member.recv(torch.ones(10), 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_killed_member_raises_on_all_others(members: Callable[..., Any], name: str) -> None:
    group = members(3, backend="gloo")
    pid = group.run(lambda member: os.getpid())[2]
    waiting = [actor.run.remote(OPERATIONS[name]) for actor in group.actors[:2]]
    os.kill(pid, signal.SIGKILL)
    for ref in waiting:
        error = error_of(ref)
        assert isinstance(error, train.MemberLostError)
        assert (error.rank, "rank 2 died" in str(error)) == (2, True)


def test_who_dies_while_the_device_works_ends_the_work_of_all(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> None:
        tensor = torch.ones(2_000_000)
        while True:
            member.all_reduce(tensor, "max")

    def dies(member: train.Group) -> None:
        begin = member._exchange.begin  # type: ignore[union-attr]

        def begin_and_die(*args: Any) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)
            return begin(*args)

        member._exchange.begin = begin_and_die  # type: ignore[union-attr,method-assign]
        work(member)

    group = members(3, backend="gloo")
    running = [actor.run.remote(one) for actor, one in zip(group.actors, [work, dies, work], strict=True)]
    for rank in (0, 2):
        error = error_of(running[rank])
        assert isinstance(error, train.MemberLostError)
        assert error.rank == 1


def test_a_member_that_fails_while_the_device_works_is_named(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> None:
        if member.rank == 1:
            member._exchange.begin = lambda *_: {}["no memory left"]  # type: ignore[union-attr,method-assign]
        member.all_reduce(torch.ones(10))

    errors = members(2, backend="gloo").errors(work)
    assert isinstance(errors[1], KeyError)
    assert isinstance(errors[0], train.MemberLostError)
    assert "rank 1 left" in str(errors[0])


def test_what_a_backend_lacks_is_told_by_who_lacks_it(shared_weft_session: Any) -> None:
    with pytest.raises(ValueError, match="backend must be 'nccl' or 'gloo', but got 'mpi'"):
        train.Meeting(2, backend="mpi")
    if torch.cuda.is_available():
        pytest.skip("here is a GPU")
    with pytest.raises(
        RuntimeError, match=r'backend "nccl" on rank 0 on .*: (this PyTorch is built without NCCL|.*no GPU)'
    ):
        train.Meeting(1, backend="nccl").join(0)


def test_members_on_two_nodes_reduce_by_gloo(shared_weft_session: Any) -> None:
    @weft.remote(num_cpus=0)
    def member(meeting: train.Meeting, rank: int) -> list[float]:
        meeting._block.__dict__["node_id"] = "elsewhere"  # so that they meet by connections
        with meeting.join(rank) as group:
            return group.all_reduce(torch.ones(3) * (rank + 1)).tolist()  # type: ignore[no-any-return]

    meeting = train.Meeting(2, backend="gloo", across_nodes=True)
    assert weft.get([member.remote(meeting, rank) for rank in range(2)]) == [[3.0] * 3] * 2
