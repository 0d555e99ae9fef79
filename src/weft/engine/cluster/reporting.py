"""Tells the other nodes how it stands here, hears how it stands there, and plans what to ask them for.

Runs in the daemon's thread. A change is reported to all within `REPORT_S`, and a heartbeat repeats it. The head hears
each node and each node the head at every beat, for the head tells all who is silent. Two others hear each other at one
beat in `SELDOM_BEATS` when there are many: an idle node pays little for each node more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.engine.cluster.transport import NodeLink
from weft.engine.state import events as ev
from weft.engine.wire import link_messages as lm
from weft.engine.wire.loop import Timer

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon

PLAN_S = 0.003
"""Work that is done sooner is not worth another node."""
REPORT_S = 0.005
REPORT_EACH_S = 100e-6
"""Reports of changes come so much later for each node that hears them: no node sends more than 10,000 a second."""
HEARTBEAT_S = 1.0
HEARTBEAT_EACH_S = 250e-6
"""The same for heartbeats: 2.5 s among 10,000 nodes, well below what silence is borne."""
OFTEN_NODES = 8
"""So few others hear each beat."""
SELDOM_BEATS = 3
"""Among more they hear one in so many at most: less than what `membership.RECENT_S` takes for lately."""


class Reporting:
    """One daemon's reports and plans."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell) -> None:
        self._daemon = daemon
        self._state = daemon.state
        self._loop = daemon.loop
        self._shell = shell
        self._planned: Timer | None = None
        self._reported: tuple[dict[str, int], int] | None = None
        self._report_timer: Timer | None = None
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

    def node_gone(self, number: int) -> None:
        self.hears_head.pop(number, None)
        self.has_store.pop(number, None)

    def changed(self) -> None:
        """Something has happened on this node: others may have to be told, or asked."""
        if self._state.cluster is None:
            return
        if self._report_timer is None:
            delay_s = max(REPORT_S, len(self._shell.members.links) * REPORT_EACH_S)
            self._report_timer = self._loop.call_later(delay_s, self._report_if_changed)
        if self._state.demands.is_waiting or self._shell.asking.asked or self._state.groups_wait:
            self.plan_later()

    def plan_later(self) -> None:
        if self._planned is None:
            self._planned = self._loop.call_later(PLAN_S, self._plan)

    def _plan(self) -> None:
        self._planned = None
        if self._state.groups_wait:
            self._daemon.feed(ev.NodesChanged())
        if self._state.demands.is_waiting or self._shell.asking.asked:
            self._shell.asking.plan()

    def _report_if_changed(self) -> None:
        self._report_timer = None
        if (dict(self._state.resources.available), self._shell.asking.queued()) != self._reported:
            self.report()

    def report(self, to: int | None = None) -> None:
        """Tell all nodes, or one, at once how it stands here.

        Not before it has joined: who hears of it uses it, but it does not know its own number yet."""
        if self._state.cluster is None:
            return
        message = self._message()
        if to is None:
            self._shell.members.broadcast(message)
        else:
            self._shell.members.send(to, message)

    def _message(self) -> lm.Report:
        self._reported = (dict(self._state.resources.available), self._shell.asking.queued())
        hears_head = self._shell.members.hears_head or self._shell.heading.is_head
        has_store = self._shell.heading.has_store
        return lm.Report(*self._reported, self._state.is_draining, hears_head, has_store)

    def beat(self) -> None:
        """Again and again from when this node is in."""
        members = self._shell.members
        self._beats += 1
        every = min(SELDOM_BEATS, math.ceil(len(members.links) / OFTEN_NODES))
        if not members.hears_head or members.is_head or every <= 1:
            self.report()
        elif self._state.cluster is not None:
            message = self._message()
            for number in list(members.links):
                if number == members.head or (number + self._beats) % every == 0:
                    members.send(number, message)
        if self._is_leased or members.links:
            self._is_leased = bool(members.links)
            self._daemon.renew_lease(self._is_leased)
        self.plan_later()
        delay_s = max(HEARTBEAT_S, len(self._shell.members.links) * HEARTBEAT_EACH_S)
        self._loop.call_later(delay_s, self.beat)
