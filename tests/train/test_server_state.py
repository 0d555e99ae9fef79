"""Which gradients make a step, and who waits for whom."""

from __future__ import annotations

from weft.train.parameter_server import divide
from weft.train.server_state import ServerState


def joined(workers: int, is_sync: bool = True, staleness: int | None = None) -> ServerState:
    state = ServerState(workers, is_sync, staleness)
    for rank in range(workers):
        state.joined(rank, f"first {rank}")
    return state


def test_a_step_takes_one_gradient_of_every_rank_in_the_order_of_the_ranks() -> None:
    state = joined(3)
    for rank in (2, 0):
        state.pushed(rank, f"g{rank}")
        assert state.take_step() is None
        assert not state.may_go_on(rank)
    assert state.held_up_by(0) == [1]
    state.pushed(1, "g1")
    assert state.take_step() == ["g0", "g1", "g2"]
    assert state.version == 1
    assert all(state.may_go_on(rank) for rank in range(3))


def test_a_rank_that_never_joined_is_awaited() -> None:
    state = ServerState(2, True)
    state.joined(0, "a")
    state.pushed(0, "g0")
    assert state.take_step() is None
    assert state.held_up_by(0) == [1]


def test_one_that_leaves_holds_nobody_up_and_what_it_pushed_counts() -> None:
    state = joined(3)
    state.pushed(0, "g0")
    state.left(0, "first 0")
    state.pushed(1, "g1")
    assert state.take_step() is None
    state.left(2, "first 2")
    assert state.take_step() == ["g0", "g1"]


def test_one_that_comes_back_is_awaited_again_and_its_old_self_cannot_leave_for_it() -> None:
    state = joined(2)
    state.joined(1, "second 1")
    state.left(1, "first 1")
    state.pushed(0, "g0")
    assert state.take_step() is None
    assert not state.is_current(1, "first 1")
    assert state.is_current(1, "second 1")


def test_asynchronous_gradients_are_steps_in_the_order_of_arrival() -> None:
    state = joined(2, is_sync=False)
    for gradient in ("a", "b", "c"):
        state.pushed(1, gradient)
    assert [state.take_step() for _ in range(4)] == [["a"], ["b"], ["c"], None]
    assert state.may_go_on(1)


def test_staleness_bounds_how_far_one_is_ahead_of_the_slowest() -> None:
    state = joined(3, is_sync=False, staleness=2)
    for _ in range(3):
        state.pushed(0, "g")
    assert not state.may_go_on(0)
    assert state.held_up_by(0) == [1, 2]
    state.pushed(1, "g")
    assert state.held_up_by(0) == [2]
    state.left(2, "first 2")
    assert state.may_go_on(0)


def test_one_that_comes_back_late_starts_level_with_the_slowest() -> None:
    state = joined(2, is_sync=False, staleness=1)
    state.left(1, "first 1")
    for _ in range(50):
        state.pushed(0, "g")
    state.joined(1, "second 1")
    assert state.may_go_on(0)
    for _ in range(2):
        state.pushed(1, "g")
    assert state.held_up_by(1) == [0]


def test_parameters_are_divided_by_size() -> None:
    assert divide({"a": 10, "b": 6, "c": 5, "d": 1}, 2) == [["a", "d"], ["b", "c"]]
