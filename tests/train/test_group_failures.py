"""What goes wrong on one member raises on all of them, says who and what, and never hangs."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from group_members import error_of

import weft
from weft import train


def test_a_shape_that_differs_raises_on_every_member_and_the_group_goes_on(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> None:
        member.all_reduce(np.zeros((4, 3) if member.rank == 2 else (3, 4), np.float32))

    group = members(3)
    for rank, error in enumerate(group.errors(work)):
        assert isinstance(error, train.MismatchError)
        assert (error.rank, error.operation) == (2, "all_reduce")
        assert str(error) == (
            f"all_reduce on rank {rank} of 3: rank 0 asked for all_reduce of float32 (3, 4) by sum, "
            "but rank 2 for all_reduce of float32 (4, 3) by sum"
        )
    assert [array[0] for array in group.run(lambda member: member.all_reduce(np.ones(1)))] == [3.0] * 3


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda member: member.all_reduce(np.zeros(5, np.int32)), "all_reduce of int32 (5,) by sum"),
        (lambda member: member.all_reduce(np.zeros(5), "max"), "all_reduce of float64 (5,) by max"),
        (lambda member: member.broadcast(np.zeros(5)), "broadcast of float64 (5,) with root 0"),
        (lambda member: member.barrier(), "barrier"),
        (lambda member: member.all_reduce(np.zeros(200_000)), "all_reduce of float64 (200000,) by sum"),
    ],
    ids=["type", "reduction", "operation", "barrier", "length"],
)
def test_any_other_difference_is_named_too(members: Callable[..., Any], other: Any, words: str) -> None:
    def work(member: train.Group) -> None:
        other(member) if member.rank == 1 else member.all_reduce(np.zeros(5))

    for error in members(2).errors(work):
        assert isinstance(error, train.MismatchError)
        assert f"rank 0 asked for all_reduce of float64 (5,) by sum, but rank 1 for {words}" in str(error)


@pytest.mark.parametrize(
    "bad",
    [
        lambda member: member.all_reduce([1, 2, 3]),
        lambda member: member.all_reduce(np.zeros(5), "median"),
        lambda member: member.all_reduce(np.zeros((5, 5)).T),
        lambda member: member.all_reduce(np.zeros((1,) * 9)),
        lambda member: member.broadcast(np.zeros(5), root=7),
    ],
    ids=["kind", "reduction", "strides", "dimensions", "root"],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_bad_argument_on_one_member_ends_the_operation_on_all(
    members: Callable[..., Any], bad: Any, rank: int
) -> None:
    def work(member: train.Group) -> None:
        bad(member) if member.rank == rank else member.all_reduce(np.zeros(5))

    group = members(3)
    for number, error in enumerate(group.errors(work)):
        assert isinstance(error, train.MismatchError) == (number != rank)
        if number != rank:
            assert (error.rank, error.operation) == (rank, "all_reduce")  # type: ignore[attr-defined]
            assert "nothing, since its own argument was bad" in str(error)
        else:
            assert isinstance(error, TypeError | ValueError)
    assert [array[0] for array in group.run(lambda member: member.all_reduce(np.ones(1)))] == [3.0] * 3


@pytest.mark.parametrize("sender_is_bad", [True, False])
def test_a_bad_message_ends_both_sides(members: Callable[..., Any], sender_is_bad: bool) -> None:
    def work(member: train.Group) -> None:
        if member.rank == 0:
            member.send("text" if sender_is_bad else np.zeros(3), 1)
        else:
            member.recv(np.zeros(3) if sender_is_bad else "text", 0)

    errors = members(2).errors(work)
    bad = 0 if sender_is_bad else 1
    assert isinstance(errors[bad], TypeError)
    assert isinstance(errors[1 - bad], train.MismatchError)
    assert errors[1 - bad].rank == bad  # type: ignore[attr-defined]


def test_a_message_that_does_not_fit_raises_on_both_sides(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> None:
        if member.rank == 0:
            member.send(np.zeros(100_000), 1)
        else:
            member.recv(np.zeros(3), 0)

    group = members(2)
    for error in group.errors(work):
        assert isinstance(error, train.MismatchError)
        assert "rank 0 asked for send of float64 (100000,), but rank 1 for send of float64 (3,)" in str(error)

    def again(member: train.Group) -> Any:
        array = np.arange(3.0) * (member.rank == 0)
        return member.send(array, 1) if member.rank == 0 else member.recv(array, 0)

    np.testing.assert_array_equal(group.run(again)[1], np.arange(3.0))


@pytest.mark.parametrize(
    "operation",
    [
        lambda member: member.all_reduce(np.zeros(10)),
        lambda member: member.all_reduce(np.zeros(10_000_000)),
        lambda member: member.broadcast(np.zeros(10_000_000), root=1),
        lambda member: member.barrier(),
        lambda member: member.recv(np.zeros(10), 2),
        lambda member: member.send(np.zeros(10_000_000), 2),
    ],
    ids=["small", "large", "broadcast", "barrier", "recv", "send"],
)
def test_a_killed_member_raises_on_all_others(members: Callable[..., Any], operation: Any) -> None:
    group = members(3)
    pid = group.run(lambda member: os.getpid())[2]
    waiting = [actor.run.remote(operation) for actor in group.actors[:2]]
    os.kill(pid, signal.SIGKILL)
    for rank, ref in enumerate(waiting):
        error = error_of(ref)
        assert isinstance(error, train.MemberLostError)
        assert error.rank == 2
        assert f"on rank {rank} of 3: rank 2 died" in str(error)
    for actor in group.actors[:2]:
        assert isinstance(error_of(actor.run.remote(operation)), train.MemberLostError)


def test_members_killed_at_any_moment_of_an_operation_end_it_for_all(members: Callable[..., Any]) -> None:
    def work(member: train.Group) -> None:
        array = np.ones(100_000, np.float32)
        while True:
            member.all_reduce(array, "max")

    for _ in range(5):
        group = members(3, 64 << 10)
        pid = group.run(lambda member: os.getpid())[1]
        running = group.start(work)
        ready, _ = weft.wait(running, timeout=0.05)
        assert not ready
        os.kill(pid, signal.SIGKILL)
        for rank in (0, 2):
            error = error_of(running[rank])
            assert isinstance(error, train.MemberLostError)
            assert error.rank == 1


def test_a_member_that_leaves_is_named_to_those_that_wait_for_it(members: Callable[..., Any]) -> None:
    group = members(2)
    waiting = group.actors[0].run.remote(lambda member: member.barrier())
    weft.get(group.actors[1].leave.remote())
    error = error_of(waiting)
    assert isinstance(error, train.MemberLostError)
    assert "barrier on rank 0 of 2: rank 1 left" in str(error)


def test_a_task_that_raises_takes_its_member_with_it(shared_weft_session: Any) -> None:
    @weft.remote(num_cpus=0)
    def work(meeting: train.Meeting, rank: int) -> None:
        group = meeting.join(rank)
        if rank == 1:
            raise KeyError("a bug")
        group.barrier()

    meeting = train.Meeting(2)
    first, second = (work.remote(meeting, rank) for rank in range(2))
    assert isinstance(error_of(second), KeyError)
    assert isinstance(error_of(first), train.MemberLostError)


def test_a_member_that_never_comes_is_named_after_the_timeout(members: Callable[..., Any]) -> None:
    group = members(2, timeout_s=0.1)
    error = error_of(group.actors[0].run.remote(lambda member: member.barrier()))
    assert isinstance(error, train.GroupTimeoutError)
    assert "rank 1 did not come in time" in str(error)
    late = error_of(group.actors[1].run.remote(lambda member: member.barrier()))
    assert isinstance(late, train.MemberLostError)
    assert "rank 0 timed out" in str(late)


def test_joining_ends_when_somebody_never_joins(shared_weft_session: Any) -> None:
    with pytest.raises(train.GroupTimeoutError, match="rank 1 did not come in time"):
        train.Meeting(2).join(0, join_timeout_s=0.05)


def test_a_rank_is_taken_once(shared_weft_session: Any) -> None:
    meeting = train.Meeting(1)
    group = meeting.join(0)
    with pytest.raises(train.GroupError, match="rank 0 has already joined"):
        meeting.join(0)
    np.testing.assert_array_equal(group.all_reduce(np.ones(3)), np.ones(3))
    group.close()
    with pytest.raises(train.MemberLostError, match="rank 0 left"):
        group.barrier()


def test_arguments_that_cannot_work_are_refused_before_anything_is_sent(shared_weft_session: Any) -> None:
    with train.Meeting(1).join(0) as group:
        with pytest.raises(TypeError, match="must be of NumPy, PyTorch or JAX, but got list"):
            group.all_reduce([1.0])
        with pytest.raises(TypeError, match=r"elements must be one of .* but got complex128"):
            group.all_reduce(np.zeros(3, complex))
        with pytest.raises(ValueError, match="must be C-contiguous"):
            group.all_reduce(np.zeros((3, 3))[:, 1])
        with pytest.raises(ValueError, match="must be writable"):
            group.all_reduce(np.broadcast_to(np.zeros(1), 1))
        with pytest.raises(ValueError, match="op must be one of sum, prod, min, max, mean, but got 'average'"):
            group.all_reduce(np.zeros(3), "average")
        with pytest.raises(TypeError, match="the mean is for floating point, but got int64"):
            group.all_reduce(np.zeros(3, np.int64), "mean")
        with pytest.raises(ValueError, match="root must be from 0 to 0, but got 3"):
            group.broadcast(np.zeros(3), root=3)
        with pytest.raises(ValueError, match="out must be float64"):
            group.all_gather(np.zeros(3), out=np.zeros((1, 4)))
        with pytest.raises(ValueError, match="the other rank"):
            group.send(np.zeros(3), 0)
    with pytest.raises(ValueError, match="size must be from 1 to 256, but got 0"):
        train.Meeting(0)
    with pytest.raises(ValueError, match="rank must be from 0 to 1, but got 2"):
        train.Meeting(2).join(2)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(train.MismatchError("why", 3, "all_reduce")))
    assert isinstance(error, train.MismatchError)
    assert (str(error), error.rank, error.operation) == ("why", 3, "all_reduce")
