"""Who acts as head: leases and epochs over a store that only a majority reaches, in virtual time, from seeds."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from weft.engine.state import headship as do
from weft.engine.state.headship import (
    BEAT_S,
    CALM_S,
    DRIFT,
    FRESH_S,
    HEADLESS_S,
    HOPELESS_S,
    LEASE_S,
    WINNER_S,
    Headship,
    Role,
)
from weft.engine.state.hearing import CUT_OFF_S, SILENCE_S


class World:
    """Candidates, links that break, and one linearizable store that a node reaches unless it is cut off."""

    def __init__(self, seed: int, nodes: int = 4) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.claims: dict[int, int] = {}
        self.nodes = [Node(self, number) for number in range(nodes)]
        self.servers = set(range(nodes))
        """The nodes whose majority has the store."""
        self.acted: list[int] = []
        self.ignores_leases = False

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._order), call))

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            self.now, _, call = heapq.heappop(self._events)
            call()
            acting = [node.number for node in self.nodes if node.is_acting]
            assert len(acting) <= 1, f"HED-2: {acting} act at {self.now:.3f} s"

    def acting(self) -> list[int]:
        return [node.number for node in self.nodes if node.is_acting]


class Node:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.rate = world.rng.uniform(0.95, 1.05)
        self.state = Headship()
        self.state.can_claim = True
        self.is_up = True
        self.is_paused = False
        self.side = 0
        self.hears = 0 if number else None
        self._held: list[Callable[[], None]] = []
        self._heard_at = 0.0
        world.later(0.0, self._start)

    @property
    def clock(self) -> float:
        return self.world.now * self.rate

    @property
    def is_acting(self) -> bool:
        return self.is_up and not self.is_paused and self.state.may_act(self.clock)

    def _start(self) -> None:
        if self.number == 0:
            self.state.founded()
            self.carry(self.state.store_begun(self.clock))
        self._beat()

    def when_running(self, call: Callable[[], None]) -> None:
        if self.is_paused:
            self._held.append(call)
        elif self.is_up:
            call()

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        for call in held:
            self.when_running(call)

    def reaches(self, other: Node) -> bool:
        return other.is_up and other.side == self.side

    def _beat(self) -> None:
        others = [node for node in self.world.nodes if node is not self and self.reaches(node) and not node.is_paused]
        others_hear = any(node.state.role in (Role.FOLLOWING, Role.WON, Role.ACTING) for node in others)
        turn = sum(node.number < self.number for node in others)
        winner = self.world.nodes[self.world.claims.get(self.state.epoch, self.number)]
        if not winner.is_up and winner.side == self.side:
            self.state.winner_lost(self.clock)
        if self.hears is not None and not self.reaches(head := self.world.nodes[self.hears]):
            self.lose(is_certain=not head.is_up)
        is_backed = bool(others) and not others_hear and 2 * len(others) >= len(self.world.nodes) - 2
        can_claim = any(node.state.can_claim for node in others)
        self.carry(self.state.beat(others_hear, turn, self.clock, self._is_cut_off(), is_backed, can_claim))
        if self.state.role is not Role.OVER:
            self.world.later(BEAT_S / self.rate, lambda: self.when_running(self._beat))

    def _is_cut_off(self) -> bool:
        others = [node for node in self.world.nodes if node is not self and node.is_up]
        heard = sum(self.reaches(node) for node in others)
        if len(others) - heard <= heard:
            self._heard_at = self.world.now
        return self.world.now - self._heard_at > CUT_OFF_S

    def lose(self, is_certain: bool) -> None:
        self.hears = None
        self.state.head_lost(is_certain, self.clock)

    def carry(self, instructions: list[do.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, do.Claim | do.ReadClaim):
                self.world.later(self.world.rng.expovariate(20), lambda one=one: self._at_store(one))  # type: ignore[misc]
            elif isinstance(one, do.Act):
                self.world.acted.append(one.epoch)
                for node in self.world.nodes:
                    if node is not self and self.reaches(node) and node.state.heard(one.epoch):
                        node.hears = self.number
            elif isinstance(one, do.End):
                self.is_up = False

    def _at_store(self, one: do.Claim | do.ReadClaim) -> None:
        servers = self.world.servers
        reached = sum(node.is_up and node.side == self.side for node in self.world.nodes if node.number in servers)
        if 2 * reached <= len(servers) or not self.is_up:
            self.world.later(1.0, lambda: self._answer(lambda: self.state.store_failed(self.clock)))
            return
        if isinstance(one, do.Claim):
            winner = self.world.claims.setdefault(one.epoch, self.number)
            self._answer(lambda: self.state.claimed(one.epoch, winner == self.number, one.asked_at, self.clock))
        else:
            is_there = one.epoch in self.world.claims
            self._answer(lambda: self.state.claim_read(one.epoch, is_there, one.asked_at, self.clock))

    def _answer(self, decide: Callable[[], list[do.Instruction]]) -> None:
        delay_s = self.world.rng.expovariate(20)
        self.world.later(delay_s, lambda: self.when_running(lambda: self.carry(decide())))


def test_a_head_whose_death_is_certain_is_followed_at_once_by_one_other() -> None:
    world = World(1)
    world.run(3.0)
    assert world.acting() == [0]
    world.nodes[0].is_up = False
    world.run(4.5)
    assert len(world.acting()) == 1 and world.acted == [2]
    followers = [node for node in world.nodes if node.is_up and not node.is_acting]
    assert {node.hears for node in followers} == set(world.acting())


def test_a_head_that_is_cut_off_rests_before_the_majority_has_another() -> None:
    world = World(2, nodes=5)
    world.run(3.0)
    world.nodes[0].side = world.nodes[1].side = 1
    world.run(3.0 + 2 * LEASE_S + 10)
    assert world.acting() and world.acting()[0] in (2, 3, 4)
    world.run(world.now + 2 * HEADLESS_S + 2 * LEASE_S)
    assert [node.state.role for node in world.nodes[:2]] == [Role.OVER, Role.OVER]


def test_who_is_cut_off_from_most_nodes_ends_soon() -> None:
    world = World(5, nodes=5)
    world.run(3.0)
    world.nodes[4].side = 1
    world.run(3.5 + CUT_OFF_S)
    assert world.nodes[4].state.role is Role.OVER and world.acting() == [0]


@pytest.mark.parametrize("seed", range(5))
def test_of_two_halves_the_one_without_the_store_ends_before_the_other_gives_it_up(seed: int) -> None:
    """So that no actor of the one is started again by the other while it runs."""
    world = World(seed, nodes=6)
    world.servers = {1, 2, 3}
    for node in world.nodes:
        node.state.can_claim = node.number in world.servers
    world.run(3.0)
    for node in world.nodes[2:5]:
        node.side = 1
    world.run(3.0 + SILENCE_S)
    assert [node.number for node in world.nodes if node.state.role is Role.OVER] == [0, 1, 5]
    world.run(world.now + 2 * HEADLESS_S)
    assert [node.number for node in world.nodes if node.is_up] == [2, 3, 4] and len(world.acting()) == 1


def test_a_minority_wins_nothing_and_ends() -> None:
    world = World(3, nodes=4)
    world.run(2.0)
    for node in world.nodes[:3]:
        node.side = 1
    world.run(2.0 + HEADLESS_S + 5)
    assert world.acting() == [0]
    assert world.nodes[3].state.role is Role.OVER and set(world.claims) == {1}


def test_a_node_that_lost_only_its_own_link_to_the_head_does_not_take_over() -> None:
    world = World(4)
    world.run(2.0)
    world.nodes[2].lose(is_certain=False)
    world.run(30.0)
    assert world.acting() == [0] and set(world.claims) == {1}


def run_with_faults(seed: int) -> World:
    """Crashes, partitions and nodes that stand still, then peace."""
    world = World(seed, nodes=seed % 3 + 3)
    rng = random.Random(seed + 1)

    def fault() -> None:
        kind = rng.random()
        up = [node for node in world.nodes if node.is_up]
        if not up:
            return
        node = rng.choice([*up, *(one for one in up if one.is_acting)])
        if kind < 0.25 and len(up) * 2 > len(world.nodes) + 2:
            node.is_up = False
        elif kind < 0.6:
            for one in up:
                one.side = rng.randrange(2)
        elif kind < 0.9:
            node.is_paused = True
            world.later(rng.choice((0.5, 5.0, 20.0)), node.resume)
        else:
            for one in up:
                one.side = 0

    for _ in range(6):
        world.later(rng.uniform(1.0, 60.0), fault)
    world.later(61.0, lambda: [setattr(node, "side", 0) for node in world.nodes] and None)
    world.run(120.0)
    return world


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_no_two_nodes_act_at_once_whatever_fails(first: int) -> None:
    epochs = set()
    for seed in range(first, first + 100):
        epochs.update(run_with_faults(seed).acted)
    assert epochs >= {2, 3}, "some head was taken over from, and its heir, too"


def test_a_winner_that_does_not_wait_for_the_lease_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(do, "DRIFT", 0.0)
    with pytest.raises(AssertionError, match="HED-2"):
        list(map(run_with_faults, range(200)))


def cut_head_off_and_kill_the_winner() -> World:
    world = World(1, nodes=5)

    def kill() -> None:
        if 2 in world.claims:
            world.nodes[world.claims[2]].is_up = False
        else:
            world.later(0.01, kill)

    world.later(5.0, lambda: setattr(world.nodes[0], "side", 1))
    world.later(5.0, kill)
    world.run(30.0)
    return world


def test_a_winner_that_dies_at_once_is_followed_when_the_lease_before_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cut_head_off_and_kill_the_winner().acted == [3]
    monkeypatch.setattr(Headship, "winner_lost", lambda state, now: state._lose(now, 0.0, True))
    with pytest.raises(AssertionError, match="HED-2"):
        cut_head_off_and_kill_the_winner()


def test_a_node_that_has_just_joined_waits_to_hear_who_has_the_store() -> None:
    """The head may die before the others have said what they have."""
    node = Headship()
    node.head_lost(True, 10.0)
    assert not node.has_no_hope(False, 10.0)
    assert not node.has_no_hope(False, 10.0 + HOPELESS_S)
    assert not node.has_no_hope(True, 10.1 + HOPELESS_S)
    assert not node.has_no_hope(False, 10.2 + HOPELESS_S)
    assert node.has_no_hope(False, 10.3 + 2 * HOPELESS_S)


def candidate() -> Headship:
    """It has lost the head at 10 s, by silence."""
    state = Headship()
    state.can_claim = True
    state.head_lost(False, 10.0)
    return state


def test_who_gets_no_answer_of_the_store_claims_nothing_however_long_it_waits() -> None:
    state = candidate()
    assert state.beat(False, 0, 10.1, is_backed=True) == [do.ReadClaim(2, 10.1)]
    assert [state.beat(False, 0, 10.1 + step / 10, is_backed=True) for step in range(1, 250)] == [[]] * 249
    assert state.claim_read(2, False, 10.1, 10.1 + FRESH_S + 0.1) == [], "it says nothing about now"
    assert state.beat(False, 0, 36.0, is_backed=True) == [do.ReadClaim(2, 36.0)]


def test_a_candidate_claims_when_the_store_answers_and_most_others_have_lost_the_head() -> None:
    state = candidate()
    state.beat(False, 0, 10.1, is_backed=True)
    state.claim_read(2, False, 10.1, 10.2)
    assert state.beat(False, 0, 10.3, is_backed=True) == [do.Claim(2, 10.3)]


def test_a_candidate_that_few_confirm_waits_whether_it_hears_the_head_after_all() -> None:
    state = candidate()
    asked = 0
    now = 10.0
    while not (out := state.beat(False, 0, now)) or isinstance(out[0], do.ReadClaim):
        if out:
            asked += 1
            state.claim_read(2, False, now, now + 0.05)
        now += BEAT_S
    assert out == [do.Claim(2, now)] and now >= 10.0 + CALM_S and asked > 1
    other = candidate()
    other.beat(False, 0, 10.1)
    other.claim_read(2, False, 10.1, 10.2)
    other.head_found()
    assert other.role is Role.FOLLOWING and other.beat(False, 0, 20.0) == []


def test_a_candidate_that_hears_of_a_head_begins_to_ask_anew() -> None:
    state = candidate()
    state.beat(False, 0, 10.1)
    state.claim_read(2, False, 10.1, 10.2)
    assert state.beat(True, 0, 11.0) == [] and state.role is Role.HEADLESS
    assert state.beat(False, 0, 12.5) == [do.ReadClaim(2, 12.5)]


def test_a_death_that_is_certain_is_not_asked_about() -> None:
    state = Headship()
    state.can_claim = True
    state.head_lost(True, 10.0)
    assert state.beat(False, 0, 10.0) == [do.Claim(2, 10.0)]


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_winner_that_dies_before_it_is_heard_is_not_waited_for(is_certain: bool) -> None:
    """Where the head before it may live, that one's lease is waited for as ever."""
    state = candidate()
    state.is_certain = is_certain
    state.beat(False, 0, 10.0, is_backed=True)
    if not is_certain:
        state.claim_read(2, False, 10.0, 10.1)
        state.beat(False, 0, 10.1, is_backed=True)
    state.claimed(2, False, 10.1, 10.2)
    assert state.beat(False, 0, 10.3, is_backed=True) == [], "it has time to begin"
    state.winner_lost(10.4)
    (asked,) = state.beat(False, 0, 10.5, is_backed=True)
    assert asked == (do.Claim(3, 10.5) if is_certain else do.ReadClaim(3, 10.5))


