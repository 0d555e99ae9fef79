"""What passes on from the dead: one node's part in an estate, and its executor."""

from __future__ import annotations

from weft.engine.state import inheritance as inh
from weft.engine.state.events import Process
from weft.engine.state.inheritance import Inheritances, Settlements

FIRST: Process = (1, 1)
SECOND: Process = (2, 1)
FAR: Process = (70, 1)
BOTH = [FIRST, SECOND]
DEAD = (0, 9, 1)
NODE = (3, 0, 0)


def opened(is_shared: bool = True) -> Inheritances:
    state = Inheritances()
    assert state.opened(DEAD, is_shared, BOTH) == [inh.Ask(FIRST, 1, 1), inh.Ask(SECOND, 1, 1)]
    return state


def answer(state: Inheritances, round_: int, first: list[bytes], second: list[bytes]) -> list[inh.Instruction]:
    assert state.named(FIRST, 1, round_, first) == []
    return state.named(SECOND, 1, round_, second)


def test_what_nobody_refers_to_passes_to_nobody_and_all_are_asked_twice() -> None:
    state = opened()
    assert answer(state, 1, [], []) == [inh.Fence(1)]
    assert state.fenced(1, BOTH) == [inh.Ask(FIRST, 1, 2), inh.Ask(SECOND, 1, 2)]
    assert answer(state, 2, [], []) == [inh.Done(1)]


def test_who_names_most_is_the_heir_and_others_are_told_once_it_has_adopted() -> None:
    state = opened()
    assert answer(state, 1, [b"a"], [b"a", b"b"]) == [inh.Claim(1, SECOND, (b"a", b"b"))]
    assert state.claimed(1, SECOND, [b"a", b"b"], ()) == [inh.Adopt(1, SECOND, (b"a", b"b"))]
    assert state.others_own(1, SECOND, {}) == []
    assert state.adopted(FIRST, 1) == []
    assert state.adopted(SECOND, 1) == [inh.Tell(FIRST, b"a", SECOND), inh.Fence(1)]


def test_what_another_node_was_first_to_claim_is_that_heirs() -> None:
    state = opened()
    assert answer(state, 1, [b"a"], [b"a"]) == [inh.Claim(1, FIRST, (b"a",))]
    assert state.claimed(1, FIRST, [], ()) == []
    told = state.others_own(1, FIRST, {b"a": FAR})
    assert told == [inh.Tell(FIRST, b"a", FAR), inh.Tell(SECOND, b"a", FAR), inh.Fence(1)]


def test_what_a_row_needs_and_another_has_is_told_to_its_heir() -> None:
    state = opened()
    answer(state, 1, [b"a"], [])
    assert state.claimed(1, FIRST, [b"a"], [b"lost"]) == [inh.Adopt(1, FIRST, (b"a",)), inh.Tell(FIRST, b"lost", None)]
    assert state.others_own(1, FIRST, {b"needed": FAR}) == [inh.Tell(FIRST, b"needed", FAR)]
    assert state.adopted(FIRST, 1) == [inh.Fence(1)]


def test_what_the_directory_does_not_know_is_claimed_once() -> None:
    state = opened()
    answer(state, 1, [b"a"], [])
    state.claimed(1, FIRST, [], ())
    assert state.others_own(1, FIRST, {}) == [inh.Fence(1)]
    state.fenced(1, BOTH)
    assert answer(state, 2, [b"a"], []) == [inh.Done(1)]


def test_a_ref_that_came_after_the_first_answer_is_named_in_the_next() -> None:
    state = opened()
    answer(state, 1, [b"a"], [])
    state.claimed(1, FIRST, [b"a"], ())
    state.others_own(1, FIRST, {})
    state.adopted(FIRST, 1)
    state.fenced(1, BOTH)
    assert answer(state, 2, [], [b"a"]) == [inh.Tell(SECOND, b"a", FIRST), inh.Fence(1)]
    state.fenced(1, BOTH)
    assert answer(state, 3, [], [b"a"]) == [inh.Done(1)]


def test_what_an_heir_had_not_confirmed_when_it_died_is_claimed_anew() -> None:
    state = opened()
    answer(state, 1, [b"a"], [b"a"])
    state.claimed(1, FIRST, [b"a"], ())
    state.others_own(1, FIRST, {})
    parts, out = state.died(FIRST)
    assert [part.estate for part in parts] == [DEAD] and out == [inh.Fence(1)]
    assert state.fenced(1, [SECOND]) == [inh.Ask(SECOND, 1, 2)]
    assert state.named(SECOND, 1, 2, [b"a"]) == [inh.Claim(1, SECOND, (b"a",))]


def test_an_heir_that_dies_while_it_is_claimed_for_has_heirs_in_turn() -> None:
    state = opened()
    answer(state, 1, [b"a"], [b"a"])
    assert state.died(FIRST) == ([], [])
    assert state.claimed_for_the_dead(1) == [inh.Fence(1)]
    state.fenced(1, [SECOND])
    assert state.named(SECOND, 1, 2, [b"a"]) == [inh.Claim(1, SECOND, (b"a",))]


def test_a_process_that_dies_while_it_is_asked_is_not_waited_for() -> None:
    state = opened()
    state.named(FIRST, 1, 1, [b"a"])
    assert state.died(SECOND) == ([], [inh.Claim(1, FIRST, (b"a",))])


def test_a_ref_that_comes_late_makes_its_holder_the_heir() -> None:
    state = Inheritances()
    assert state.came_late(DEAD, FIRST, b"a") == [inh.Claim(1, FIRST, (b"a",))]
    assert state.of(DEAD) is None
    state.claimed(1, FIRST, [b"a"], ())
    assert state.others_own(1, FIRST, {}) == []
    assert state.adopted(FIRST, 1) == [inh.Done(1)]


# ---- the executor ----


def test_a_dead_process_is_settled_when_all_nodes_have_done_their_part() -> None:
    state = Settlements()
    assert state.process_died(DEAD, [0, 1]) == [inh.Inherit(DEAD, (0, 1))]
    assert state.inherited(1, DEAD) == []
    assert state.inherited(0, DEAD) == [inh.Settle(DEAD)]
    assert not state.is_open(DEAD)


def test_all_nodes_know_of_a_nodes_death_before_anybody_inherits() -> None:
    state = Settlements()
    assert state.node_lost(0, NODE, True, [0, 1]) == [inh.AskLost(NODE, (1,))]
    assert state.inherited(0, NODE) == []
    assert state.node_lost(1, NODE, False, [0, 1]) == [inh.Inherit(NODE, (0, 1))]
    assert state.node_lost(1, NODE, False, [0, 1]) == [inh.Inherit(NODE, (1,))], "it asks anew"
    assert state.inherited(0, NODE) + state.inherited(1, NODE) == [inh.Settle(NODE)]


def test_a_node_of_which_nobody_has_a_row_leaves_nothing() -> None:
    state = Settlements()
    state.node_lost(0, NODE, False, [0, 1])
    assert state.node_lost(1, NODE, False, [0, 1]) == [inh.Settle(NODE)]


def test_a_node_that_dies_is_not_waited_for() -> None:
    state = Settlements()
    state.node_lost(0, NODE, True, [0, 1, 2])
    state.node_lost(1, NODE, True, [0, 1, 2])
    assert state.node_gone(1, [0, 2]) == []
    assert state.node_gone(2, [0]) == [inh.Inherit(NODE, (0,))]
