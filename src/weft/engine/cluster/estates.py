"""A node's part in what passes on between nodes from the dead (`state.estates` decides, `node.custody` does it here).

Runs in the daemon's thread. While an owner lives, every node that has a borrower of an object of its gets a copy of the
object's row (a *deposit*): what it takes to own it, in the link's names, so that it stays true when processes and nodes
come and go. A dead process of a node that lives has left its ledger there, and that node decides. Of a dead node there
are only the deposits: every node tells the acting head what it has, and the head decides.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.operations import Outcome
from weft.engine.state.custody import Row
from weft.engine.state.estates import AdoptThere, AskNames, AskRows, Estate, Estates, Instruction
from weft.engine.state.events import Process
from weft.engine.state.node import Shape
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess, LeftRow, LeftShape

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon

DOUBT_S = 1.0
DOUBTS = 12
"""So often the head looks whether a node that another takes for dead is so, before it lets one of the two go. Longer
than it takes to notice a node's silence."""
_COUNT = struct.Struct("<II")
_ID_BYTES = 16


class _Deposits:
    """What one process has left here."""

    __slots__ = ("functions", "rows", "shapes")

    def __init__(self) -> None:
        self.rows: dict[bytes, LeftRow] = {}
        self.functions: dict[int, bytes] = {}
        self.shapes: dict[int, LeftShape] = {}


