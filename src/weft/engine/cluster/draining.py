"""`weft drain`: a node takes no new work, what it has ends or moves, then it leaves.

Runs in the daemon's thread, made at the first operation that asks for it. The node itself decides when it is done
(`state.draining` says what holds it) and leaves at its deadline whatever holds it then. The head moves the actors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations, Outcome, Pending
from weft.engine.state import events as ev
from weft.engine.state.draining import what_holds
from weft.engine.state.node import NodeState
from weft.net.loop import Loop

if TYPE_CHECKING:
    from weft.engine.cluster.handover import Handover
    from weft.engine.cluster.membership import Membership
    from weft.engine.state.events import Process
    from weft.engine.wire.link_messages import Member

CHECK_S = 0.1
OBJECTS_S = 30.0
"""After the deadline, objects that are on their way to other nodes have so much longer."""
DEFAULT_DEADLINE_S = 3600.0


class Drained(NamedTuple):
    """What it needs of the cluster."""

    members: Membership
    processes_of: Callable[[int], list[Process]]
    """Of another node: what its processes are called here."""
    report: Callable[[], None]
    handover: Handover
    leave: Callable[[str], None]
    can_be_followed: Callable[[], bool]
    """Whether another node could take over from this one, as the head."""


class Draining:
    """One daemon's operations: `drain`, `drain_state` (of the head), `node_drain`, `node_holds`."""

    def __init__(
        self,
        loop: Loop,
        state: NodeState,
        operations: Operations,
        nodes: Nodes,
        feed: Callable[[ev.Event], None],
        jobs_running: Callable[[], int],
        cluster: Drained,
    ) -> None:
        self._loop = loop
        self._state = state
        self._nodes = nodes
        self._feed = feed
        self._jobs_running = jobs_running
        self._cluster = cluster
        self._deadline: float | None = None
        self._reason = ""
        operations.offer("drain", self.drain, of_head=True)
        operations.offer("drain_state", self.drain_state, of_head=True)
        operations.offer("node_drain", self.node_drain)
        operations.offer("node_holds", self.node_holds)

    # ---- of the head ----

    def drain(self, params: dict[str, Any]) -> Pending:
        """Begin it; answered with the node's row of the table once the node has begun."""
        member = self._find(str(params["node"]))
        if member.number == self._cluster.members.head and not self._cluster.can_be_followed():
            raise ValueError(
                "the head cannot be drained: no other node could take over from it. Start one, or end the cluster "
                "with `weft stop --cluster`"
            )
        deadline_s = float(params.get("deadline_s", DEFAULT_DEADLINE_S))
        if not deadline_s >= 0:
            raise ValueError(f"the deadline must be zero seconds or more, but got {deadline_s}")
        view = self._state.cluster
        if view is not None and member.number in view.nodes:
            view.nodes[member.number].is_draining = True  # its own word comes with its next report
        asked = {"deadline_s": deadline_s, "reason": str(params.get("reason", ""))}
        row = {"node_id": member.node_id, "address": member.address}

        def begun(_: Any) -> dict[str, str]:
            """Reports that the node sent before have come: none makes it look like a place for its own actors."""
            self._move_actors(member.number)
            return row

        return self._nodes.ask_node(member.number, "node_drain", asked).map(begun)

    def drain_state(self, params: dict[str, Any]) -> dict[str, Any] | Pending:
        """{"state": "alive", "draining" or "dead", "why": of its death, "holds": what it waits for}."""
        member = self._find(str(params["node"]), living=False)
        if not member.is_alive:
            return {"state": "dead", "why": member.death, "holds": []}
        answer = Pending()

        def came(outcome: Outcome) -> None:
            now = self._cluster.members.members[member.number]
            if now.is_alive:
                answer.settle(outcome)
            else:  # it has left meanwhile
                answer.resolve({"state": "dead", "why": now.death, "holds": []})

        self._nodes.ask_node(member.number, "node_holds", {}).then(came)
        return answer

    def _find(self, wanted: str, living: bool = True) -> Member:
        members = [member for member in self._nodes.all_members() if member.is_alive or not living]
        found = [member for member in members if member.node_id.startswith(wanted) or member.address == wanted]
        if len(found) != 1 or not wanted:
            known = ", ".join(f"{member.node_id[:8]} at {member.address}" for member in members)
            what = "more than one node is" if found else "no living node is"
            raise LookupError(
                f"{what} called {wanted!r}: give the beginning of an id, or HOST:PORT. There are: {known}"
            )
        return found[0]

    def _move_actors(self, number: int) -> None:
        """Again and again, as long as it drains: more may be created, and other nodes may join to take them."""
        member = self._cluster.members.members.get(number)
        if member is None or not member.is_alive:
            return
        if number == self._cluster.members.own.number:
            processes = [worker.process for worker in self._state.workers]
        else:
            processes = self._cluster.processes_of(number)
        self._feed(ev.ActorsToMove(tuple(processes)))
        self._loop.call_later(CHECK_S, lambda: self._move_actors(number))

    # ---- of the node that leaves ----

    def node_drain(self, params: dict[str, Any]) -> None:
        """A second one may only bring the deadline forward."""
        is_first = self._deadline is None
        deadline = self._loop.now() + params["deadline_s"]
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
        self._reason = params["reason"] or self._reason
        if is_first:
            self._feed(ev.DrainBegun())
            self._cluster.report()
            self._loop.call_later(CHECK_S, self._check)

    def node_holds(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"state": "alive" if self._deadline is None else "draining", "why": "", "holds": self._holds()}

    def _holds(self) -> list[str]:
        state = self._state
        owners = [worker.pid for worker in state.workers if state.actor_places.is_needed(worker)]
        drivers = [job.pid for process, job in state.drivers.items() if self._nodes.is_local(process)]
        return what_holds(state.workers, owners, drivers, self._jobs_running())

    def _check(self) -> None:
        assert self._deadline is not None
        holds = self._holds()
        late_s = self._loop.now() - self._deadline
        if not holds or late_s >= 0:
            self._cluster.handover.ask()
            if not self._cluster.handover.waits_for or late_s >= OBJECTS_S:
                why = f" at its deadline, though {' and '.join(holds)}" if holds else ""
                reason = f" ({self._reason})" if self._reason else ""
                self._cluster.leave(f"it was drained{reason}{why}")
                return
        self._loop.call_later(CHECK_S, self._check)
