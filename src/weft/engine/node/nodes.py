"""Which nodes there are, as parts of the daemon must know: who is local, which nodes live, asking one of them.

Runs in the daemon's thread. On a node that is alone there is this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.engine.node.operations import Operations, Pending, gather
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState
from weft.engine.state.resources import to_floats

if TYPE_CHECKING:
    from weft.engine.node.cluster_port import Cluster
    from weft.engine.state.cluster import NodeView
    from weft.engine.wire.link_messages import Member
    from weft.engine.wire.messages import Happening

PIDS_S = 2.0
"""So long another node is asked for the pids of its processes, for a listing."""


class Nodes:
    """This node and the others of its cluster."""

    def __init__(self, state: NodeState, operations: Operations, node_id: str, address: str) -> None:
        self._state = state
        self._operations = operations
        self.node_id = node_id
        self.own_address = address
        self.cluster: Cluster | None = None
        """This node's part in a cluster, where there is one."""

    @property
    def address(self) -> str:
        """Of the cluster, as drivers are told it."""
        return self.own_address if self.cluster is None else self.cluster.cluster_address

    @property
    def own_number(self) -> int:
        return 0 if self.cluster is None else self.cluster.members.own.number

    @property
    def head_number(self) -> int | None:
        return 0 if self.cluster is None else self.cluster.members.head

    @property
    def is_head(self) -> bool:
        return self.cluster is None or self.cluster.is_head

    def ask_node(self, number: int, method: str, params: dict[str, Any], timeout_s: float = 30.0) -> Pending:
        """An operation of that node of the cluster, this one included."""
        if self.cluster is None or number == self.cluster.members.own.number:
            return self._operations.perform(method, params)
        return self.cluster.calls.ask(number, method, params, timeout_s)

    def ask_all(self, method: str, params: dict[str, Any], timeout_s: float) -> Pending:
        """Of all living nodes: {number: Outcome}."""
        return gather({one.number: self.ask_node(one.number, method, params, timeout_s) for one in self.all_views()})

    def others(self) -> list[int]:
        """The nodes to which there is a link."""
        return [] if self.cluster is None else list(self.cluster.members.links)

    def all_views(self) -> list[NodeView]:
        """The living nodes, this one first."""
        return [view for view in self._state.standing.views() if view.is_alive]

    def node_views(self) -> list[NodeView]:
        """Those of them that take work."""
        return [view for view in self.all_views() if view.takes_work]

    def all_members(self) -> list[Member]:
        """Every node of the cluster, living or dead."""
        from weft.engine.wire.link_messages import Member

        if self.cluster is not None:
            return sorted(self.cluster.members.members.values(), key=lambda member: member.number)
        total, own = to_floats(self._state.resources.total), self.own_address
        return [Member(0, self.node_id, own, own, total, dict(self._state.standing.own.labels))]

    def rows(self) -> list[tuple[Member, dict[str, float]]]:
        """Every node of a cluster, living or dead, this one first, with what it has free."""
        if self.cluster is None or (view := self._state.cluster) is None:
            return []
        view.own.available, own = self._state.resources.available, self.own_number
        members = sorted(self.cluster.members.members.values(), key=lambda m: (m.number != own, m.number))
        return [(m, to_floats(view.nodes[m.number].available) if m.number in view.nodes else {}) for m in members]

    def tell_head(self, one: Happening) -> bool | None:
        """Whether it went to another node; None when it was to, and there is no link to it."""
        if self.cluster is None or self.cluster.is_head:
            return False
        from weft.engine.wire.link_messages import Happened

        head = self.cluster.members.head
        return True if head is not None and self.cluster.members.send(head, Happened(one)) else None

    # ---- processes ----

    def is_local(self, process: Process) -> bool:
        """Whether it is a process of this node, not one of another that is known here."""
        return self.cluster is None or not self.cluster.names.is_proxy(process)

    def local_processes(self) -> list[Process]:
        """All drivers and workers of this node."""
        known = (*self._state.drivers, *self._state.workers.by_process)
        return [process for process in known if self.is_local(process)]

    def busy_processes(self) -> list[Process]:
        """Of this node: drivers, and workers that have run something."""
        bound = [worker.process for worker in self._state.workers if worker.pid and worker.binding is not None]
        return [process for process in (*self._state.drivers, *bound) if self.is_local(process)]

    def place_of(self, process: Process) -> tuple[str, Process]:
        """Of a process that is known here, or was until lately: its node's id, and what that node calls it."""
        if self.cluster is None:
            return self.node_id, process
        number, slot, generation = self.cluster.names.to_global(process)
        if number == self.cluster.names.number and slot == process[0]:
            return self.node_id, process
        member = self.cluster.members.members.get(number) if slot else None  # 0: nobody knows any more who it was
        return member.node_id if member is not None else "", (slot, generation)

    def pids_of(self, nodes: set[str]) -> Pending:
        """Of the processes of these nodes: of each that answers in time {worker id: pid}."""
        views = [view for view in self.all_views() if view.node_id in nodes]
        asked = {view.number: self.ask_node(view.number, "node_pids", {}, PIDS_S) for view in views}
        return gather(asked).map(lambda outcomes: [one.value for one in outcomes.values() if not one.error_kind])
