"""The replicas of one deployment as one process sees them, and which of them gets a request. Pure."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_REMEMBERED_MODELS = 1000
AWAY_COSTS = 2
"""As many requests more may be under way at a replica of this node before another node's is taken instead."""


@dataclass
class Peer:
    """A replica as this process sees it."""

    name: str
    actor: Any
    is_canary: bool = False
    is_local: bool = False
    """Whether it is on this process's node."""
    mine: int = 0
    said: int = 0
    asked_for_room: bool = False
    models: set[str] = field(default_factory=set)
    bundlers: dict[Any, Any] = field(default_factory=dict)
    """By event loop."""

    @property
    def load(self) -> int:
        return self.mine if self.mine > self.said else self.said

    def remember(self, model: str) -> None:
        if len(self.models) >= MOST_REMEMBERED_MODELS:
            self.models.clear()
        self.models.add(model)


def choose(
    peers: Iterable[Peer], limit: int, model: str, pick: random.Random, canary_share: float = 0.0, session: str = ""
) -> Peer | None:
    """The replica for a request; None when all are full. Canaries get their share of the requests, as far as those that
    should take it are not full. One that has the request's model is preferred, then one of this node."""
    if session:
        return _of_session(list(peers), limit, session, canary_share)
    free = [peer for peer in peers if peer.load < limit]
    if canary_share:
        wants_canary = pick.random() < canary_share
        free = [peer for peer in free if peer.is_canary == wants_canary] or free
    if model:
        free = [peer for peer in free if model in peer.models] or free
    if len(free) < 2:
        return free[0] if free else None
    near = [peer for peer in free if peer.is_local]
    if near and len(near) < len(free):
        here, away = _less_loaded(near, pick), _less_loaded([peer for peer in free if not peer.is_local], pick)
        return here if here.load <= away.load + AWAY_COSTS else _passed_over(here, away)
    return _less_loaded(free, pick)


def _of_session(peers: list[Peer], limit: int, session: str, canary_share: float) -> Peer | None:
    """The same for all callers, without a word between them: the one whose name and the session's hash to most. When a
    replica comes or goes, only its sessions move. None while it is full: another would not know the session."""
    if canary_share:
        wants_canary = zlib.crc32(session.encode()) < canary_share * 2**32
        peers = [peer for peer in peers if peer.is_canary == wants_canary] or peers
    chosen = max(peers, key=lambda peer: _rank(session, peer.name), default=None)
    return chosen if chosen is not None and chosen.load < limit else None


def _rank(session: str, replica: str) -> bytes:
    return hashlib.blake2b(f"{session}\0{replica}".encode(), digest_size=8).digest()


def _less_loaded(peers: list[Peer], pick: random.Random) -> Peer:
    """Of two at random."""
    if len(peers) == 1:
        return peers[0]
    first = int(pick.random() * len(peers))
    second = int(pick.random() * (len(peers) - 1))
    one, other = peers[first], peers[second + (second >= first)]
    return _passed_over(other, one) if one.load <= other.load else _passed_over(one, other)


def _passed_over(loser: Peer, winner: Peer) -> Peer:
    """The winner. What the loser said last is believed a little less each time that it speaks against it: it may have
    nothing to do by now, and nobody asks it."""
    if loser.said > loser.mine:
        loser.said -= 1
    return winner
