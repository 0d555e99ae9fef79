"""How a node gets into a cluster: where it asks, how often, and whose links it waits for. A part of `membership`.

Pure: no I/O, no clock. Any node that is asked names the head's address. A head to which very many come at once closes
on some of them, who come again.

Invariants:
    JOI-1  a node is in once, after it has tried every node that the head named to it, or for `JOIN_WAIT_S`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

from weft.engine.state import membership_instructions as do
from weft.engine.state.instructions import Ending
from weft.engine.wire.link_messages import Fault

JOIN_WAIT_S = 1.0
"""So long a new node waits for links to nodes that may stand still; they are made when they answer."""
JOIN_TRIES = 30
"""A head to which very many come at once lets some in and closes on the others, who come again, not all at once."""
"""How the reason begins when a link ended with no word from the other side."""
ENTRY = -1
"""Stands for the node at which this one joins, until that has said who it is."""


class Joining:
    """One node's way into the cluster at `entry`; empty when this node begins the cluster."""

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self.is_over = False
        self._awaited: set[int] | None = None
        """Nodes that must be linked before this one is in; None until the table came."""
        self._tries = 0
        self._again_at = math.inf
        self._in_at = math.inf
        """Then it is in, whoever has not answered."""

    def begin(self) -> list[do.Instruction]:
        if self._entry:
            return [do.Connect(ENTRY, self._entry)]
        self.is_over = True
        return [do.Joined()]

    def entry_failed(self, node_id: str, reason: str, now: float, fault: Fault) -> list[do.Instruction]:
        self._tries += 1
        if fault is Fault.CLOSED and self._tries < JOIN_TRIES:
            self._again_at = now + zlib.crc32(f"{node_id}{self._tries}".encode()) % 1000 / 500
            return []
        return [do.Lost(f"the cluster at {self._entry} cannot be joined: {reason}", Ending.FAILED)]

    def sent_on(self, address: str) -> list[do.Instruction]:
        """The node that was asked is not the head."""
        self._tries += 1
        if self._tries < JOIN_TRIES:
            self._entry = address
            return [do.Connect(ENTRY, address)]
        text = f"the cluster's head cannot be found: {JOIN_TRIES} nodes in a row have named another"
        return [do.Lost(text, Ending.FAILED)]

    def admitted(self, awaited: Iterable[int], now: float) -> None:
        """The table came."""
        self._awaited = set(awaited)
        self._in_at = now + JOIN_WAIT_S

    def settled(self, number: int) -> list[do.Instruction]:
        """That node is linked, or was tried."""
        if self._awaited is None or self.is_over:
            return []
        self._awaited.discard(number)
        return [] if self._awaited else self._end()

    def _end(self) -> list[do.Instruction]:
        self.is_over = True
        return [do.Joined()]

    def beat(self, now: float) -> list[do.Instruction]:
        out: list[do.Instruction] = []
        if self._awaited and not self.is_over and now >= self._in_at:
            self._awaited.clear()
            out += self._end()
        if now >= self._again_at:
            self._again_at = math.inf
            out.append(do.Connect(ENTRY, self._entry))
        return out

    def check(self) -> None:
        """Assert the invariants."""
        assert not self.is_over or not self._awaited, f"JOI-1: {self._awaited} are awaited"
