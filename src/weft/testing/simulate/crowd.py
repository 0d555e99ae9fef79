"""Large clusters without faults: all nodes share one copy of what they know of each other.

Each of n nodes knows all others, so n nodes know n² things; at 10,000 nodes that is more than fits here. Without faults
all nodes know the same, a moment after it was reported. So a report is one event that changes one shared view, and is
counted as the n - 1 messages that it is. Links are made when they are first used, without joining.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.records import OutgoingRecords
from weft.engine.cluster.shell import ClusterShell
from weft.engine.cluster.transport import Transport
from weft.engine.state.cluster import NodeView, NodeViews
from weft.engine.state.resources import Amounts, to_amounts
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import Member
from weft.testing.simulate.network import SimLink

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode
    from weft.testing.simulate.simulation import Simulation


class Crowd:
    """What all know of all."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.members: dict[int, Member] = {}
        self.views = NodeViews()
        self.waiting: dict[int, SimNode] = {}
        """Nodes that would have more, were it free."""

    def take_in(self, node: SimNode) -> CrowdMembership:
        number = len(self.members)
        row = Member(
            number,
            node.daemon.node_id,
            node.address,
            node.daemon.address,
            {name: amount / 10_000 for name, amount in node.daemon.state.resources.total.items()},
            node.machine.labels,
        )
        self.members[number] = row
        self.views[number] = NodeView(number, row.node_id, row.labels, dict(to_amounts(row.total)))
        return CrowdMembership(self, node, row)

    def report(self, number: int, message: lm.Report) -> None:
        """One node tells all others."""
        simulation = self._simulation
        self.count(len(self.members) - 1)
        simulation.clock.after(simulation.network.wire.latency_s, self._reported, number, message)

    def count(self, messages: int) -> None:
        self._simulation.network.messages += messages

    def _reported(self, number: int, message: lm.Report) -> None:
        if self.views.reported(self.views[number], message.available, message.queued):
            for node in self.waiting.values():
                node.shell.reporting.plan_later()

    def fed(self, node: SimNode) -> None:
        """A daemon has handled an event: does anything wait there?"""
        if node.daemon.state.demands.is_waiting or node.shell.asking.asked:
            self.waiting[node.number] = node
        else:
            self.waiting.pop(node.number, None)


class CrowdShell(ClusterShell):
    """One node's part in such a cluster."""

    def _make_members(self, transport: Transport, own: Member, head: str) -> Membership:
        node: SimNode = cast(Any, self._daemon).node
        assert node.cluster.crowd is not None
        return cast(Membership, node.cluster.crowd.take_in(node))


class CrowdMembership:
    """In place of `cluster.membership.Membership`."""

    def __init__(self, crowd: Crowd, node: SimNode, own: Member) -> None:
        self._crowd = crowd
        self._node = node
        self.own = own
        self.members = crowd.members
        self.links = CrowdLinks(node)
        self.node_links = self
        self.head = self.epoch = 0
        self.lost_head = None
        self.hears_head = True
        self.misses_head = False
        self.is_cut_off = False
        self.is_head = own.number == 0

    def start(self) -> None:
        shell = self._node.shell
        shell.joined()
        cluster = shell._state.cluster
        assert cluster is not None
        cluster.nodes = cast(Any, CrowdViews(self._crowd.views, cluster.own))

    def send(self, node: int, message: lm.LinkMessage) -> bool:
        if isinstance(message, lm.Report):  # a heartbeat: it repeats what all were told of
            self._crowd.count(1)
            return True
        link = self.links.get(node)
        if link is None:
            return False
        link.send(message)
        return True

    def broadcast(self, message: lm.LinkMessage) -> None:
        if isinstance(message, lm.Report):
            self._crowd.report(self.own.number, message)
            return
        for number in self.members:
            if number != self.own.number:
                self.send(number, message)

    # ---- as the transport's events ----

    def received(self, link: SimLink, message: lm.LinkMessage) -> None:
        self._node.shell.received(link, message)

    def records_came(self, link: SimLink, batch: memoryview) -> None:
        self._node.shell.records.came(link, batch)


class CrowdLinks(dict[int, SimLink]):
    """A link to every node, made when it is first asked for."""

    def __init__(self, node: SimNode) -> None:
        super().__init__()
        self._node = node

    def get(self, number: int, default: Any = None) -> Any:
        link = super().get(number)
        if link is None and number in self._node.cluster.by_number and number != self._node.number:
            link = self._make(self._node.cluster.by_number[number])
        return link

    def __contains__(self, number: object) -> bool:
        return number in self._node.cluster.by_number and number != self._node.number

    def __len__(self) -> int:
        return max(0, len(self._node.cluster.by_number) - 1)

    def _make(self, other: SimNode) -> SimLink:
        mine, theirs = SimLink(self._node.transport), SimLink(other.transport)
        mine.other, theirs.other = theirs, mine
        mine.peer, theirs.peer = other.number, self._node.number
        mine.records = OutgoingRecords(self._node.daemon.port, other.number)
        theirs.records = OutgoingRecords(other.daemon.port, self._node.number)
        self[other.number] = mine
        other.shell.members.links[self._node.number] = theirs
        self._node.transport.events = cast(Any, self._node.shell.members)
        other.transport.events = cast(Any, other.shell.members)
        return mine


class CrowdViews:
    """One node's `ClusterView.nodes`: its own view, which is always up to date, among the shared ones."""

    def __init__(self, shared: NodeViews, own: NodeView) -> None:
        self._shared = shared
        self.roomy = shared.roomy
        self._own = own

    def after(self, own: int, with_cpus: bool) -> list[int]:
        return self._shared.after(own, with_cpus)

    def taken(self, number: int, need: Amounts) -> None:
        self._shared.taken(number, need)

    def __getitem__(self, number: int) -> NodeView:
        return self._own if number == self._own.number else self._shared[number]

    def get(self, number: int, default: NodeView | None = None) -> NodeView | None:
        return self._own if number == self._own.number else self._shared.get(number, default)

    def __contains__(self, number: object) -> bool:
        return number in self._shared

    def __len__(self) -> int:
        return len(self._shared)

    def __iter__(self) -> Iterator[int]:
        return iter(self._shared)

    def values(self) -> Iterator[NodeView]:
        own = self._own
        return (own if view.number == own.number else view for view in self._shared.values())

    def items(self) -> Iterator[tuple[int, NodeView]]:
        return ((view.number, view) for view in self.values())
