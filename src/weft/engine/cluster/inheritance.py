"""What passes on between nodes from the dead: rows that travel, the executor's orders, claims in the control store.

Runs in the daemon's thread. `state.inheritance` decides, `node.inheritance` deals with the processes of this node.
While an owner lives, every node that has a borrower of an object of its gets a copy of the object's row, before the
ref: what it takes to own it, in the link's names, so that it stays true when processes and nodes come and go.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.cluster.directory import Directory, ObjectRow, Owned, decode_row, encode
from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.inheritance import NOBODY, Bequest, Row, needed_rows
from weft.engine.node.kept_objects import KeptRow
from weft.engine.node.operations import Outcome
from weft.engine.state import inheritance as inh
from weft.engine.state.events import Process
from weft.engine.state.inheritance import Estate, Homes, Origin, Part, Settlements
from weft.engine.state.node import Shape
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess, LeftRow, LeftShape

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.cluster.store import Store
    from weft.engine.node.daemon import NodeDaemon

DOUBT_S = 1.0
DOUBTS = 12
"""So often the head looks whether a node that another takes for dead is so, before it lets one of the two go. Longer
than it takes to notice a node's silence."""
LINGER_S = 10.0
"""So long rows of the dead stay here after the estate is settled: their heirs' own rows are on their way."""
SETTLED_KEPT = 256
_COUNT = struct.Struct("<II")
_ID_BYTES = 16


class RowsLeft(msgspec.Struct):
    """What a node has of its own dead."""

    rows: list[ObjectRow] = []
    functions: dict[int, bytes] = {}


