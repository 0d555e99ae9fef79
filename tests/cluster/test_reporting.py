"""Who hears a node's heartbeats, with the daemon and its links played by the test."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from weft.engine.cluster.reporting import SELDOM_BEATS, Reporting
from weft.engine.state.membership import BEAT_S, RECENT_S

HEAD = 0


class Links:
    """As much of the membership as reports go through."""

    def __init__(self, own: int, count: int, head: int | None) -> None:
        self.links = {number: None for number in range(count) if number != own}
        self.head = head
        self.is_head = head == own
        self.hears_head = head is not None
        self.heard: Counter[int] = Counter()

    def send(self, node: int, message: Any) -> bool:
        self.heard[node] += 1
        return True

    def broadcast(self, message: Any) -> None:
        self.heard.update(self.links.keys())


def beats(own: int, count: int, head: int | None, times: int) -> Counter[int]:
    members = Links(own, count, head)
    state = SimpleNamespace(cluster=object(), resources=SimpleNamespace(available={}), is_draining=False)
    daemon: Any = SimpleNamespace(
        renew_lease=lambda is_leased: None, state=state, loop=SimpleNamespace(call_later=lambda delay_s, call: None)
    )
    asking = SimpleNamespace(queued=lambda: 0)
    shell: Any = SimpleNamespace(
        members=members, asking=asking, heading=SimpleNamespace(has_store=True, is_head=head == own)
    )
    reporting = Reporting(daemon, shell)
    for _ in range(times):
        reporting.beat()
    return members.heard


@pytest.mark.parametrize("count", [2, 5, 9, 10, 20, 40, 200])
def test_the_head_hears_each_beat_and_every_other_node_often_enough(count: int) -> None:
    heard = beats(own=1, count=count, head=HEAD, times=SELDOM_BEATS)
    assert heard[HEAD] == SELDOM_BEATS
    assert all(heard[number] >= 1 for number in range(count) if number != 1)
    assert SELDOM_BEATS * BEAT_S < RECENT_S


def test_the_more_nodes_there_are_the_fewer_hear_a_beat() -> None:
    assert beats(own=1, count=40, head=HEAD, times=SELDOM_BEATS).total() <= 39 + SELDOM_BEATS


@pytest.mark.parametrize("head", [1, None])
def test_all_hear_each_beat_of_the_head_and_of_a_node_that_has_lost_it(head: int | None) -> None:
    assert set(beats(own=1, count=40, head=head, times=2).values()) == {2}
