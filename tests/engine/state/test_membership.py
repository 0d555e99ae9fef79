"""One node's membership: joining, the table, silence and what follows from it."""

from __future__ import annotations

import msgspec
import pytest

from weft.engine.state import membership_instructions as do
from weft.engine.state.hearing import (
    BEAT_S,
    CUT_OFF_S,
    HEAD_GIVEN_UP_S,
    HEAD_SILENCE_S,
    MISSED_S,
    REGAINED_S,
    SEVERED_S,
    SILENCE_S,
    beats_apart,
)
from weft.engine.state.instructions import Ending
from weft.engine.state.joining import ENTRY, JOIN_TRIES, JOIN_WAIT_S
from weft.engine.state.lost_head import KNOCK_S
from weft.engine.state.membership import AGAIN_S, LAST_NUMBER, MembershipState
from weft.engine.wire.link_messages import Fault, HeadAt, JoinCluster, Leaving, Member, Members, PeerHello, Ping
from weft.net.pulse import DEAD_S


def member(number: int = 0, **fields: object) -> Member:
    row = Member(number, f"id{number}", f"host{number}:1", f"@local{number}", {"CPU": 1.0}, {})
    return msgspec.structs.replace(row, **fields)


def head() -> MembershipState:
    made = MembershipState(member(), "")
    made.started()
    return made


def admit(at: MembershipState, link: int, now: float = 0.0) -> list[do.Instruction]:
    at.link_accepted(link, now)
    (keep,) = at.received(link, JoinCluster(member()), now)
    assert isinstance(keep, do.Keep)
    out = at.kept(keep.member.number, now)
    at.check()
    return out


def joiner(you: int, *others: Member) -> tuple[MembershipState, list[do.Instruction]]:
    """A node that the head (link 1) has just admitted."""
    made = MembershipState(member(), "host0:1")
    assert made.started() == [do.Connect(ENTRY, "host0:1")]
    made.link_ready(1, ENTRY, 0.0)
    return made, made.received(1, Members(you, [member(), *others, member(you)]), 0.0)


def test_the_head_numbers_nodes_and_sends_the_others_only_what_changed() -> None:
    state = head()
    admit(state, 1)
    out = admit(state, 2)
    sent = {one.link: one.message for one in out if isinstance(one, do.Send)}
    assert sent[2] == Members(2, [state.members[number] for number in (0, 1, 2)])
    assert sent[1] == Members(1, [state.members[2]])
    assert do.Linked(state.members[2]) in out


def test_a_node_is_refused_when_no_number_is_left() -> None:
    state = head()
    state.members[LAST_NUMBER] = member(LAST_NUMBER, is_alive=False)
    state.link_accepted(1, 0.0)
    (refusal,) = state.received(1, JoinCluster(member()), 0.0)
    assert isinstance(refusal, do.Close) and "no number is left" in refusal.reason


def test_a_node_is_in_once_it_has_a_link_to_each_that_came_before_it() -> None:
    state, out = joiner(3, member(1), member(2, is_alive=False))
    assert do.Connect(1, "host1:1") in out and do.Joined() not in out
    out = state.link_ready(2, 1, 0.0)
    assert out[0] == do.Send(2, PeerHello(3)) and do.Joined() in out
    state.check()


def test_a_node_that_dies_while_another_joins_does_not_keep_it_out() -> None:
    state, _ = joiner(2, member(1))
    assert state.connect_failed(1, "refused", 0.0) == [do.Joined()]
    assert state.beat(AGAIN_S) == [do.Connect(1, "host1:1")]
    state.received(1, Members(2, [member(1, is_alive=False)]), AGAIN_S)
    assert state.beat(2 * AGAIN_S) == []


def test_a_node_that_stands_still_does_not_keep_another_out() -> None:
    state, _ = joiner(2, member(1))
    assert state.beat(JOIN_WAIT_S / 2) == []
    assert state.beat(JOIN_WAIT_S) == [do.Joined()]
    state.check()
    assert do.Linked(member(1)) in state.link_ready(2, 1, 5.0), "it is linked when it answers"
    assert state.beat(5.0) == []


def beats(state: MembershipState, first_s: int, last_s: int) -> list[do.Instruction]:
    return [one for now in range(first_s, last_s + 1) for one in state.beat(float(now))]


