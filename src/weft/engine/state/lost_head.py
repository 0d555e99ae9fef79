"""The head that a node has lost, or doubts, and what its machine says of it. A part of `membership`.

Pure: no I/O, no clock. A head that was not heard for long is *doubted*: another may take over, but the link stays, and
one that is heard again is followed as before. Who loses the link knocks at the head's port: a machine that says that
nobody listens there makes the death certain, and a head that answers, and was not silent, has let go of this node.
"""

from __future__ import annotations

import math

from weft.engine.state import membership_instructions as do
from weft.engine.wire.link_messages import Fault

KNOCK_S = 2.0
"""A head that has closed a link answers a knock within so long, or its machine does."""


class LostHead:
    """What one node knows of it."""

    def __init__(self, silent: set[int]) -> None:
        """`silent`: the nodes whose links were given up for silence."""
        self._silent = silent
        self.number: int | None = None
        self.is_doubted = False
        """Nothing has been heard of the head for long; its link is still there."""
        self.has_resigned = False
        """The head has said that it ends."""
        self._loss = ""
        """Why it was lost."""
        self._knocking: int | None = None
        """That head, while its machine is asked whether it still listens."""
        self._answers_until = -math.inf
        """So long it may still say that it lives."""

    def doubt(self, number: int) -> None:
        self.is_doubted = True
        self.number = number

    def lose(self, number: int, address: str, reason: str, now: float) -> list[do.Instruction]:
        """Its link is over."""
        if self.is_doubted:
            self._silent.add(number)
        self.number, self._loss, self.is_doubted = number, reason, False
        if self.has_resigned:
            self.has_resigned = False
            return [do.NodeGone(number, reason), do.HeadLost(reason, True)]
        self._knocking = number
        self._answers_until = -math.inf if number in self._silent else now + KNOCK_S
        return [do.NodeGone(number, reason), do.HeadLost(reason, False), do.Connect(number, address)]

    def is_knocked_at(self, number: int) -> bool:
        return number == self._knocking

    def knock_answered(self, link: int) -> tuple[do.Instruction, bool]:
        """What to do, and whether it may still die and is asked again."""
        if self._knocking in self._silent:
            reason = "it was only asked whether it lives: this node has given it up for its silence"
            return do.Close(link, reason), True
        return do.Lost(f"the head of the cluster has let go of this node: their link was lost ({self._loss})"), False

    def knock_failed(self, reason: str, fault: Fault) -> tuple[do.Instruction, bool]:
        """As above; one that is just being killed may still accept."""
        is_certain = fault is Fault.REFUSED
        if is_certain and self._knocking is not None:
            self._silent.discard(self._knocking)
            self._answers_until = -math.inf
        return do.HeadLost(reason, is_certain), not is_certain

    def followed(self) -> int | None:
        """Another is the head: the one that is not asked any more whether it lives."""
        knocked, self._knocking = self._knocking, None
        self.is_doubted = False
        if knocked is not None:
            self._answers_until = -math.inf
        return knocked

    def may_answer(self, now: float) -> bool:
        """Whether it has closed the link, and has not been asked for long whether it lives."""
        return now < self._answers_until
