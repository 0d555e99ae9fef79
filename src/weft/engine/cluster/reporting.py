"""Tells the other nodes how it stands here, hears how it stands there, and plans what to ask them for.

Runs in the daemon's thread. A change is reported to all within `REPORT_S`, and a heartbeat repeats it. The head hears
each node and each node the head at every beat, for the head tells all who is silent. Of the others a node tells few
at a beat, in turn (`membership.beats_apart`), so what it pays when idle does not grow with their number; while
something happens on it each hears one beat in `SELDOM_BEATS`. Who misses the head tells all at each beat, and all
answer.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import events as ev
from weft.engine.state.asking import Asking
from weft.engine.state.hearing import SELDOM_BEATS, beats_apart
from weft.engine.state.node import NodeState
from weft.engine.wire import link_messages as lm
from weft.net.loop import Loop, Timer

PLAN_S = 0.003
"""Work that is done sooner is not worth another node."""
REPORT_S = 0.005
REPORT_EACH_S = 100e-6
"""Reports of changes come so much later for each node that hears them: no node sends more than 10,000 per second."""
HEARTBEAT_S = 1.0
HEARTBEAT_EACH_S = 250e-6
"""The same for heartbeats: 2.5 s among 10,000 nodes, well below what silence is borne."""
LIVELY_BEATS = 2 * SELDOM_BEATS
"""After the last event here: each node has then heard what came of it."""


class Reporting:
    """One daemon's reports and plans."""

    def __init__(
        self,
        loop: Loop,
        state: NodeState,
        feed: Callable[[ev.Event], None],
        members: Membership,
        asking: Asking,
        renew_lease: Callable[[bool], None],
        stands: Callable[[], tuple[bool, bool]],
    ) -> None:
        """`stands`: whether this node is the head, and whether it has a server of the control store."""
        self._loop = loop
        self._state = state
        self._feed = feed
        self._members = members
        self._asking = asking
        self._renew_lease = renew_lease
        self._stands = stands
        self._planned: Timer | None = None
        self._reported: lm.Report | None = None
        """What all were told last."""
        self._report_timer: Timer | None = None
        self._lively_beats = 0
        self._is_leased = False
        """Whether the workers run by a lease: there are other nodes."""
        self._beats = 0
        self.hears_head: dict[int, bool] = {}
        self.has_store: dict[int, bool] = {}
        """What the other nodes say."""

    def came(self, link: NodeLink, message: lm.Report) -> None:
        self.hears_head[link.peer], self.has_store[link.peer] = message.hears_head, message.has_store
        cluster = self._state.cluster
        if cluster is not None and (view := cluster.nodes.get(link.peer)) is not None:
            has_turned = view.is_draining != message.is_draining
            view.is_draining = message.is_draining
            if cluster.nodes.reported(view, message.available, message.queued) or has_turned:
                self.plan_later()
        if message.asks and not self._members.misses_head:  # else it tells all at each beat
            self.report(to=link.peer)

    def is_backed(self, heard: list[int]) -> bool:
        """Whether most of the other nodes are heard, and say that they have lost the head."""
        members = self._members
        others = {one.number for one in members.alive()} - {members.own.number, members.lost_head}
        backers = others.intersection(one for one in heard if not self.hears_head.get(one, True))
        return bool(backers) and 2 * len(backers) >= len(others)

    def node_gone(self, number: int) -> None:
        self.hears_head.pop(number, None)
        self.has_store.pop(number, None)

    def changed(self) -> None:
        """Something has happened on this node: others may have to be told, or asked."""
        if self._state.cluster is None:
            return
        self._lively_beats = LIVELY_BEATS
        if self._report_timer is None:
            delay_s = max(REPORT_S, len(self._members.links) * REPORT_EACH_S)
            self._report_timer = self._loop.call_later(delay_s, self._report_if_changed)
        if self._has_plans:
            self.plan_later()

    @property
    def _has_plans(self) -> bool:
        return self._state.demands.is_waiting or bool(self._asking.asked) or self._state.grouping.is_waiting

    def plan_later(self) -> None:
        if self._planned is None:
            self._planned = self._loop.call_later(PLAN_S, self._plan)

    def _plan(self) -> None:
        if self._state.grouping.is_waiting:
            self._feed(ev.NodesChanged())  # no change of its own: it does not ask for the next plan
        self._planned = None
        if self._state.demands.is_waiting or self._asking.asked:
            self._asking.plan()

    def _report_if_changed(self) -> None:
        self._report_timer = None
        if self._message() != self._reported:
            self.report()

    def report(self, to: int | None = None) -> None:
        """Tell all nodes, or one, at once how it stands here.

        Not before it has joined: who hears of it uses it, but it does not know its own number yet."""
        if self._state.cluster is None:
            return
        message = self._message()
        if to is None:
            self._reported = message
            self._members.broadcast(message)
        else:
            self._members.send(to, message)

    def _message(self) -> lm.Report:
        members, (is_head, has_store) = self._members, self._stands()
        return lm.Report(
            dict(self._state.resources.available),
            self._asking.queued(),
            self._state.standing.is_draining,
            members.hears_head or is_head,
            has_store,
            asks=members.misses_head,
        )

    def beat(self) -> None:
        """Again and again from when this node is in."""
        members = self._members
        self._beats += 1
        self._lively_beats -= 1
        apart = beats_apart(len(members.links))
        if self._lively_beats > 0:
            apart = min(SELDOM_BEATS, apart)
        message = self._message()
        if not members.hears_head or members.misses_head or members.is_head or message != self._reported:
            self.report()
        elif self._state.cluster is not None:
            for number in list(members.links):
                if number == members.head or (number + self._beats) % apart == 0:
                    members.send(number, message)
        if self._is_leased or members.links:
            self._is_leased = bool(members.links)
            self._renew_lease(self._is_leased)
        if self._has_plans:
            self.plan_later()
        delay_s = max(HEARTBEAT_S, len(self._members.links) * HEARTBEAT_EACH_S)
        self._loop.call_later(delay_s, self.beat)