class EstatesShell:
    """One daemon's."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell) -> None:
        self._daemon = daemon
        self._shell = shell
        self._port = daemon.port
        self._custody = daemon.custody
        self._custody.estates = self
        self._state = Estates()
        self._deposits: dict[GlobalProcess, _Deposits] = {}
        self._sent: set[tuple[int, Process, str, int]] = set()
        """(node, process, "function" or "shape", which): what has gone there."""
        self._far: dict[Process, GlobalProcess] = {}
        """Proxies of dead processes of other nodes that are not settled. One process may have had several: a new one
        is made whenever it is named, also while its node is out of reach."""
        self._unsettled: dict[int, None] = {}
        """Nodes that are dead, and whose estates are not settled."""
        self._settled: set[int] = set()
        self._found: set[tuple[int, int]] = set()
        """Nodes that had lost each other and are linked again, as the first one says; of a head."""
        self._watched: set[Process] = set()
        """Processes of this node that are dying and are known on others."""
        self._own: dict[Estate, tuple[tuple[Process, ...], list[Row]]] = {}
        """Of this node's own dead: whose estate it is, and what is in it."""
        self._gathered: dict[Estate, tuple[dict[int, bytes], dict[tuple[GlobalProcess, int], LeftShape]]] = {}
        self._fences: dict[int, tuple[set[int], Callable[[], None]]] = {}
        daemon.operations.offer("orphan_owner", self.orphan_owner)

    # ---- deposits ----

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """A record of a process of this node."""
        if kind == kinds.WITHDRAW:
            for (node,) in struct.iter_unpack("<I", payload[_ID_BYTES:]):
                self._shell.members.send(node, lm.Withdraw(*process, payload[:_ID_BYTES]))
            return True
        count, _ = _COUNT.unpack_from(payload)
        nodes = struct.unpack_from(f"<{count}I", payload, _COUNT.size)
        at = _COUNT.size + 4 * count
        identity, function, shape, needs, entry, generation, size, in_arena, _ = kinds.ROW_HEAD.unpack_from(payload, at)
        at += kinds.ROW_HEAD.size
        end = at + needs * _ID_BYTES
        needed = [payload[i : i + _ID_BYTES] for i in range(at, end, _ID_BYTES)]
        arena = (entry, generation, size) if in_arena else None
        row = self._left_row(Row(identity, process, True, function, shape, tuple(needed), arena, payload[end:]))
        for node in nodes:
            self._deposit(node, process, row)
        return True

    def _left_row(self, row: Row) -> LeftRow:
        arena: GlobalObject | None = None
        if row.arena is not None:
            known = self._shell.objects.imports.get(row.arena[:2])
            arena = (self._shell.names.number, *row.arena) if known is None else known.origin
        owner = self._shell.names.to_global(row.owner)
        body = self._port.row_to_link(row.body)
        return LeftRow(row.id, owner, row.function, row.shape, list(row.needs), arena, body)

    def _left_shape(self, process: Process, number: int) -> LeftShape | None:
        shape = self._custody.shape_of(process, number)
        if shape is None:
            return None
        owner = self._shell.names.to_global(process)
        strategy = dict(shape.strategy)
        return LeftShape(owner, number, list(shape.amounts), shape.runtime_env, shape.refusal, strategy)

    def _deposit(self, node: int, process: Process, row: LeftRow) -> None:
        record, shape = b"", None
        if row.function:
            if (node, process, "function", row.function) not in self._sent:
                record = self._daemon.functions.find(row.function) or b""
            if (node, process, "shape", row.shape) not in self._sent:
                shape = self._left_shape(process, row.shape)
        if self._shell.members.send(node, lm.Deposit(row, record, shape)):
            if record:
                self._sent.add((node, process, "function", row.function))
            if shape is not None:
                self._sent.add((node, process, "shape", row.shape))

    def deposit_came(self, link: NodeLink, message: lm.Deposit) -> None:
        owner = message.row.owner
        if owner[0] != link.peer:
            raise ValueError(f"a deposit of node {owner[0]} came from node {link.peer}")
        if owner not in self._deposits:
            self._shell.names.to_local(owner)  # so that this node hears of its death
            self._deposits[owner] = _Deposits()
        left = self._deposits[owner]
        left.rows[message.row.id] = message.row
        if message.function:
            left.functions[message.row.function] = message.function
        if message.shape is not None:
            left.shapes[message.shape.number] = message.shape

    def withdraw_came(self, link: NodeLink, message: lm.Withdraw) -> None:
        if (left := self._deposits.get((link.peer, message.slot, message.generation))) is not None:
            left.rows.pop(message.id, None)

    # ---- deaths ----

    def was_watched(self, process: Process) -> None:
        """A process of this node is dead, and others know it; `left` follows."""
        self._watched.add(process)

    def proxy_dies(self, name: GlobalProcess, process: Process) -> None:
        """A process of another node is dead; `left` follows."""
        if name[1] != 0:
            self._far[process] = name

    def decides(self, process: Process) -> bool:
        """Whether what the dead one leaves may be known on other nodes."""
        return process in self._watched or process in self._far

    def left(self, process: Process, dead: tuple[Process, ...], rows: list[Row]) -> None:
        if process not in self._watched:
            name = self._far[process]
            if name[0] in self._settled and name[0] not in self._shell.members.links:
                self._settle(name, [name], None, [])
            return
        self._watched.discard(process)
        self._sent = {sent for sent in self._sent if sent[1] != process}
        number = self._shell.names.number
        estate = (number, *process)
        self._own[estate] = (dead, rows)
        functions: dict[int, bytes] = {}
        shapes: dict[tuple[GlobalProcess, int], LeftShape] = {}
        for row in rows:
            if row.function and (record := self._daemon.functions.find(row.function)) is not None:
                functions[row.function] = record
            if row.function and (shape := self._left_shape(row.owner, row.shape)) is not None:
                shapes[shape.owner, shape.number] = shape
        self._gathered[estate] = (functions, shapes)
        self._carry(self._state.opened(estate, [self._left_row(row) for row in rows], self._nodes()))

    def late_watch(self, link: NodeLink, process: Process) -> None:
        """A node asks for a process of this one that is dead already."""
        name = (self._shell.names.number, *process)
        if any(process in dead for dead, _ in self._own.values()):
            return  # it hears of the end like all others
        how = self._state.settled(name)
        link.send(lm.EstateSettled(name, [name], *((None, []) if how is None else (how.adopter, list(how.moved)))))

    def linked(self, node: int) -> None:
        self._settled.discard(node)
        if node in self._unsettled and not self._shell.is_head and (head := self._shell.members.head) is not None:
            self._shell.members.send(head, lm.FoundAgain(node))

    def node_gone(self, node: int) -> None:
        """After all of its processes are known to be dead."""
        self._sent = {sent for sent in self._sent if sent[0] != node}
        self._found = {pair for pair in self._found if node not in pair}
        for number, (nodes, _) in list(self._fences.items()):
            if node in nodes:
                self._answered(number, node)
        self._carry(self._state.node_gone(node, self._nodes()))
        self._unsettled[node] = None
        self._tell_head(node)

    def tell_again(self) -> None:
        """There is another head."""
        for node in list(self._unsettled):
            self._tell_head(node)

    def rows_asked(self, node: int) -> None:
        """By the head, to which that node is dead. Who has noticed it has told, and who has not will."""
        if node not in self._unsettled and node not in self._shell.members.links:
            self._tell_head(node)

    def _tell_head(self, node: int) -> None:
        owners = [owner for owner in self._deposits if owner[0] == node]
        objects = self._shell.objects
        copies: list[tuple[tuple[int, int, int], GlobalObject]] = [
            (known.origin[:3], (self._shell.names.number, *entry, known.origin[3]))
            for entry, known in objects.imports.items()
            if known.origin[0] == node and known.has_bytes and self._port.exists(*entry)
        ]
        functions: dict[int, bytes] = {}
        for owner in owners:
            functions.update(self._deposits[owner].functions)
        message = lm.RowsLeft(
            (node, 0, 0),
            [row for owner in owners for row in self._deposits[owner].rows.values()],
            copies,
            functions,
            [shape for owner in owners for shape in self._deposits[owner].shapes.values()],
        )
        if self._shell.is_head:
            self._rows_came(self._shell.names.number, message)
        elif (head := self._shell.members.head) is not None:
            self._shell.members.send(head, message)

    # ---- deciding ----

    def _nodes(self) -> list[int]:
        return [self._shell.names.number, *self._shell.members.links]

    def rows_came(self, link: NodeLink, message: lm.RowsLeft) -> None:
        self._found.discard((link.peer, message.estate[0]))
        self._rows_came(link.peer, message)

    def found_again(self, one: int, other: int) -> None:
        """They had lost each other for so long that what they had of each other is given up; but both live on."""
        self._found.add((one, other))

    def _rows_came(self, node: int, message: lm.RowsLeft, doubts: int = DOUBTS) -> None:
        heading = self._shell.heading
        if not heading.is_serving:
            if heading.is_head:
                heading.hold(lambda: self._rows_came(node, message))
            return
        estate = message.estate
        links = self._shell.members.links
        if estate[0] in links:  # this node has not noticed yet; or only a link is lost
            if (node, estate[0]) in self._found:
                self._found.discard((node, estate[0]))
                self._shell.members.send(node, lm.EstateSettled(estate, []))
                return
            if doubts:
                self._daemon.loop.call_later(DOUBT_S, lambda: self._rows_came(node, message, doubts - 1))
                return
            if node in links:
                self._part(node, estate[0])
            if estate[0] in links:  # it is the other one that goes
                return
        if (how := self._state.settled(estate)) is not None:
            settled = lm.EstateSettled(estate, [], how.adopter, list(how.moved))
            if node == self._shell.names.number:
                self._settle(estate, [], settled.adopter, settled.moved)
            else:
                self._shell.members.send(node, settled)
            return
        functions, shapes = self._gathered.setdefault(estate, ({}, {}))
        functions.update(message.functions)
        shapes.update({(shape.owner, shape.number): shape for shape in message.shapes})
        self._carry(self._state.rows_came(node, estate, message.rows, message.copies, self._nodes()))

    def _part(self, one: int, other: int) -> None:
        """Two nodes that live have lost each other: one goes, so that what the other had of it passes on.

        The one without drivers, which would end with it; else the younger one."""
        names, jobs = self._shell.names, self._daemon.state.jobs.values()
        has_drivers = {names.to_global(job.driver)[0] for job in jobs if job.is_driver_alive}
        goes = max(one, other, key=lambda node: (node not in has_drivers, node))
        stays = one + other - goes
        self._shell.members.let_go(goes, f"it has lost node {stays}, and one of the two had to go")

    def _carry(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, AskRows):
                self._ask_rows(one)
            elif isinstance(one, AskNames):
                self._ask_names(one)
            elif isinstance(one, AdoptThere):
                self._have_adopted(one)
            else:
                self._gathered.pop(one.estate, None)
                dead = self._dead_of(one.estate)
                self._shell.members.broadcast(lm.EstateSettled(one.estate, dead, one.adopter, list(one.moved)))
                self._settle(one.estate, dead, one.adopter, one.moved)

    def _ask_rows(self, one: AskRows) -> None:
        for node in one.nodes:
            if node == self._shell.names.number:
                self.rows_asked(one.estate[0])
            else:
                self._shell.members.send(node, lm.AskRows(one.estate[0]))

    def _ask_names(self, one: AskNames) -> None:
        number = self._shell.names.number
        question = lm.NameOrphans(one.estate, one.round, self._dead_of(one.estate))
        for node in one.nodes:
            if node == number:
                self._name(question, lambda claims: self._named(number, one.estate, one.round, claims))
            elif not self._shell.members.send(node, question):
                self._named(node, one.estate, one.round, {})

    def _dead_of(self, estate: Estate) -> list[GlobalProcess]:
        number = self._shell.names.number
        return [(number, *process) for process in self._own[estate][0]] if estate in self._own else []

    def named_came(self, link: NodeLink, message: lm.OrphansNamed) -> None:
        self._named(link.peer, message.estate, message.round, message.claims)

    def _named(self, node: int, estate: Estate, round_: int, claims: dict[bytes, list[GlobalProcess]]) -> None:
        self._carry(self._state.named(node, estate, round_, claims, self._nodes()))

    def _have_adopted(self, one: AdoptThere) -> None:
        if one.homes:
            self._shell.members.broadcast(lm.Rehomed(list(one.homes)))
            self._rehome(list(one.homes))
        functions, shapes = self._gathered[one.estate]
        claims = {identity: list(who) for identity, who in one.claims.items()}
        rows = list(one.rows)
        message = lm.AdoptEstate(one.estate, one.adopter, rows, claims, functions, list(shapes.values()))

        def answered(ok: bool) -> None:
            self._carry(self._state.adopted(one.estate, one.adopter, ok, self._nodes()))

        if one.adopter[0] == self._shell.names.number:
            self._adopt(message, answered)
        else:
            self._shell.members.send(one.adopter[0], message)

    def adopted_came(self, link: NodeLink, message: lm.EstateAdopted) -> None:
        self._carry(self._state.adopted(message.estate, message.adopter, message.ok, self._nodes()))

    # ---- what the one that decides has this node do ----

    def name_came(self, link: NodeLink, message: lm.NameOrphans) -> None:
        self._name(message, lambda claims: link.send(lm.OrphansNamed(message.estate, message.round, claims)))

    def _name(self, question: lm.NameOrphans, answer: Callable[[dict[bytes, list[GlobalProcess]]], Any]) -> None:
        names = self._shell.names

        def collect() -> None:
            dead = self._local(question.estate, question.dead)
            if not dead:
                answer({})
                return
            self._custody.collect(
                dead, lambda claims: answer({key: [names.to_global(who) for who in claims[key]] for key in claims})
            )

        if question.round == 1:
            collect()
        else:
            self._fence(collect)

    def _local(self, estate: Estate, dead: Iterable[GlobalProcess]) -> list[Process]:
        """What the dead of an estate are called here, as far as they are known."""
        if estate[1] == 0:
            return [process for process, name in self._far.items() if name[0] == estate[0]]
        known = set(dead)
        own = self._shell.names.number
        here = [name[1:] for name in known if name[0] == own]
        return here + [process for process, name in self._far.items() if name in known]

    def _fence(self, then: Callable[[], None]) -> None:
        """Once all that other nodes have sent until now is here."""
        nodes = set(self._shell.members.links)
        if not nodes:
            then()
            return
        number = self._shell.next_ping()
        self._fences[number] = (nodes, then)
        self._shell.members.broadcast(lm.Ping(number))

    def answered(self, link: NodeLink, number: int) -> bool:
        """Whether that ping was one of these."""
        return number in self._fences and self._answered(number, link.peer)

    def _answered(self, number: int, node: int) -> bool:
        nodes, then = self._fences[number]
        nodes.discard(node)
        if not nodes:
            del self._fences[number]
            then()
        return True

    def rehomed(self, link: NodeLink, message: lm.Rehomed) -> None:
        self._rehome(message.homes)

    def _rehome(self, homes: list[tuple[tuple[int, int, int], GlobalObject]]) -> None:
        objects = self._shell.objects
        for old, new in homes:
            if new[0] != self._shell.names.number:
                objects.rewire(old, new)
            elif new[1:3] in objects.imports:
                objects.adopt(new[1:3])

    def adopt_came(self, link: NodeLink, message: lm.AdoptEstate) -> None:
        self._adopt(message, lambda ok: link.send(lm.EstateAdopted(message.estate, message.adopter, ok)))

    def _adopt(self, message: lm.AdoptEstate, answer: Callable[[bool], Any]) -> None:
        adopter, names = message.adopter[1:], self._shell.names
        shapes = {
            (left.owner, left.number): Shape(
                tuple((name, amount) for name, amount in left.amounts), left.runtime_env, left.refusal, left.strategy
            )
            for left in message.shapes
        }
        lost: list[tuple[int, int]] = []
        rows = []
        for row in message.rows:
            if row.arena is not None:
                self._have_here(row.arena, adopter, lost)
            body, processes, _ = self._port.row_from_link(row.body, message.estate)
            if processes:
                for process in processes:
                    names.to_local(process)
                body, _, _ = self._port.row_from_link(row.body, message.estate)
            claimants = tuple(names.to_local(process) for process in message.claims.get(row.id, ()))
            shape = shapes.get((row.owner, row.shape)) if row.function else None
            rows.append((row.id, claimants, shape, body))
        for entry in lost:
            self._port.forget_import(*entry)
        self._custody.give(adopter, rows, message.functions.values(), answer)

    def _have_here(self, name: GlobalObject, adopter: Process, lost: list[tuple[int, int]]) -> None:
        """A name of this node's for an object of which the adopter will be the owner; of one that is lost, too."""
        objects = self._shell.objects
        home = objects.moved.get(name[:3], name)
        if home[0] == self._shell.names.number or home[0] in self._shell.members.links:
            objects.own(objects.to_local(name, adopter))
            return
        made = self._port.import_object(name[3], *DAEMON)
        self._port.name_import(*made, *name)
        self._port.remove(*made)
        lost.append(made)

    def settled_came(self, link: NodeLink, message: lm.EstateSettled) -> None:
        self._settle(message.estate, message.dead, message.adopter, message.moved)

    def _settle(
        self, estate: Estate, dead: list[GlobalProcess], adopter: GlobalProcess | None, moved: Iterable[bytes]
    ) -> None:
        local = self._local(estate, dead)
        kept = set(moved)
        owner = self._shell.names.to_local(adopter) if adopter is not None and kept else None
        if estate[1] == 0:
            self._unsettled.pop(estate[0], None)
            gone = {name for name in self._far.values() if name[0] == estate[0]}
            if estate[0] not in self._shell.members.links:  # else only the link was lost, and its processes live
                self._settled.add(estate[0])
                gone |= {name for name in self._deposits if name[0] == estate[0]}
        else:
            gone = set(dead)
        for process in local:
            self._far.pop(process, None)
        for name in gone:
            self._deposits.pop(name, None)
        for row in self._own.pop(estate, ((), []))[1]:
            if row.id not in kept and row.arena is not None and self._port.exists(*row.arena[:2]):
                self._port.remove(*row.arena[:2])
        self._custody.settle_estate(tuple(local), owner, kept)

    # ---- refs that come late ----

    def ask_home(self, process: Process, dead: Process, identity: bytes) -> bool:
        """The node of the dead owner knows who has it now. False when that node is dead, too."""
        node = self._port.far_name(*dead)[0]
        if node not in self._shell.members.links:
            return False

        def came(outcome: Outcome) -> None:
            owner = outcome.value
            local = None if not owner else self._shell.names.to_local((owner[0], owner[1], owner[2]))
            self._custody.answer(process, identity, local)

        self._daemon.ask_node(node, "orphan_owner", {"id": identity}).then(came)
        return True

    def orphan_owner(self, params: dict[str, Any]) -> list[int] | None:
        owner = self._custody.owner_of(bytes(params["id"]))
        return None if owner is None or not self._port.is_alive(*owner) else list(self._shell.names.to_global(owner))
