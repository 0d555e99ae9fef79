"""How many copies there shall be, and who is asked for those that are missing."""

from __future__ import annotations

from weft.engine.state.replicas import AskCopy, Replicas

ENTRY, SIZE = (5, 1), 1000
NODES = [1, 2, 3]


def asked(instructions: list[AskCopy]) -> list[int]:
    assert all((one.entry, one.size) == (ENTRY, SIZE) for one in instructions)
    return sorted(one.node for one in instructions)


def origin(replicas: int, *holders: int) -> Replicas:
    made = Replicas()
    assert asked(made.begun(ENTRY, SIZE, replicas, holders)) == sorted(holders), "they learn how many there shall be"
    for node in holders:
        assert made.told(ENTRY, node, True, False, NODES) == []
    assert not made.is_short()
    return made


def test_a_copy_that_is_lost_is_made_on_another_node() -> None:
    state = origin(3, 1, 2)
    assert asked(state.node_gone(2, [1, 3])) == [3]
    assert state.is_short() and state.looked([1, 3]) == [], "it is on its way"
    assert state.told(ENTRY, 3, True, False, [1, 3]) == []
    assert not state.is_short()


def test_a_node_that_can_not_make_one_is_replaced_and_asked_again_later() -> None:
    state = origin(2, 1)
    (first,) = asked(state.node_gone(1, [2, 3]))
    (second,) = asked(state.told(ENTRY, first, False, False, [2, 3]))
    assert {first, second} == {2, 3}
    assert state.told(ENTRY, second, False, False, [2, 3]) == [] and state.is_short()
    assert len(state.looked([2, 3])) == 1


def test_too_few_nodes_are_waited_for() -> None:
    state = origin(2, 1)
    assert state.node_gone(1, []) == [] and state.is_short()
    assert asked(state.looked([7])) == [7]


def test_who_takes_over_counts_the_copies_that_others_tell_of_and_asks_the_owners_node_first() -> None:
    state = Replicas()
    state.held(ENTRY, SIZE, 3)
    assert state.node_gone(0, NODES) == [], "it is not for this node to decide"
    assert state.told(ENTRY, 2, True, False, NODES) == []
    state.took_over(ENTRY)
    assert asked(state.told(ENTRY, 3, False, True, NODES)) == [3], "the owner is there"
    assert state.told(ENTRY, 3, True, True, NODES) == [] and not state.is_short()


def test_an_owners_node_that_can_not_make_one_is_not_asked_for_ever() -> None:
    state = origin(2, 1)
    assert asked(state.told(ENTRY, 3, False, True, NODES)) == [3], "beside the others"
    assert state.told(ENTRY, 3, False, True, NODES) == []


def test_what_is_freed_is_forgotten() -> None:
    state = origin(2, 1)
    state.freed(ENTRY)
    assert ENTRY not in state and state.node_gone(1, NODES) == [] and state.told(ENTRY, 1, True, False, NODES) == []