def won() -> Headship:
    state = candidate()
    state.beat(False, 0, 10.0, is_backed=True)
    state.claim_read(2, False, 10.0, 10.1)
    state.beat(False, 0, 10.1, is_backed=True)
    state.claimed(2, True, 10.1, 10.2)
    assert state.role is Role.WON
    return state


def test_a_winner_that_finds_a_later_one_steps_down_and_follows() -> None:
    state = won()
    due = 10.3 + LEASE_S * DRIFT
    assert state.beat(False, 0, due) == [do.ReadClaim(3, due)]
    assert state.claim_read(3, True, due, due + 0.1) == []
    assert (state.role, state.epoch) == (Role.HEADLESS, 3)
    assert state.beat(False, 0, due + WINNER_S / 2) == [], "the later one has time to begin"
    assert state.heard(3) and state.role is Role.FOLLOWING
    other = won()
    assert other.heard(3) and other.role is Role.FOLLOWING


def test_a_head_that_hears_of_a_later_epoch_acts_no_more_and_one_of_an_earlier_is_not_heard() -> None:
    state = Headship()
    state.founded()
    state.epoch = 4
    assert state.deposed(4) == state.deposed(3) == [] and not state.heard(3)
    (end,) = state.deposed(5)
    assert isinstance(end, do.End) and not state.may_act(0.0)
    follower = Headship()
    follower.epoch = 4
    assert not follower.heard(3) and not follower.heard(4) and follower.heard(5)
