"""What passes on between nodes from the dead: who is dead, the executor's orders, this node's part.

Runs in the daemon's thread. `state.inheritance` decides, `node.inheritance` deals with the processes of this node,
`left_rows` has what it takes to own what the dead have left, and `claims` who owns it now.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.engine.cluster.claims import LINGER_S, Claims
from weft.engine.cluster.directory import Owned
from weft.engine.cluster.fences import Fences
from weft.engine.cluster.left_rows import LeftRows, is_in
from weft.engine.cluster.objects import Entry
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import inheritance as inh
from weft.engine.state.events import Process
from weft.engine.state.inheritance import Estate, Part, Settlements
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalProcess

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.cluster.store import Store
    from weft.engine.node.daemon import NodeDaemon

DOUBT_S = 1.0
DOUBTS = 12
"""So often the head looks whether a node that another takes for dead is so, before it lets one of the two go. Longer
than it takes to notice a node's silence."""
SETTLED_KEPT = 256


class ClusterInheritance:
    """One daemon's."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell, store: Store | None) -> None:
        self._daemon = daemon
        self._shell = shell
        self._port = daemon.port
        self._here = daemon.inheritance
        self._here.cluster = self
        self.left = LeftRows(daemon, shell, store)
        self.fences = Fences(daemon.loop, daemon.inheritance, shell.members, shell.names, shell.pings)
        self._directory = self.left.directory
        self._settlements = Settlements()
        self._known: set[Process] = set()
        """Processes of this node that have lent something to another node, or are dying and are watched from one."""
        self._far: dict[Process, GlobalProcess] = {}
        """Proxies of dead processes of other nodes that are not settled. One process may have had several: a new one
        is made whenever it is named, also while its node is out of reach."""
        self._unsettled: dict[int, None] = {}
        """Nodes that are dead, and whose estates are not settled."""
        self._told: set[int] = set()
        """Those of which the head was told since they were linked."""
        self._settled: dict[Estate, None] = {}
        """The last ones."""
        self._found: set[tuple[int, int]] = set()
        """Nodes that had lost each other and are linked again, as the first one says; of a head."""
        is_settled = self._settled.__contains__
        self.claims = Claims(daemon, shell, self.left, self.fences, self.is_dead, is_settled, self._known.add)

    @property
    def number(self) -> int:
        return self._shell.names.number

    def _nodes(self) -> list[int]:
        return [self.number, *self._shell.members.links]

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """A record of a process of this node, of what it lends or takes back."""
        if kind == kinds.DEPOSIT:
            self._known.add(process)
        return self.left.takes(process, kind, payload)

    # ---- deaths ----

    def process_watched(self, process: Process) -> None:
        """A process of this node is dead, and others watch it; `died` follows."""
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
        self._shell.objects.owner_dies(process, self._shell.names.to_global(process))

    def far_died(self, process: Process) -> None:
        """Its executor says when this node is to inherit; unless all that is over."""
        name = self._far.get(process)
        if name is None:  # of another daemon, which owns nothing
            self._here.settle(Part(0, (0, 0, 0), is_shared=True), [process])
        elif name not in self._settled and (name[0] in self._shell.members.links or name[0] in self._unsettled):
            return
        elif name in self._settled or (name[0], 0, 0) in self._settled:
            self._settle_part(Part(0, name, is_shared=True))
        else:  # its node was dead before this one came
            self._unsettled[name[0]] = None
            self._tell_lost(name[0])

    def has_heir(self, entry: Entry) -> None:
        """What a dead process of this node owned has another one for its owner. The node that has the bytes, if that is
        another, is told before the estate is settled: it frees then what nobody has inherited."""
        self._shell.objects.own(entry)

    def passed_on_here(self, identity: bytes, owner: Process, heir: Process) -> None:
        """Nobody elsewhere knew the dead owner. Its heir's rows name it: a ref to its object may be under way."""
        names = self._shell.names
        before = (names.to_global(owner), identity)
        self._directory.inherited((names.to_global(heir), identity), (*self._directory.before(before), before[0]))

    def settled_here(self, process: Process) -> None:
        """Nobody elsewhere knew it."""
        self._directory.forget_inherited(self._shell.names.to_global(process))

    def died(self, estate: Estate, has_left: bool) -> None:
        """A process of this node that others know: this node is the executor."""
        process = estate[1:]
        self._known.discard(process)
        self.left.process_died(process)
        self._carry(self._settlements.process_died(estate, self._nodes()) if has_left else [inh.Settle(estate)])

    def late_watch(self, link: NodeLink, process: Process) -> None:
        """A node asks for a process of this one that is dead already."""
        estate = (self.number, *process)
        if not self._settlements.is_open(estate):
            link.send(lm.EstateSettled(estate))

    def linked(self, node: int) -> None:
        self._settled.pop((node, 0, 0), None)
        self._told.discard(node)
        if node in self._unsettled:
            self._tell_found(node)

    def node_gone(self, node: int) -> None:
        """After all of its processes are known to be dead."""
        self.left.node_gone(node)
        self._found = {pair for pair in self._found if node not in pair}
        self._carry(self._settlements.node_gone(node, self._nodes()))
        self._unsettled[node] = None
        if node not in self._told:  # else the death of one of its processes was noticed first
            self._tell_lost(node)

    def tell_again(self) -> None:
        """There is another head. What was found again while there was none, nobody was told of."""
        self.left.functions.head_changed()
        for node in list(self._unsettled):
            self._tell_lost(node)
            if node in self._shell.members.links:
                self._tell_found(node)
        for estate in self._settled:  # the head before may not have lived to forget it
            if estate[1] == 0:
                self._forget_later(estate)

    def _forget_later(self, estate: Estate) -> None:
        self._daemon.loop.call_later(LINGER_S, lambda: self._forget(estate))

    def _tell_found(self, node: int) -> None:
        if not self._shell.is_head and (head := self._shell.members.head) is not None:
            self._shell.members.send(head, lm.FoundAgain(node))

    def lost_asked(self, node: int) -> None:
        """By the head, to which that node is dead. Who has not noticed it yet tells when it does; who has may have told
        nobody, because it was about to join."""
        if node not in self._shell.members.links:
            self._tell_lost(node)

    def _tell_lost(self, node: int) -> None:
        self._told.add(node)
        has_rows = bool(self.left.of((node, 0, 0)))
        if self._shell.is_head:
            self._lost_came(self.number, node, has_rows)
        elif (head := self._shell.members.head) is not None:
            self._shell.members.send(head, lm.NodeLost(node, has_rows))

    # ---- the executor ----

    def lost_came(self, link: NodeLink, message: lm.NodeLost) -> None:
        self._found.discard((link.peer, message.node))
        self._lost_came(link.peer, message.node, message.has_rows)

    def found_again(self, one: int, other: int) -> None:
        """They had lost each other for so long that what they had of each other is given up; but both live on."""
        self._found.add((one, other))

    def _lost_came(self, by: int, node: int, has_rows: bool, doubts: int = DOUBTS) -> None:
        heading, links = self._shell.heading, self._shell.members.links
        if not heading.is_serving:
            if heading.is_head:
                heading.hold(lambda: self._lost_came(by, node, has_rows))
            return
        estate = (node, 0, 0)
        # Who took over may have lost a node before, or been lost by one, and is linked to it again.
        if node in links or node == self.number:  # this node has not noticed yet; or only a link is lost
            if (by, node) in self._found or self.number in (by, node):
                self._send(by, lm.EstateSettled(estate))
                return
            if doubts:
                self._daemon.loop.call_later(DOUBT_S, lambda: self._lost_came(by, node, has_rows, doubts - 1))
                return
            if by in links:
                self._part_two(by, node)
            if node in links:  # it is the other one that goes
                return
        if estate in self._settled:
            self._send(by, lm.EstateSettled(estate))
        else:
            self._carry(self._settlements.node_lost(by, estate, has_rows, self._nodes()))

    def _part_two(self, one: int, other: int) -> None:
        """Two nodes that live have lost each other: one goes, so that what the other had of it passes on.

        The one without drivers, which would end with it; else the younger one."""
        names, jobs = self._shell.names, self._daemon.state.jobs.values()
        has_drivers = {names.to_global(job.driver)[0] for job in jobs if job.is_driver_alive}
        goes = max(one, other, key=lambda node: (node not in has_drivers, node))
        stays = one + other - goes
        self._shell.members.let_go(goes, f"it has lost node {stays}, and one of the two had to go")

    def _carry(self, orders: list[inh.Order]) -> None:
        for one in orders:
            if isinstance(one, inh.AskLost):
                for node in one.nodes:
                    self._send(node, lm.AskLost(one.estate[0]))
            elif isinstance(one, inh.Inherit):
                for node in one.nodes:
                    self._send(node, lm.Inherit(one.estate))
            else:
                for node in self._nodes():
                    self._send(node, lm.EstateSettled(one.estate))

    def _send(self, node: int, message: lm.AskLost | lm.Inherit | lm.Inherited | lm.EstateSettled) -> None:
        """To this node, too."""
        if node != self.number:
            self._shell.members.send(node, message)
        elif isinstance(message, lm.AskLost):
            self.lost_asked(message.node)
        elif isinstance(message, lm.Inherit):
            self._inherit(message)
        elif isinstance(message, lm.Inherited):
            self._carry(self._settlements.inherited(node, message.estate))
        else:
            self._settle(message.estate)

    def inherited_came(self, link: NodeLink, message: lm.Inherited) -> None:
        self._carry(self._settlements.inherited(link.peer, message.estate))

    # ---- this node's part ----

    def inherit_came(self, link: NodeLink, message: lm.Inherit) -> None:
        self._inherit(message)

    def _inherit(self, message: lm.Inherit) -> None:
        """Again, when another executor has begun anew."""
        part = self._here.state.of(message.estate)
        if part is None:
            self._here.inherit(message.estate)
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
                executor = estate[0] if estate[0] == self.number or estate[0] in self._shell.members.links else None
            else:
                executor = self.number if self._shell.is_head else self._shell.members.head
            if executor is not None:
                self._send(executor, lm.Inherited(estate))

    def settled_came(self, link: NodeLink, message: lm.EstateSettled) -> None:
        self._settle(message.estate)

    def _settle(self, estate: Estate) -> None:
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
            self._unsettled.pop(estate[0], None)
        if estate[1] != 0 or estate[0] not in self._shell.members.links:  # else only the link was lost
            self._settled[estate] = None
            for oldest in list(self._settled)[: max(0, len(self._settled) - SETTLED_KEPT)]:
                del self._settled[oldest]
            self._forget_later(estate)
        for process in dead:
            self._far.pop(process, None)
        self._shell.objects.free_orphans(lambda owner: is_in(owner, estate))
        if estate[1] == 0:
            for one in self._here.state.of_node(estate[0]):
                if one is not part:
                    self._here.settle(one, ())
        self._here.settle(part, dead)

    def _forget(self, estate: Estate) -> None:
        """Rows of the dead; those that heirs have sent meanwhile have other owners."""
        if estate[0] in self._shell.members.links and estate[1] == 0:
            return
        self.left.forget(estate)
        if estate[1] == 0:
            self._shell.objects.forget_node(estate[0])
        if estate[0] == self.number:
            self._directory.forget_owner(estate)
        elif estate[1] == 0 and self._shell.is_head:
            self._directory.forget_node(estate[0])

    def is_dead(self, name: GlobalProcess) -> bool:
        if name[0] == self.number:
            return not self._port.is_alive(*name[1:])
        return name in self._far.values() or name in self._settled or name[0] not in self._shell.members.links
