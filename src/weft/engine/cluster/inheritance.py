"""What passes on between nodes from the dead: who of other nodes is dead, and this node's part in what they leave.

Runs in the daemon's thread. `state.inheritance` decides, `executor` gives the orders, `node.inheritance` deals with the
processes of this node, `left_rows` has what it takes to own what the dead have left, and `claims` who owns it now.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.engine.cluster.claims import LINGER_S, Claims
from weft.engine.cluster.executor import Executor, LostNodes
from weft.engine.cluster.fences import Fences
from weft.engine.cluster.left_rows import LeftRows, is_in
from weft.engine.state.inheritance import Estate, Part
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm

if TYPE_CHECKING:
    from weft.engine.cluster.directory import Owned
    from weft.engine.cluster.objects import Entry
    from weft.engine.cluster.parts import Parts
    from weft.engine.cluster.transport import NodeLink
    from weft.engine.state.events import Process
    from weft.engine.wire.link_messages import GlobalProcess
    from weft.store.served_store import Store

SETTLED_KEPT = 256


class ClusterInheritance:
    """One daemon's."""

    def __init__(self, parts: Parts, store: Store | None) -> None:
        self._parts = parts
        self._port = parts.port
        self._here = parts.here
        self._here.cluster = self
        self.left: LeftRows = LeftRows(parts, store)
        self.fences: Fences = Fences(parts.loop, parts.here, parts.members, parts.names, parts.pings)
        self._directory = self.left.directory
        self._known: set[Process] = set()
        """Processes of this node that have lent something to another node, or are dying and are watched from one."""
        self._far: dict[Process, GlobalProcess] = {}
        """Proxies of dead processes of other nodes that are not settled. One process may have had several: a new one
        is made whenever it is named, also while its node is out of reach."""
        self._settled: dict[Estate, None] = {}
        """The last ones."""
        self.executor = Executor(parts, self)
        self.lost = LostNodes(parts, self.executor, lambda node: bool(self.left.of((node, 0, 0))))
        self.claims = Claims(parts, self)

    @property
    def number(self) -> int:
        return self._parts.names.number

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """A record of a process of this node, of what it lends or takes back."""
        if kind == kinds.DEPOSIT:
            self._known.add(process)
        return self.left.takes(process, kind, payload)

    # ---- deaths ----

    def process_watched(self, process: Process) -> None:
        """A process of this node is dead, and others watch it; `died` follows."""
        self._known.add(process)

    def lends(self, process: Process) -> None:
        """It has something from now on that other nodes may ask for."""
        self._known.add(process)

    def is_known(self, process: Process) -> bool:
        """On other nodes: a row or a ref of its may be on its way there."""
        return process in self._known

    def proxy_dies(self, name: GlobalProcess, process: Process) -> None:
        """A process of another node is dead; `far_died` follows."""
        if name[1] != 0:
            self._far[process] = name

    def is_far(self, process: Process) -> bool:
        return process in self._far or self._port.is_proxy(process[0])

    def is_buried(self, name: GlobalProcess) -> bool:
        """Whether its estate is settled, or being so."""
        return name in self._settled or self._here.state.of(name) is not None

    def far_dies(self, process: Process) -> None:
        """`far_died` follows, when it is marked dead."""
        self._parts.objects.owner_dies(process, self._parts.names.to_global(process))

    def far_died(self, process: Process) -> None:
        """Its executor says when this node is to inherit; unless all that is over."""
        name = self._far.get(process)
        if name is None:  # of another daemon, which owns nothing
            self._here.settle(Part(0, (0, 0, 0), is_shared=True), [process])
        elif name not in self._settled and (name[0] in self._parts.members.links or name[0] in self.lost.unsettled):
            return
        elif name in self._settled or (name[0], 0, 0) in self._settled:
            self._settle_part(Part(0, name, is_shared=True))
        else:  # its node was dead before this one came
            self.lost.unsettled[name[0]] = None
            self.lost.tell(name[0])

    def has_heir(self, entry: Entry) -> None:
        """What a dead process of this node owned has another one for its owner. The node that has the bytes, if that is
        another, is told before the estate is settled: it frees then what nobody has inherited."""
        self._parts.objects.own(entry)

    def passed_on_here(self, identity: bytes, owner: Process, heir: Process) -> None:
        """Nobody elsewhere knew the dead owner. Its heir's rows name it: a ref to its object may be under way."""
        names = self._parts.names
        before = (names.to_global(owner), identity)
        self._directory.inherited((names.to_global(heir), identity), (*self._directory.before(before), before[0]))

    def settled_here(self, process: Process) -> None:
        """Nobody elsewhere knew it."""
        self._directory.forget_inherited(self._parts.names.to_global(process))

    def died(self, estate: Estate, has_left: bool) -> None:
        """A process of this node that others know: this node is the executor."""
        process = estate[1:]
        self._known.discard(process)
        self.left.process_died(process)
        self.executor.process_died(estate, has_left)

    def late_watch(self, link: NodeLink, process: Process) -> None:
        """A node asks for a process of this one that is dead already."""
        estate = (self.number, *process)
        if not self.executor.settlements.is_open(estate):
            link.send(lm.EstateSettled(estate))

    def linked(self, node: int) -> None:
        self._settled.pop((node, 0, 0), None)
        self.lost.linked(node)

    def node_gone(self, node: int) -> None:
        """After all of its processes are known to be dead."""
        self.left.node_gone(node)
        self.executor.node_gone(node)
        self.lost.gone(node)

    def lost_asked(self, node: int) -> None:
        """The executor asks: has this node lost that one, and rows of its?"""
        self.lost.asked(node)

    def tell_again(self) -> None:
        """There is another head. What was found again while there was none, nobody was told of."""
        self.left.functions.head_changed()
        self.lost.tell_again()
        for estate in self._settled:  # the head before may not have lived to forget it
            if estate[1] == 0:
                self._forget_later(estate)

    def is_settled(self, estate: Estate) -> bool:
        return estate in self._settled

    def _forget_later(self, estate: Estate) -> None:
        self._parts.loop.call_later(LINGER_S, lambda: self._forget(estate))

    # ---- this node's part ----

    def inherit(self, estate: Estate) -> None:
        """The executor's order; again, when another executor has begun anew."""
        part = self._here.state.of(estate)
        if part is None:
            self._here.inherit(estate)
        elif part.is_done:
            self.part_done(part)

    def dead_of(self, estate: Estate) -> list[Process]:
        """What the dead of an estate are called here, as far as they are known."""
        if estate[1] == 0:
            return [process for process, name in self._far.items() if name[0] == estate[0]]
        return [process for process, name in self._far.items() if name == estate]

    def part_done(self, part: Part) -> None:
        """Rows that nobody here referred to are for refs that are on their way to others."""
        if part.is_late:
            for identity, namers in part.named.items():
                for process in namers if identity in part.lost else ():
                    self._here.answer(process, identity, None)
            self._here.settle(part, ())
            return
        if part.estate[1] == 0 and any(not one.is_done for one in self._here.state.of_node(part.estate[0])):
            return  # what a process of it left is being claimed; that part's end comes here again
        estates = [one.estate for one in self._here.state.of_node(part.estate[0]) if one.is_done]
        unclaimed = [one for one in self.left.of(part.estate) if one.row.id not in part.inherited]
        self._directory.add(unclaimed, lambda: self._say_inherited(estates))

    def _say_inherited(self, estates: list[Estate]) -> None:
        for estate in estates:
            if estate[1] != 0:
                executor = estate[0] if estate[0] == self.number or estate[0] in self._parts.members.links else None
            else:
                executor = self.number if self._parts.members.is_head else self._parts.members.head
            if executor is not None:
                self.executor.send(executor, lm.Inherited(estate))

    def settle(self, estate: Estate) -> None:
        """Bytes that are here stay if the object has an heir anywhere."""
        part = self._here.state.of(estate) or Part(0, estate, is_shared=True)
        rows = [row for row in self._here.rows.values() if estate[0] == self.number and row.owner == estate[1:]]
        kept = {(estate, row.id): row.arena[:2] for row in rows if row.arena is not None}
        unsure = {owned for owned in kept if owned[1] not in part.inherited and not self._here.is_kept(owned[1])}

        def looked_up(found: Collection[Owned]) -> None:
            for owned in unsure.difference(found):
                if self._port.exists(*kept[owned]):
                    self._port.remove(*kept[owned])
            self._settle_part(part)

        if unsure:
            self._directory.heirs(unsure, looked_up)
        else:
            self._settle_part(part)

    def _settle_part(self, part: Part) -> None:
        estate = part.estate
        dead = self.dead_of(estate)
        if estate[1] == 0:
            self.lost.unsettled.pop(estate[0], None)
        if estate[1] != 0 or estate[0] not in self._parts.members.links:  # else only the link was lost
            self._settled[estate] = None
            for oldest in list(self._settled)[: max(0, len(self._settled) - SETTLED_KEPT)]:
                del self._settled[oldest]
            self._forget_later(estate)
        for process in dead:
            self._far.pop(process, None)
        self._parts.objects.free_orphans(lambda owner: is_in(owner, estate))
        if estate[1] == 0:
            for one in self._here.state.of_node(estate[0]):
                if one is not part:
                    self._here.settle(one, ())
        self._here.settle(part, dead)

    def _forget(self, estate: Estate) -> None:
        """Rows of the dead; those that heirs have sent meanwhile have other owners."""
        if estate[0] in self._parts.members.links and estate[1] == 0:
            return
        self.left.forget(estate)
        if estate[1] == 0:
            self._parts.objects.forget_node(estate[0])
        if estate[0] == self.number:
            self._directory.forget_owner(estate)
        elif estate[1] == 0 and self._parts.members.is_head:
            self._directory.forget_node(estate[0])

    def is_dead(self, name: GlobalProcess) -> bool:
        if name[0] == self.number:
            return not self._port.is_alive(*name[1:])
        return name in self._far.values() or name in self._settled or name[0] not in self._parts.members.links
