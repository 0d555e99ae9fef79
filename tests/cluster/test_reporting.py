"""Who hears a node's heartbeats, with the daemon and its links played by the test."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from weft.engine.cluster.reporting import LIVELY_BEATS, Reporting
from weft.engine.state.hearing import BEAT_S, HEARD_BEATS, RECENT_S, SELDOM_BEATS, beats_apart
from weft.engine.wire import link_messages as lm

HEAD = 0


class Links:
    """As much of the membership as reports go through."""

    def __init__(self, own: int, count: int, head: int | None) -> None:
        self.links = {number: None for number in range(count) if number != own}
        self.head = head
        self.is_head = head == own
        self.hears_head = head is not None
        self.misses_head = head is None
        self.heard: Counter[int] = Counter()

    def send(self, node: int, message: Any) -> bool:
        self.heard[node] += 1
        return True

    def broadcast(self, message: Any) -> None:
        self.heard.update(self.links.keys())


def reporting_of(members: Links) -> Reporting:
    demands = SimpleNamespace(is_waiting=False)
    state = SimpleNamespace(
        cluster=SimpleNamespace(nodes={}),
        resources=SimpleNamespace(available={}),
        standing=SimpleNamespace(is_draining=False),
        demands=demands,
        grouping=SimpleNamespace(is_waiting=False),
    )
    loop = SimpleNamespace(call_later=lambda delay_s, call: None)
    asking = SimpleNamespace(queued=lambda: 0, asked={})
    parts: list[Any] = [loop, state, lambda event: None, members, asking, lambda is_leased: None]
    return Reporting(*parts, lambda: (members.is_head, True))


def beats(own: int, count: int, head: int | None, times: int, is_lively: bool = False) -> Counter[int]:
    """Who hears these beats, after one that tells all what they do not know yet."""
    members = Links(own, count, head)
    reporting = reporting_of(members)
    reporting.beat()
    members.heard.clear()
    for _ in range(times):
        if is_lively:
            reporting.changed()
        reporting.beat()
    return members.heard


@pytest.mark.parametrize("count", [2, 5, 9, 10, 20, 40, 200])
def test_the_head_hears_each_beat_and_every_other_node_has_its_turn(count: int) -> None:
    times = beats_apart(count - 1)
    heard = beats(own=1, count=count, head=HEAD, times=times)
    assert heard[HEAD] == times
    assert all(heard[number] >= 1 for number in range(count) if number != 1)


@pytest.mark.parametrize("count", [2, 9, 10, 40, 200])
def test_every_node_hears_one_beat_in_few_of_a_node_on_which_something_happens(count: int) -> None:
    heard = beats(own=1, count=count, head=HEAD, times=SELDOM_BEATS, is_lively=True)
    assert all(heard[number] >= 1 for number in range(count) if number != 1)
    assert SELDOM_BEATS * BEAT_S < RECENT_S


def test_as_many_nodes_hear_a_beat_of_an_idle_one_however_many_there_are() -> None:
    beats_each = 120
    for count in (10, 40, 400):
        total = beats(own=1, count=count, head=HEAD, times=beats_each).total()
        assert total <= (HEARD_BEATS + 1) * beats_each + count


def test_all_hear_what_came_of_the_last_event() -> None:
    members = Links(1, 40, HEAD)
    reporting = reporting_of(members)
    reporting.beat()
    reporting.changed()
    members.heard.clear()
    for _ in range(LIVELY_BEATS):
        reporting.beat()
    assert set(members.heard) == set(members.links)


@pytest.mark.parametrize("head", [1, None])
def test_all_hear_each_beat_of_the_head_and_of_a_node_that_has_lost_it(head: int | None) -> None:
    assert set(beats(own=1, count=40, head=head, times=2).values()) == {2}


@pytest.mark.parametrize(("misses_head", "answers"), [(False, 1), (True, 0)])
def test_who_misses_the_head_is_answered_by_those_that_do_not(misses_head: bool, answers: int) -> None:
    members = Links(1, 40, HEAD)
    members.misses_head = misses_head
    link: Any = SimpleNamespace(peer=7)
    reporting_of(members).came(link, lm.Report({}, 0, asks=True))
    assert members.heard == Counter({7: answers} if answers else {})