def test_a_silent_head_is_doubted_before_others_are_given_up_and_followed_again_when_it_is_heard() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    assert beats(state, 1, int(HEAD_SILENCE_S)) == [] and state.hears_head
    (doubted,) = state.beat(HEAD_SILENCE_S + 1)
    assert isinstance(doubted, do.HeadLost) and not doubted.is_certain
    assert state.head == 0 and state.lost.number == 0 and not state.hears_head
    assert state.beat(HEAD_SILENCE_S + 2) == [], "it is said once"
    assert state.received(1, Ping(1), HEAD_SILENCE_S + 2) == [do.HeadFound(), do.Deliver(1, Ping(1))]
    assert state.hears_head
    again = beats(state, int(HEAD_SILENCE_S) + 3, int(HEAD_SILENCE_S + SILENCE_S) + 3)
    assert any(isinstance(one, do.HeadLost) for one in again)
    assert {one.link for one in again if isinstance(one, do.Close)} == {2}, "the head is borne for longer"
    later = beats(state, int(HEAD_SILENCE_S + SILENCE_S) + 4, int(HEAD_SILENCE_S + HEAD_GIVEN_UP_S) + 3)
    assert 1 in {one.link for one in later if isinstance(one, do.Close)}


def test_a_head_that_has_its_lease_again_gives_the_others_time_to_be_heard() -> None:
    state = head()
    for link in (1, 2):
        admit(state, link)
    is_leased = False
    state.may_decide = lambda now: is_leased
    assert beats(state, 1, 14) == [], "it was cut off itself"
    is_leased = True
    assert beats(state, 15, 14 + int(REGAINED_S)) == []
    state.received(1, Ping(1), 14.0 + REGAINED_S)
    out = beats(state, 15 + int(REGAINED_S), 16 + int(REGAINED_S))
    assert {one.link for one in out if isinstance(one, do.Close)} == {2}, "who is not heard even then is given up"


MANY = 40


def one_of_many(you: int = MANY) -> MembershipState:
    """A node that has a link to each of so many others, under their numbers; the head's is link 1000."""
    made = MembershipState(member(), "host0:1")
    made.started()
    made.link_ready(1000, ENTRY, 0.0)
    made.received(1000, Members(you, [member(number) for number in range(you + 1)]), 0.0)
    for number in range(1, you):
        made.link_ready(number, number, 0.0)
    assert made.joining.is_over
    return made


def test_idle_nodes_among_many_may_be_silent_while_the_head_is_heard() -> None:
    state = one_of_many()
    for now in range(1, 2 * beats_apart(MANY)):
        state.received(1000, Ping(1), float(now))
        assert state.beat(float(now)) == [] and not state.misses_head
        assert len(state.heard(float(now))) == MANY and not state.is_cut_off(float(now))