class ClusterInheritance:
    """One daemon's."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell, store: Store | None) -> None:
        self._daemon = daemon
        self._shell = shell
        self._port = daemon.port
        self._here = daemon.inheritance
        self._here.cluster = self
        self.directory = Directory(daemon.loop, store, shell.heading.need_store)
        self._settlements = Settlements()
        self._rows: dict[bytes, ObjectRow] = {}
        """Of other nodes' objects that have borrowers here, or that were read from the store."""
        self._functions: dict[int, bytes] = {}
        self._shapes: dict[tuple[GlobalProcess, int], LeftShape] = {}
        """Of rows that came, and that went."""
        self._made_shapes: dict[tuple[GlobalProcess, int], Shape] = {}
        self._sent: set[tuple[int, Process, str, int]] = set()
        """(node, process, "function" or "shape", which): what has gone there."""
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
        self._bytes: dict[Estate, dict[Origin, tuple[int, int]]] = {}
        """Objects of a dead node that this node has now, by their old names."""
        self._fences: dict[int, tuple[set[int], int]] = {}
        self._asked: dict[int, tuple[int, Callable[[], None]]] = {}
        """Questions whether an heir on another node is ready: that node, and what follows."""
        daemon.operations.offer("heir_of", self.heir_of)
        daemon.operations.offer("rows_left", self.rows_left)

    @property
    def number(self) -> int:
        return self._shell.names.number

    def _nodes(self) -> list[int]:
        return [self.number, *self._shell.members.links]

    # ---- rows that travel ----

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """A record of a process of this node."""
        if kind == kinds.WITHDRAW:
            nodes = struct.unpack(f"<{(len(payload) - _ID_BYTES) // 4}I", payload[_ID_BYTES:])
            if kinds.STORE_NODE in nodes:
                self._daemon.kept.withdraw((self.number, *process), payload[:_ID_BYTES])
            self.directory.forget(((self.number, *process), payload[:_ID_BYTES]))
            for node in nodes:
                self._shell.members.send(node, lm.Withdraw(*process, payload[:_ID_BYTES]))
            return True
        count, _ = _COUNT.unpack_from(payload)
        nodes = struct.unpack_from(f"<{count}I", payload, _COUNT.size)
        at = _COUNT.size + 4 * count
        identity, function, shape, needs, entry, generation, size, in_arena, _ = kinds.ROW_HEAD.unpack_from(payload, at)
        at += kinds.ROW_HEAD.size
        end = at + needs * _ID_BYTES
        needed = tuple(payload[i : i + _ID_BYTES] for i in range(at, end, _ID_BYTES))
        arena = (entry, generation, size) if in_arena else None
        left = self._to_link(Row(identity, process, function, None, shape, needed, arena, payload[end:]))
        left_shape, record = None, b""
        if function:
            left_shape = self._shape_left(process, shape)
            record = self._daemon.functions.find(function) or b""
        self._known.add(process)
        self.directory.save(left, left_shape, record)
        for node in nodes:
            if node == kinds.STORE_NODE:
                row = KeptRow(left.owner, left.needs, function, encode(ObjectRow(left, left_shape)))
                self._daemon.kept.keep(identity, row, record)
            else:
                self._deposit(node, process, left, left_shape, record)
        return True

    def _to_link(self, row: Row) -> LeftRow:
        arena: GlobalObject | None = None
        if row.arena is not None:
            known = self._shell.objects.imports.get(row.arena[:2])
            arena = (self.number, *row.arena) if known is None else known.origin
        owner = self._shell.names.to_global(row.owner)
        body = self._port.row_to_link(row.body)
        before = self.directory.before((owner, row.id))
        return LeftRow(row.id, owner, row.function, row.shape_number, list(row.needs), arena, body, before)

    def _shape_left(self, process: Process, number: int) -> LeftShape | None:
        """The same object for the same shape."""
        owner = (self.number, *process)
        left = self._shapes.get((owner, number))
        if left is None and (shape := self._daemon.state.shape_of(process, number)) is not None:
            left = self._shapes[owner, number] = _left_shape(owner, number, shape)
        return left

    def _deposit(self, node: int, process: Process, row: LeftRow, shape: LeftShape | None, record: bytes) -> None:
        function_sent = (node, process, "function", row.function)
        shape_sent = (node, process, "shape", row.shape)
        if function_sent in self._sent:
            record = b""
        if shape_sent in self._sent:
            shape = None
        if self._shell.members.send(node, lm.Deposit(row, record, shape)):
            if record:
                self._sent.add(function_sent)
            if shape is not None:
                self._sent.add(shape_sent)

    def deposit_came(self, link: NodeLink, message: lm.Deposit) -> None:
        row, shape = message.row, message.shape
        if row.owner[0] != link.peer:
            raise ValueError(f"a deposit of node {row.owner[0]} came from node {link.peer}")
        self._shell.names.to_local(row.owner)  # so that this node hears of its death
        if message.function:
            self._functions[row.function] = message.function
        if shape is not None:
            self._shapes[shape.owner, shape.number] = shape
        self._rows[row.id] = ObjectRow(row, self._shapes.get((row.owner, row.shape)))

    def withdraw_came(self, link: NodeLink, message: lm.Withdraw) -> None:
        known = self._rows.get(message.id)
        if known is not None and known.row.owner == (link.peer, message.slot, message.generation):
            del self._rows[message.id]

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

    def far_died(self, process: Process) -> None:
        """Its executor says when this node is to inherit; unless all that is over."""
        name = self._far.get(process)
        if name is None:  # of another daemon, which owns nothing
            self._here.settle(Part(0, (0, 0, 0), is_shared=True), [process])
        elif name not in self._settled and (name[0] in self._shell.members.links or name[0] in self._unsettled):
            return
        elif name in self._settled or (name[0], 0, 0) in self._settled:
            del self._far[process]
            self._here.settle(Part(0, name, is_shared=True), [process])
        else:  # its node was dead before this one came
            self._unsettled[name[0]] = None
            self._tell_lost(name[0])

    def died(self, estate: Estate, has_left: bool) -> None:
        """A process of this node that others know: this node is the executor."""
        process = estate[1:]
        self._known.discard(process)
        self._sent = {sent for sent in self._sent if sent[1] != process}
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
        self._sent = {sent for sent in self._sent if sent[0] != node}
        self._found = {pair for pair in self._found if node not in pair}
        for number, (nodes, _) in list(self._fences.items()):
            if node in nodes:
                self._answered(number, node)
        for number in [number for number, (asked, _) in self._asked.items() if asked == node]:
            self._asked.pop(number)[1]()
        self._carry(self._settlements.node_gone(node))
        self._unsettled[node] = None
        if node not in self._told:  # else the death of one of its processes was noticed first
            self._tell_lost(node)

    def tell_again(self) -> None:
        """There is another head. What was found again while there was none, nobody was told of."""
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
        objects = self._shell.objects
        copies: list[tuple[tuple[int, int, int], GlobalObject]] = []
        has_rows = False
        for one in self._rows.values():
            if one.row.owner[0] != node:
                continue
            home, has_rows = one.row.arena, True
            if home is None or home[0] != node:
                continue
            entry = objects.import_of(home[:3])
            if entry is not None and objects.imports[entry].has_bytes and self._port.exists(*entry):
                copies.append((home[:3], (self.number, *entry, home[3])))
        if self._shell.is_head:
            self._lost_came(self.number, node, dict(copies), has_rows)
        elif (head := self._shell.members.head) is not None:
            self._shell.members.send(head, lm.NodeLost(node, copies, has_rows))

    # ---- the executor ----

    def lost_came(self, link: NodeLink, message: lm.NodeLost) -> None:
        self._found.discard((link.peer, message.node))
        self._lost_came(link.peer, message.node, dict(message.copies), message.has_rows)

    def found_again(self, one: int, other: int) -> None:
        """They had lost each other for so long that what they had of each other is given up; but both live on."""
        self._found.add((one, other))

    def _lost_came(self, by: int, node: int, copies: Homes, has_rows: bool, doubts: int = DOUBTS) -> None:
        heading, links = self._shell.heading, self._shell.members.links
        if not heading.is_serving:
            if heading.is_head:
                heading.hold(lambda: self._lost_came(by, node, copies, has_rows))
            return
        estate = (node, 0, 0)
        # Who took over may have lost a node before, or been lost by one, and is linked to it again.
        if node in links or node == self.number:  # this node has not noticed yet; or only a link is lost
            if (by, node) in self._found or self.number in (by, node):
                self._send(by, lm.EstateSettled(estate))
                return
            if doubts:
                self._daemon.loop.call_later(DOUBT_S, lambda: self._lost_came(by, node, copies, has_rows, doubts - 1))
                return
            if by in links:
                self._part_two(by, node)
            if node in links:  # it is the other one that goes
                return
        if estate in self._settled:
            self._send(by, lm.EstateSettled(estate))
        else:
            self._carry(self._settlements.node_lost(by, estate, copies, has_rows, self._nodes()))

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
            elif isinstance(one, inh.DecideHomes):
                self._decide_homes(one)
            elif isinstance(one, inh.Inherit):
                for node in one.nodes:
                    self._send(node, lm.Inherit(one.estate, list(one.homes.items())))
            else:
                for node in self._nodes():
                    self._send(node, lm.EstateSettled(one.estate))

    def _decide_homes(self, one: inh.DecideHomes) -> None:
        def decided(homes: Homes) -> None:
            self._carry(self._settlements.decided(one.estate, homes, self._nodes()))

        self.directory.decide_homes(one.estate, one.homes, decided)

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
            self._bytes[message.estate] = self.rehome(message.homes)
            self._here.inherit(message.estate)
        elif part.is_done:
            self.part_done(part)

    def rehome(self, homes: list[tuple[tuple[int, int, int], GlobalObject]]) -> dict[Origin, tuple[int, int]]:
        """Those that are here, by their old names."""
        objects = self._shell.objects
        here: dict[Origin, tuple[int, int]] = {}
        for old, new in homes:
            if new[0] != self.number:
                objects.rewire(old, new)
            elif new[1:3] in objects.imports:
                objects.adopt(new[1:3])
                here[old] = new[1:3]
        return here

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
        rows = [one for one in self._rows.values() if _is_in(one.row.owner, part.estate)]
        unclaimed = [one for one in rows if one.row.id not in part.inherited]
        self.directory.add(unclaimed, lambda: self._say_inherited(estates))

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
        here = self._bytes.pop(estate, {})
        for one in self._rows.values() if here else ():
            if one.row.arena is not None and (entry := here.get(one.row.arena[:3])) is not None:
                kept[one.row.owner, one.row.id] = entry
        unsure = {owned for owned in kept if owned[1] not in part.inherited and not self._here.is_kept(owned[1])}

        def looked_up(found: Collection[Owned]) -> None:
            for owned in unsure.difference(found):
                if self._port.exists(*kept[owned]):
                    self._port.remove(*kept[owned])
            self._settle_part(part)

        if unsure:
            self.directory.heirs(unsure, looked_up)
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
        if estate[1] == 0:
            for one in self._here.state.of_node(estate[0]):
                if one is not part:
                    self._here.settle(one, ())
        self._here.settle(part, dead)

    def _forget(self, estate: Estate) -> None:
        """Rows of the dead; those that heirs have sent meanwhile have other owners."""
        if estate[0] in self._shell.members.links and estate[1] == 0:
            return
        for one in [one for one in self._rows.values() if _is_in(one.row.owner, estate)]:
            del self._rows[one.row.id]
        self._shapes = {key: shape for key, shape in self._shapes.items() if not _is_in(key[0], estate)}
        self._made_shapes = {key: shape for key, shape in self._made_shapes.items() if not _is_in(key[0], estate)}
        if estate[0] == self.number:
            self.directory.forget_owner(estate)
        elif estate[1] == 0 and self._shell.is_head:
            self.directory.forget_node(estate[0])

    # ---- claims ----

    def claim(self, part: Part, heir: Process, ids: Iterable[bytes]) -> None:
        names = self._shell.names
        owners = {identity: names.to_global(dead) for identity, dead in part.dead_owners.items()}
        missing = {(owners[identity], identity) for identity in ids if not self._has_row(identity)}
        if missing:
            self._read_rows(missing, lambda: self._claim(part, heir, list(ids), owners))
        else:
            self._claim(part, heir, list(ids), owners)

    def _has_row(self, identity: bytes) -> bool:
        return identity in self._here.rows or identity in self._rows

    def _read_rows(self, missing: set[Owned], then: Callable[[], None]) -> None:
        """From the store, and what they need. Chains are walked."""

        def came(found: dict[Owned, ObjectRow]) -> None:
            needed: set[Owned] = set()
            for (owner, _), one in found.items():
                self._rows[one.row.id] = one
                needed |= {(owner, need) for need in one.row.needs if not self._has_row(need)}
            functions = {one.row.function for one in found.values() if one.row.function not in (0, *self._functions)}
            self._read_functions(functions, lambda: self._read_rows(needed, then) if needed else then())

        def read(found: dict[Owned, ObjectRow]) -> None:
            self._ask_nodes_for(missing - found.keys(), lambda more: kept({**found, **more}))

        def kept(found: dict[Owned, ObjectRow]) -> None:
            self._ask_kept(missing - found.keys(), lambda more: came({**found, **more}))

        self.directory.read(missing, read)

    def _ask_nodes_for(self, missing: set[Owned], then: Callable[[dict[Owned, ObjectRow]], None]) -> None:
        """A ref that was passed on when its owner was dead, or about to die, and that is too young for the store: the
        owner's node has the row until the estate is settled; if that is dead, so has the node of who passed it on."""
        links = self._shell.members.links
        asked: dict[int, list[bytes]] = {}
        for owner, identity in missing:
            for node in (owner[0],) if owner[0] in links else links:
                asked.setdefault(node, []).append(identity)
        found: dict[Owned, ObjectRow] = {}
        waiting = len(asked)

        def came(outcome: Outcome) -> None:
            nonlocal waiting
            waiting -= 1
            left = msgspec.convert(outcome.value or {}, RowsLeft)
            self._functions.update(left.functions)
            found.update({(one.row.owner, one.row.id): one for one in left.rows})
            if waiting <= 0:
                then(found)

        if not asked:
            then(found)
        for node, ids in asked.items():
            self._daemon.ask_node(node, "rows_left", {"ids": ids}).then(came)

    def _ask_kept(self, missing: set[Owned], then: Callable[[dict[Owned, ObjectRow]], None]) -> None:
        """What outlives all processes; it may have had other owners since it was named."""
        names = {identity: owner for owner, identity in missing}

        def came(outcome: Outcome) -> None:
            found: dict[Owned, ObjectRow] = {}
            for row, function in outcome.value or ():
                one = decode_row(row)
                found[names.get(one.row.id, one.row.owner), one.row.id] = one
                if function:
                    self._functions[one.row.function] = function
            then(found)

        if names:
            self._daemon.operations.perform("rows_kept", {"ids": list(names)}).then(came)
        else:
            then({})

    def rows_left(self, params: dict[str, Any]) -> Any:
        """What dead processes have left here, of these and what they need: those of this node, and of dead nodes."""
        left = RowsLeft()
        ids = [bytes(identity) for identity in params["ids"]]
        far = {identity: one.row for identity, one in self._rows.items()}
        for identity, known in needed_rows(ids, far).items():
            left.rows.append(self._rows[identity])
            if known.function in self._functions:
                left.functions[known.function] = self._functions[known.function]
        for row in needed_rows(ids, self._here.rows).values():
            made = self._to_link(row)
            shape = None if row.shape is None else _left_shape(made.owner, row.shape_number, row.shape)
            left.rows.append(ObjectRow(made, shape))
            if row.function and (record := self._daemon.functions.find(row.function)) is not None:
                left.functions[row.function] = record
        return msgspec.to_builtins(left, builtin_types=(bytes,))

    def _read_functions(self, keys: set[int], then: Callable[[], None]) -> None:
        if not keys:
            then()
            return
        key = keys.pop()

        def came(record: bytes) -> None:
            if record:
                self._functions[key] = record
            self._read_functions(keys, then)

        self.directory.function(key, came)

    def _claim(self, part: Part, heir: Process, ids: list[bytes], owners: dict[bytes, GlobalProcess]) -> None:
        names = self._shell.names
        far = {identity: one.row for identity, one in self._rows.items()}
        wanted: dict[bytes, tuple[GlobalProcess, ...]] = {}
        for identity in (*needed_rows(ids, far), *needed_rows(ids, self._here.rows)):
            here = self._here.rows.get(identity)
            owner = names.to_global(here.owner) if here is not None else far[identity].owner
            before = self.directory.before((owner, identity)) if here is not None else far[identity].before
            wanted[identity] = (*before, owner, owners.get(identity, owner))
        missing = {need for identity in wanted for need in self._needs(identity)} - wanted.keys()
        dead = {identity: chain for identity, chain in wanted.items() if self._is_dead(chain[-1])}
        living = {identity: names.to_local(wanted[identity][-1]) for identity in wanted.keys() - dead.keys()}
        self._claim_along(part, heir, dead, [], living, list(missing))

    def _needs(self, identity: bytes) -> Iterable[bytes]:
        here = self._here.rows.get(identity)
        return here.needs if here is not None else self._rows[identity].row.needs

    def _claim_along(
        self,
        part: Part,
        heir: Process,
        wanted: dict[bytes, tuple[GlobalProcess, ...]],
        won: list[bytes],
        owners: dict[bytes, Process],
        lost: list[bytes],
    ) -> None:
        """An heir that is dead as well has heirs of its own. `wanted`: whose each was, last the one to claim from."""
        names = self._shell.names
        name = names.to_global(heir)

        def claimed(granted: set[Owned], others: dict[Owned, GlobalProcess]) -> None:
            for _, identity in granted:
                won.append(identity)
                self.directory.inherited((name, identity), tuple(dict.fromkeys(wanted[identity])))
            if not self._port.is_alive(*heir):
                self._daemon.loop.call_later(LINGER_S, lambda: self.directory.forget_owner(name))
                self._here.claimed(part.number, heir, won, owners, lost)
                return
            if granted:
                self._known.add(heir)  # who comes late finds that it is the heir
            further: dict[bytes, tuple[GlobalProcess, ...]] = {}
            for (_, identity), owner in others.items():
                if self._is_dead(owner):
                    further[identity] = (*wanted[identity], owner)
                else:
                    owners[identity] = names.to_local(owner)
            if further:
                self._claim_along(part, heir, further, won, owners, lost)
            else:
                self._here.claimed(part.number, heir, won, owners, lost)

        self.directory.claim([(chain[-1], identity) for identity, chain in wanted.items()], name, claimed)

    def _is_dead(self, name: GlobalProcess) -> bool:
        if name[0] == self.number:
            return not self._port.is_alive(*name[1:])
        return name in self._far.values() or name in self._settled or name[0] not in self._shell.members.links

    def bequest(self, identity: bytes, heir: Process) -> Bequest | None:
        """A row of another node's object, for an heir of this one."""
        known = self._rows.get(identity)
        if known is None:
            return None
        row, left = known.row, known.shape
        lost: list[tuple[int, int]] = []
        if row.arena is not None:
            self._have_here(row.arena, heir, lost)
        body, processes, _ = self._port.row_from_link(row.body, row.owner)
        if processes:
            for process in processes:
                self._shell.names.to_local(process)
            body, _, _ = self._port.row_from_link(row.body, row.owner)
        for entry in lost:
            self._port.forget_import(*entry)
        if left is None or not row.function:
            return Bequest(identity, b"", None, body)
        amounts = tuple((name, amount) for name, amount in left.amounts)
        made = Shape(amounts, left.runtime_env, left.refusal, left.strategy)
        shape = self._made_shapes.setdefault((left.owner, left.number), made)
        return Bequest(identity, self._functions.get(row.function, b""), shape, body)

    def _have_here(self, name: GlobalObject, heir: Process, lost: list[tuple[int, int]]) -> None:
        """A name of this node's for an object of which a process of it will be the owner; of one that is lost, too."""
        objects = self._shell.objects
        home = objects.moved.get(name[:3], name)
        if home[0] == self.number or home[0] in self._shell.members.links:
            objects.own(objects.to_local(name, heir))
            return
        made = self._port.import_object(name[3], *DAEMON)
        self._port.name_import(*made, *name)
        self._port.remove(*made)
        lost.append(made)

    # ---- fences ----

    def fence(self, part: int) -> None:
        """Once all that other nodes have sent until now is here."""
        nodes = set(self._shell.members.links)
        if not nodes:
            self._daemon.loop.call_later(0, lambda: self._here.fenced(part))
            return
        number = self._shell.next_ping()
        self._fences[number] = (nodes, part)
        self._shell.members.broadcast(lm.Ping(number))

    def answered(self, link: NodeLink, number: int) -> bool:
        """Whether that ping was one of these."""
        if number in self._asked:
            self._asked.pop(number)[1]()
            return True
        return number in self._fences and self._answered(number, link.peer)

    def _answered(self, number: int, node: int) -> bool:
        nodes, part = self._fences[number]
        nodes.discard(node)
        if not nodes:
            del self._fences[number]
            self._here.fenced(part)
        return True

    def when_ready(self, owners: set[Process], then: Callable[[], None]) -> None:
        """Once those of other nodes have adopted what they have claimed: their nodes know."""
        far = [name for name in map(self._shell.names.to_global, owners) if name[0] != self.number]
        waiting = len(far)

        def ready() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                then()

        if not far:
            then()
        for node, slot, generation in far:
            number = self._shell.next_ping()
            self._asked[number] = (node, ready)
            if not self._shell.members.send(node, lm.AskReady(number, slot, generation)):
                self._asked.pop(number)[1]()

    def ready_asked(self, link: NodeLink, message: lm.AskReady) -> None:
        process = (message.slot, message.generation)
        self._here.when_ready(process, lambda: link.send(lm.Pong(message.number)))

    # ---- refs that come late ----

    def look_up(self, process: Process, dead: Process, identity: bytes) -> None:
        """Of an owner that is settled: who has it now? Where nobody does, who asks is its heir, if there is a row."""
        owner = self._shell.names.to_global(dead)
        if dead == NOBODY:
            if (known := self._rows.get(identity)) is None:
                self._here.answer(process, identity, None)
                return
            owner = known.row.owner
            dead = self._shell.names.to_local(owner)

        def came(found: dict[Owned, GlobalProcess]) -> None:
            heir = found.get((owner, identity))
            if heir is None and owner[0] in self._shell.members.links and owner not in self._settled:
                self._ask_home(process, owner, identity)
            elif heir is None:
                self._here.came_late(owner, process, dead, identity)
            elif heir == self._shell.names.to_global(process) or self._is_dead(heir):
                self._follow(process, heir, identity)
            else:
                local = self._shell.names.to_local(heir)
                self.when_ready({local}, lambda: self._here.answer(process, identity, local))

        self.directory.heirs([(owner, identity)], came)

    def _ask_home(self, process: Process, owner: GlobalProcess, identity: bytes) -> None:
        """Its node lives, and knows whether a process there has it; or the owner itself lives, and only a link was lost
        for too long."""

        def came(outcome: Outcome) -> None:
            heir = outcome.value
            local = None if not heir else self._shell.names.to_local((heir[0], heir[1], heir[2]))
            self._here.answer(process, identity, local)

        self._daemon.ask_node(owner[0], "heir_of", {"id": identity}).then(came)

    def heir_of(self, params: dict[str, Any]) -> list[int] | None:
        heir = self._here.heir_of(bytes(params["id"]))
        return None if heir is None else list(self._shell.names.to_global(heir))

    def _follow(self, process: Process, heir: GlobalProcess, identity: bytes) -> None:
        """An heir that is dead."""
        local = heir[1:] if heir[0] == self.number else self._shell.names.to_local(heir)
        if local in self._here.unsettled:
            self._here.answer(process, identity, local)  # it waits, and asks again when that is settled
        else:
            self.look_up(process, local, identity)


def _left_shape(owner: GlobalProcess, number: int, shape: Shape) -> LeftShape:
    amounts, strategy = list(shape.amounts), dict(shape.strategy)
    return LeftShape(owner, number, amounts, shape.runtime_env, shape.refusal, strategy)


def _is_in(owner: GlobalProcess, estate: Estate) -> bool:
    return owner[0] == estate[0] if estate[1] == 0 else owner == estate
