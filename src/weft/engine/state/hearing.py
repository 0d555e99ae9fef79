"""Who was heard when, and whose silence means something: a part of `membership`.

Pure: no I/O, no clock. The head hears each node, and each node the head, at every beat. Of many others a node that
idles tells `HEARD_BEATS` at a beat, in turn, so that more of them cost it no more. Between two such nodes the kernels
watch the connection; who *misses* the head, for `MISSED_S`, asks all others to speak, and from then on their silence
counts, from the moment at which the head fell silent. Time in which this node itself stood still is nobody's silence.
"""

from __future__ import annotations

import math
from collections.abc import Collection

BEAT_S = 1.0
SEVERED_S = 4.0
"""So long nothing had come over a connection that the kernel has found dead (`pulse.DEAD_S`)."""
MISSED_S = 3.0
"""Of the head's silence, before the others are asked to speak: they have time to before this node counts as cut off."""
HEARD_BEATS = 3
"""Of other nodes that idle, at each beat of one that hears the head."""
SELDOM_BEATS = 3
"""Nodes that are no more than so many beats apart are due at each, as far as silence is concerned."""
SILENCE_S = 10.0
HEAD_SILENCE_S = 6.0
HEAD_GIVEN_UP_S = 15.0
"""Of a head that nobody has taken over from: some hear it, or nobody could. Less than a link is resumed for."""
REGAINED_S = 5.0
"""A head that has its lease again was cut off itself, maybe: who can be heard again has been heard by then."""
CUT_OFF_S = 7.0
"""Less than `SILENCE_S` by more than two beats, one of each side."""
RECENT_S = 5.0
"""What a node has said of itself counts for so long, once it is due."""


def beats_apart(links: int) -> int:
    """How many beats there are between two reports to the same idle node."""
    return max(1, math.ceil(links / HEARD_BEATS))


class Link:
    """What is known of one link."""

    __slots__ = ("is_peer", "last_heard", "number", "severed_from")

    def __init__(self, number: int | None, now: float) -> None:
        self.number = number
        """Of the node at the other end; None until it has said so."""
        self.is_peer = False
        self.last_heard = now
        self.severed_from = math.inf
        """Since when it has had no connection."""


class Hearing:
    """The links of one node, and when each was heard last."""

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}
        self.in_use: dict[int, int] = {}
        """The link of each node."""
        self.missed_from = math.inf
        """Since when the head is missed, and so all others are due."""
        self.silent: set[int] = set()
        """Nodes whose links were given up for silence, and which are not known to be dead."""
        self.undecided_at = -math.inf
        """On a head: when it was seen last to have no lease."""
        self._beat_at: float | None = None

    def forgive_own_stall(self, now: float) -> None:
        stood_still_s = 0.0 if self._beat_at is None else now - self._beat_at - 2 * BEAT_S
        self._beat_at = now
        if stood_still_s > 0:
            for link in self.links.values():
                link.last_heard = min(now, link.last_heard + stood_still_s + BEAT_S)
            if self.missed_from < math.inf:
                self.missed_from = min(now, self.missed_from + stood_still_s + BEAT_S)

    def note_what_is_due(self, now: float, severed: Collection[int], head: int | None) -> None:
        """`head`: another node that is to speak at each beat, or None."""
        for number, link in self.in_use.items():
            known = self.links[link]
            known.severed_from = min(known.severed_from, now - SEVERED_S) if number in severed else math.inf
        if head in self.in_use:
            heard_at = self.links[self.in_use[head]].last_heard
            self.missed_from = heard_at if now - heard_at >= MISSED_S else math.inf

    def silent_s(self, number: int, now: float, head: int | None, is_head: bool) -> float:
        """For how long nothing was heard from a node that was to say something; negative when it was not to."""
        known = self.links[self.in_use[number]]
        apart = beats_apart(len(self.in_use))
        if number == head or apart <= SELDOM_BEATS:
            due = -math.inf
        elif is_head:  # its nodes speak to it at each beat since it took over
            due = self.missed_from if self.missed_from < math.inf else -math.inf
        else:  # two turns of its own, should what watches the connection miss its end
            due = min(self.missed_from, known.severed_from, known.last_heard + 2 * apart * BEAT_S)
        return now - max(known.last_heard, due)

    def given_up_for(self, number: int, silent_s: float, now: float, head: int | None) -> str:
        """Why it is; empty while its silence is borne."""
        borne_s = HEAD_GIVEN_UP_S if number == head else SILENCE_S
        is_over = silent_s > borne_s and now - self.undecided_at > REGAINED_S
        return f"nothing was heard from it for {borne_s:g} s" if is_over else ""

    def heard(self, now: float, within_s: float, head: int | None, is_head: bool) -> list[int]:
        """The nodes that are linked and from which something came lately, or is not due yet."""
        return [number for number in self.in_use if self.silent_s(number, now, head, is_head) <= within_s]

    def is_alone(self, now: float, head: int | None, is_head: bool) -> bool:
        """Whether at least half of the nodes, this one counted, have fallen silent."""
        heard = len(self.heard(now, CUT_OFF_S, head, is_head))
        silent = len(self.in_use) - heard + len(self.silent - self.in_use.keys())
        return silent > heard