def test_who_misses_the_head_among_many_is_cut_off_unless_half_of_the_others_answer() -> None:
    for answering, is_cut_off in ((MANY // 2 - 1, True), (MANY // 2, False)):
        state = one_of_many()
        assert beats(state, 1, int(MISSED_S) - 1) == [] and not state.misses_head
        state.beat(MISSED_S)
        assert state.misses_head, "the others are asked"
        for number in range(1, answering + 1):
            state.received(number, Ping(1), MISSED_S + 0.1)
        beats(state, int(MISSED_S) + 1, int(CUT_OFF_S))
        assert not state.is_cut_off(CUT_OFF_S)
        assert state.is_cut_off(CUT_OFF_S + 0.1) == is_cut_off
        state.received(1000, Ping(1), CUT_OFF_S + 0.2)
        assert not state.misses_head and not state.is_cut_off(CUT_OFF_S + 0.2)


def test_a_node_among_many_whose_connection_is_dead_is_given_up_as_soon_as_among_few() -> None:
    assert SEVERED_S == DEAD_S
    state = one_of_many()
    closed_at = 0
    for now in range(1, int(SILENCE_S) + 2):
        state.received(1000, Ping(1), float(now))
        out = state.beat(float(now), severed=[7] if now >= DEAD_S else [])
        closed_at = now if any(isinstance(one, do.Close) and one.link == 7 for one in out) else closed_at
    assert closed_at == int(SILENCE_S) + 1
    assert len(state.heard(float(closed_at))) == MANY - 1


def test_a_head_that_took_over_among_many_counts_silence_from_when_the_one_before_was_missed() -> None:
    state = one_of_many()
    for now in range(1, 21):
        state.received(1000, Ping(1), float(now))
        state.beat(float(now))
    state.link_closed(1000, "it died", 20.0)
    state.took_over([member(number) for number in range(MANY + 1)], 2)
    for now in range(21, 31):
        for number in range(2, MANY):
            state.received(number, Ping(1), float(now))
        assert state.beat(float(now)) == []
    assert [one.link for one in state.beat(31.0) if isinstance(one, do.Close)] == [1]


def test_a_head_that_is_doubted_is_let_go_when_another_takes_over() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    for now in range(1, 9):
        state.received(2, Ping(1), float(now))
        state.beat(float(now))
    reason = "another node has taken over as the cluster's head"
    assert state.head_is(1, 2) == [do.NodeGone(0, reason), do.Close(1, reason)]
    assert (state.head, state.epoch, state.lost.number) == (1, 2, 0)
    assert state.link_closed(1, reason, 9.0) == []
    state.check()


def test_a_head_that_answers_after_it_was_given_up_for_its_silence_has_let_go_of_nobody() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    for now in range(1, int(SILENCE_S) + 2):
        state.received(2, Ping(1), float(now))
        state.beat(float(now))
    closed = state.link_closed(1, "silence", SILENCE_S + 1)
    assert do.Connect(0, "host0:1") in closed
    (close,) = state.link_ready(3, 0, SILENCE_S + 1.1)
    assert isinstance(close, do.Close) and close.link == 3
    assert state.link_closed(3, close.reason, SILENCE_S + 1.1) == []
    assert state.beat(SILENCE_S + 1.1 + AGAIN_S) == [do.Connect(0, "host0:1")], "it may still die"


def test_time_in_which_a_node_itself_stood_still_is_nobodys_silence() -> None:
    state = head()
    admit(state, 1)
    beats(state, 1, 2)
    assert state.beat(2 + 10 * SILENCE_S) == []
    assert state.beat(2 + 10 * SILENCE_S + BEAT_S) == []


def test_a_node_that_hears_nobody_is_cut_off_before_the_others_give_it_up() -> None:
    assert CUT_OFF_S + 2 * BEAT_S < SILENCE_S
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    beats(state, 1, int(HEAD_SILENCE_S))
    assert not state.is_cut_off(HEAD_SILENCE_S)
    state.beat(HEAD_SILENCE_S + 1)
    assert not state.is_cut_off(HEAD_SILENCE_S + 1), "the other one may still be heard"
    assert state.is_cut_off(CUT_OFF_S + 0.1)


def test_a_node_that_lost_the_head_but_hears_another_is_not_cut_off() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    for now in range(1, 9):
        state.received(2, Ping(1), float(now))
        state.beat(float(now))
    state.link_closed(1, "silence", 8.0)
    assert not state.is_cut_off(8.5)


def test_a_node_whose_head_is_certainly_dead_is_not_cut_off() -> None:
    state, _ = joiner(1)
    beats(state, 1, 7)
    state.link_closed(1, "silence", 7.0)
    assert state.is_cut_off(7.0)
    state.connect_failed(0, "Connection refused", 7.1, Fault.REFUSED)
    assert not state.is_cut_off(7.2)


def test_a_stranger_that_leaves_is_not_taken_for_the_head() -> None:
    state, _ = joiner(2, member(1))
    state.link_accepted(7, 0.0)
    assert state.link_closed(7, "bye", 0.0) == []


def test_a_silent_node_is_given_up_and_everybody_told() -> None:
    state = head()
    admit(state, 1)
    admit(state, 2)
    state.received(2, Ping(1), SILENCE_S)
    told, close = state.beat(SILENCE_S + 1)
    assert isinstance(told, do.Send) and isinstance(told.message, Members), "it may live: it is told why it must end"
    assert told.link == 1 and told.message.members[0].death == close.reason
    assert isinstance(close, do.Close) and close.link == 1
    kept, told, gone = state.link_closed(1, close.reason, SILENCE_S + 1)
    assert isinstance(kept, do.Keep) and not kept.member.is_alive
    assert isinstance(told, do.Send) and isinstance(told.message, Members)
    assert told.link == 2 and [row.is_alive for row in told.message.members] == [False]
    assert gone == do.NodeGone(1, close.reason)


def test_the_head_decides_who_is_dead() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    dead = member(1, is_alive=False, death="it broke")
    out = state.received(1, Members(2, [dead]), 1.0)
    assert out == [do.Send(2, Members(1, [dead])), do.Close(2, "it broke")], "that node is told by whoever reaches it"
    assert state.link_closed(2, "it broke", 1.0) == [do.NodeGone(1, "it broke")]
    assert state.beat(1.0 + AGAIN_S) == []
    state.link_accepted(5, 2.0)
    assert state.received(5, PeerHello(1), 2.0)[0] == do.Send(5, Members(1, [dead]))


def test_a_node_that_is_dead_to_the_head_hears_it_from_any_other_and_ends_alone() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    dead = member(2, is_alive=False, death="silence")
    assert state.received(2, Members(2, [dead], epoch=1), 1.0) == [
        do.Lost("the head of the cluster takes this node for dead: silence")
    ]


def test_what_a_head_of_an_earlier_epoch_says_of_a_node_is_not_believed() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    state.link_accepted(5, 0.0)
    state.received(5, PeerHello(3), 0.0)
    state.head_is(1, 2)
    dead = member(2, is_alive=False, death="silence")
    (close,) = state.received(5, Members(2, [dead], 0, epoch=1), 1.0)
    assert isinstance(close, do.Close)


def test_a_lost_link_between_two_living_nodes_is_made_again_by_the_younger() -> None:
    younger, _ = joiner(2, member(1))
    younger.link_ready(2, 1, 0.0)
    assert younger.link_closed(2, "reset", 1.0) == [do.NodeGone(1, "reset")]
    assert younger.beat(1.0 + AGAIN_S) == [do.Connect(1, "host1:1")]
    assert do.Linked(member(1)) in younger.link_ready(3, 1, 4.0)
    older, _ = joiner(1)
    older.link_accepted(2, 0.0)
    older.received(2, PeerHello(2), 0.0)
    older.received(1, Members(1, [member(2)]), 0.0)
    assert older.link_closed(2, "reset", 1.0) == [do.NodeGone(2, "reset")]
    assert older.beat(1.0 + AGAIN_S) == []


def test_a_second_link_takes_the_place_of_one_that_is_broken_at_the_other_end() -> None:
    older, _ = joiner(1)
    for link in (2, 3):
        older.link_accepted(link, 0.0)
    older.received(2, PeerHello(2), 0.0)
    out = older.received(3, PeerHello(2), 1.0)
    assert out == [do.NodeGone(2, "it has made another link"), do.Close(2, "another link took its place"), do.Use(3, 2)]
    assert older.link_closed(2, "another link took its place", 1.0) == []
    older.check()


def test_a_cluster_ends_when_its_head_says_that_the_user_wants_it_and_nobody_else_is_believed() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    assert state.received(2, Leaving("stop", ends_cluster=True), 1.0) == [do.Close(2, "stop")]
    assert state.received(1, Leaving("stop", ends_cluster=True), 1.0) == [
        do.Lost("the cluster ends: stop", Ending.WITH_CLUSTER)
    ]


def test_a_head_that_ends_for_whatever_reason_is_as_good_as_certainly_dead_and_nobody_knocks() -> None:
    state, _ = joiner(1)
    assert state.received(1, Leaving("maintenance"), 1.0) == [do.Close(1, "maintenance")]
    lost = state.link_closed(1, "maintenance", 1.0)
    assert lost == [do.NodeGone(0, "maintenance"), do.HeadLost("maintenance", True)]
    assert state.beat(2.0 + AGAIN_S) == []


@pytest.mark.parametrize(("fault", "is_certain"), [(Fault.REFUSED, True), (Fault.CLOSED, False), (Fault.OTHER, False)])
def test_who_loses_the_head_knocks_at_its_port(fault: Fault, is_certain: bool) -> None:
    state, _ = joiner(1)
    lost = state.link_closed(1, "reset", 1.0)
    assert lost == [do.NodeGone(0, "reset"), do.HeadLost("reset", False), do.Connect(0, "host0:1")]
    words = "Connection refused"  # are for people: another language has others
    assert state.connect_failed(0, words, 1.1, fault) == [do.HeadLost(words, is_certain)]
    assert state.beat(2.0) == ([] if is_certain else [do.Connect(0, "host0:1")]), "until it is clear"
    state.head_is(2, 2)
    assert state.beat(2.0 + AGAIN_S) == []


def test_a_head_that_still_listens_has_let_go_of_the_node() -> None:
    state, _ = joiner(1)
    state.link_closed(1, "reset", 1.0)
    assert isinstance(state.link_ready(2, 0, 1.1)[0], do.Lost)


def test_a_head_that_has_closed_a_link_may_live_until_its_machine_says_otherwise() -> None:
    state, _ = joiner(1)
    state.link_closed(1, "the other node closed the connection", 1.0)
    assert state.lost.may_answer(1.0 + KNOCK_S / 2) and not state.lost.may_answer(1.0 + KNOCK_S)
    state.connect_failed(0, "Connection refused", 1.1, Fault.REFUSED)
    assert not state.lost.may_answer(1.1)
    silent, _ = joiner(1)
    closed = [one for one in silent.beat(HEAD_GIVEN_UP_S + 1) if isinstance(one, do.Close)]
    assert closed and silent.link_closed(closed[0].link, closed[0].reason, HEAD_GIVEN_UP_S + 1)
    assert not silent.lost.may_answer(HEAD_GIVEN_UP_S + 1), "who has said nothing for long will not say more"


def test_a_node_that_the_head_lets_go_is_told_so_before_the_link_is_closed() -> None:
    state, (other, _) = head(), joiner(1)
    admit(state, 1)
    send, close = state.let_go(1, "one of the two had to go")
    assert isinstance(send, do.Send) and close == do.Close(1, "one of the two had to go")
    (lost,) = other.received(1, send.message, 1.0)
    assert lost == do.Lost("the head of the cluster takes this node for dead: one of the two had to go")


def test_a_node_joins_at_whichever_node_it_knows() -> None:
    other, _ = joiner(1)
    other.link_accepted(5, 0.0)
    assert other.received(5, JoinCluster(member()), 0.0) == [do.Send(5, HeadAt("host0:1"))]
    state = MembershipState(member(), "host1:1")
    state.started()
    state.link_ready(1, ENTRY, 0.0)
    assert state.received(1, HeadAt("host0:1"), 0.0) == [do.Close(1, ""), do.Connect(ENTRY, "host0:1")]
    assert state.link_closed(1, "", 0.0) == []


def test_who_takes_over_buries_whom_it_has_no_link_to_and_numbers_on() -> None:
    state, _ = joiner(1, member(2))
    state.link_accepted(3, 0.0)
    state.received(3, PeerHello(2), 0.0)
    state.link_closed(1, "reset", 1.0)
    out = state.took_over([member(0), member(1), member(2), member(7, is_alive=False)], 2)
    kept = [one.member for one in out if isinstance(one, do.Keep)]
    assert [(row.number, row.is_alive) for row in kept] == [(0, False)]
    tables = [one.message for one in out if isinstance(one, do.Send) and isinstance(one.message, Members)]
    assert (tables[-1].head, tables[-1].epoch, len(tables[-1].members)) == (1, 2, 4)
    assert state.is_head
    state.link_accepted(9, 2.0)
    (keep,) = state.received(9, JoinCluster(member()), 2.0)
    assert isinstance(keep, do.Keep) and keep.member.number == 8


def test_who_takes_over_believes_its_links_and_not_a_head_that_lost_all_others_when_it_was_cut_off() -> None:
    state, _ = joiner(1, member(2))
    state.link_accepted(3, 0.0)
    state.received(3, PeerHello(2), 0.0)
    out = state.took_over([member(0), member(1), member(2, is_alive=False, death="it closed")], 2)
    assert do.Keep(member(2)) in out and state.members[2].is_alive
    assert state.kept(2, 1.0) == [] and state.members[2].is_alive
    tables = [one.message for one in out if isinstance(one, do.Send) and isinstance(one.message, Members)]
    assert [row.is_alive for row in tables[-1].members] == [False, True, True]


def test_who_takes_over_learns_from_the_rows_who_has_linked_itself_to_it_before() -> None:
    state, _ = joiner(1)
    state.link_accepted(3, 0.0)
    assert state.received(3, PeerHello(4), 0.0) == [do.Use(3, 4)], "it joined at another head, and is not known here"
    assert do.Linked(member(4)) in state.took_over([member(0), member(1), member(4)], 2)


def test_a_node_that_only_the_head_before_took_for_dead_is_linked_again_by_the_younger() -> None:
    dead = member(1, is_alive=False, death="silence")
    younger, _ = joiner(3, dead, member(2))
    younger.link_ready(2, 2, 0.0)
    younger.head_is(2, 2)
    assert younger.received(2, Members(3, [member(1)], 2, epoch=2), 1.0) == []
    assert younger.beat(1.0) == [do.Connect(1, "host1:1")]
    older, _ = joiner(1, member(2))
    older.received(1, Members(1, [member(3, is_alive=False, death="silence")]), 0.0)
    older.received(1, Members(1, [member(3)]), 1.0)
    assert older.beat(1.0) == []


def test_a_node_that_the_head_takes_for_dead_ends() -> None:
    state, _ = joiner(1)
    out = state.received(1, Members(1, [member(1, is_alive=False, death="silence")]), 1.0)
    assert isinstance(out[0], do.Lost)


def test_a_head_that_closes_without_a_word_is_tried_again_and_one_that_refuses_is_not() -> None:
    state = MembershipState(member(), "host0:1")
    state.started()
    for _ in range(JOIN_TRIES - 1):
        assert state.connect_failed(ENTRY, "it left", 0.0, Fault.CLOSED) == []
        assert state.beat(10.0) == [do.Connect(ENTRY, "host0:1")]
        assert state.beat(10.0) == []
    assert isinstance(state.connect_failed(ENTRY, "it left", 0.0, Fault.CLOSED)[0], do.Lost)
    other = MembershipState(member(), "host0:1")
    assert isinstance(other.connect_failed(ENTRY, "refused: the token is wrong", 0.0)[0], do.Lost)


def test_a_head_says_of_nobody_that_it_is_dead_before_it_has_its_lease_back() -> None:
    state = head()
    admit(state, 1)
    admit(state, 2)
    state.may_decide = lambda now: now > 20.0
    assert state.link_closed(1, "the other node closed", 12.0) == []
    assert beats(state, 1, 20) == [], "node 2 is silent"
    assert state.members[1].is_alive and state.members[2].is_alive
    state.link_accepted(3, 20.0)
    (refusal,) = state.received(3, PeerHello(1), 20.0)
    assert isinstance(refusal, do.Close), "what became of it is decided first"
    out = state.beat(21.0)
    assert do.NodeGone(1, "the other node closed") in out
    assert not state.members[1].is_alive and do.Keep(state.members[1]) in out
    assert do.Close(2, f"nothing was heard from it for {SILENCE_S:g} s") in beats(state, 22, 21 + int(REGAINED_S))


def test_a_head_that_has_been_won_over_is_not_believed_by_who_knows_of_it() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    assert state.won_by(2, "host2:1", 2) == []
    dead = Members(2, [member(1, is_alive=False)])
    assert state.received(1, dead, 1.0) == [] and state.members[1].is_alive


def test_a_winner_that_is_lost_before_it_was_heard_as_head_is_asked_for_at_its_port() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    state.received(1, Leaving("it ends"), 0.0)
    state.link_closed(1, "it ends", 0.0)
    assert state.won_by(1, "host1:1", 2) == [], "it is linked"
    assert do.Connect(1, "host1:1") in state.link_closed(2, "gone", 1.0)
    assert state.connect_failed(1, "no route", 1.0) == []
    gone = do.HeadLost("refused", True, is_winner=True)
    assert state.connect_failed(1, "refused", 3.0, Fault.REFUSED) == [gone]


def test_who_has_no_head_asks_the_winner_until_it_has_one() -> None:
    state, _ = joiner(2, member(1))
    state.link_ready(2, 1, 0.0)
    state.received(2, Leaving("it ends"), 0.0)
    state.link_closed(2, "it ends", 0.0)
    assert state.won_by(3, "host3:1", 2) == [], "it hears its head"
    state.received(1, Leaving("it ends"), 0.0)
    state.link_closed(1, "it ends", 0.0)
    assert state.won_by(3, "host3:1", 2) == [do.Connect(3, "host3:1")]
    assert state.won_by(3, "host3:1", 2) == [], "it is being asked"
    assert state.connect_failed(3, "no route", 0.0) == []
    assert do.Connect(3, "host3:1") in state.beat(AGAIN_S)
    assert do.Send(4, PeerHello(2)) in state.link_ready(4, 3, AGAIN_S)
    (lost,) = state.received(4, Members(2, [member(2, is_alive=False, death="it was lost")], 3, 2), AGAIN_S)
    assert isinstance(lost, do.Lost) and lost.ending is Ending.LEFT_BEHIND
