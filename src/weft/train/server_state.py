"""Which gradients make the next step of a parameter server, and who may go on: pure, for one shard.

Ranks are awaited from the start, until they leave; a rank that comes back is awaited again.

PS-1  Synchronous: a step takes one gradient of every awaited rank, in the order of the ranks.
PS-2  Asynchronous: every gradient is a step of its own, in the order of arrival; nobody is more than `staleness`
      gradients ahead of the slowest awaited rank when it goes on.
PS-3  A rank that has left holds nobody up; what it had pushed counts.
"""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["ServerState"]


class ServerState:
    def __init__(self, workers: int, is_sync: bool, staleness: int | None = None) -> None:
        self._is_sync = is_sync
        self._staleness = staleness
        self.awaited = set(range(workers))
        """Ranks that others wait for."""
        self._tokens: dict[int, str] = {}
        self._clocks = dict.fromkeys(range(workers), 0)
        self._round: dict[int, Any] = {}
        self._arrived: deque[Any] = deque()
        self.version = 0
        """Steps taken."""

    def joined(self, rank: int, token: str) -> None:
        """It starts level with the slowest, so that it is not waited for until it has caught up."""
        others = [self._clocks[other] for other in self.awaited if other != rank]
        if rank in self._tokens or rank not in self.awaited:
            self._clocks[rank] = min(others, default=self._clocks.get(rank, 0))
        self.awaited.add(rank)
        self._tokens[rank] = token

    def left(self, rank: int, token: str) -> None:
        """Done or dead; nothing when another has taken its place meanwhile."""
        if self._tokens.get(rank) == token:
            self.awaited.discard(rank)
            del self._tokens[rank]

    def is_current(self, rank: int, token: str) -> bool:
        return self._tokens.get(rank) == token

    def pushed(self, rank: int, gradient: Any) -> None:
        if self._is_sync:
            self._round[rank] = gradient
        else:
            self._clocks[rank] += 1
            self._arrived.append(gradient)

    def take_step(self) -> list[Any] | None:
        """The gradients of the next step, None when it is not due."""
        if self._is_sync:
            if not self._round or not self.awaited <= self._round.keys():
                return None
            taken = [self._round[rank] for rank in sorted(self._round)]
            self._round.clear()
        elif self._arrived:
            taken = [self._arrived.popleft()]
        else:
            return None
        self.version += 1
        return taken

    def may_go_on(self, rank: int) -> bool:
        """Whether one that has pushed gets the parameters."""
        return rank not in self._round if self._is_sync else not self.held_up_by(rank)

    def held_up_by(self, rank: int) -> list[int]:
        """The ranks that `rank` waits for."""
        if self._is_sync:
            return sorted(self.awaited - self._round.keys()) if rank in self._round else []
        if self._staleness is None:
            return []
        bound = self._clocks[rank] - self._staleness
        return sorted(other for other in self.awaited if self._clocks[other] < bound)

    def token_of(self, rank: int) -> str | None:
        """None for one that has not joined yet."""
        return self._tokens.get(rank)
