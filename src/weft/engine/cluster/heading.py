"""Who acts as the cluster's head: carries out what `state.headship` decides, and takes the head's duties over.

Runs in the daemon's thread, on every node. Taking over, in order: fence the head before (its writes are refused
from then on), read the control store's rows, tell all nodes, hear from each what lives there and what it had told
the head before, and go on. What comes for the head meanwhile is held back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.store import Store
from weft.engine.cluster.store_servers import StoreServers
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.chronicle import HEAD, WARNING
from weft.engine.state import events as ev
from weft.engine.state import headship as do
from weft.engine.state.actors import NODE_LOST
from weft.engine.state.events import FoundActor
from weft.engine.state.headship import BEAT_S, RENEW_S, Headship, Role
from weft.engine.state.instructions import Ending
from weft.engine.wire import link_messages as lm
from weft.machine.start_error import StartError
from weft.net.loop import Timer
from weft.store.state.chain_layout import key_of_each_shard
from weft.store.state.chain_rows import Delete, Put
from weft.store.tables import HEADS

if TYPE_CHECKING:
    from weft.engine.cluster.membership import Membership
    from weft.engine.cluster.restoring import Rows
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon
    from weft.store.head_folder import HeadFolder, Tables

ANSWERED_S = 0.1
RESIGN_S = 2.0
"""A head that hands over waits no longer for its last rows to be safe; what they say is told again."""
FOLDER_AGAIN_S = 1.0
"""After so long a folder that another has open is tried again."""
_START_AGAIN = (
    "`weft start --head` on the machine of that head starts the cluster again, with the names, keys, jobs, "
    "detached and exact-state actors that its folder kept"
)
_encode = msgspec.msgpack.Encoder().encode


class Heading:
    """One daemon's part in having a head."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell, store: Store | None) -> None:
        self._daemon = daemon
        self._shell = shell
        self._loop = daemon.loop
        self.store = store
        self.state = Headship()
        self._timer: Timer | None = None
        self._is_ready = False
        """It has what a head must know."""
        self._held: list[Callable[[], None]] = []
        """What came for the head while it could not be served."""
        self._old: int | None = None
        """The head that was lost."""
        self._loss = ""
        self._rows: Rows | None = None
        self._awaited: set[int] = set()
        """Nodes that have not registered yet."""
        self._found: dict[bytes, FoundActor] = {}
        self._bundles: dict[bytes, dict[int, int]] = {}
        self.folder: HeadFolder | None = None
        """Where this node keeps, while it is the head, what the next one must know after the end of all nodes."""
        self.kept: Tables = {}
        """What the folder had when this node began the cluster."""
        self._has_complained = False
        self._hands_over = False
        """It was asked to end, and its last rows are being written."""
        self._is_closed = False
        self.servers = StoreServers(
            self._loop,
            store,
            shell.members,
            self.state,
            lambda: self._is_ready,
            lambda: self.is_head,
            self._found_store,
            shell.reporting.report,
        )

    @property
    def is_serving(self) -> bool:
        """Whether this node is the head, knows all that it must, and has its lease."""
        return self._is_ready and (self.store is None or self.state.may_act(self._loop.now()))

    @property
    def is_head(self) -> bool:
        """Whether what is for the head is this node's affair, even if it cannot serve it now."""
        return self._is_ready or self.state.role in (Role.WON, Role.ACTING, Role.RESTING)

    def start(self) -> None:
        """This node is in."""
        members = self._shell.members
        if self.store is not None:
            members.state.may_decide = self.state.may_act
        self._daemon.state.standing.is_head = members.is_head
        self._daemon.operations.ask_head = None if members.is_head else self._shell.following.ask
        self._daemon.operations.offer("head", self._head_row, of_head=True)
        self._daemon.operations.offer("end_cluster", self._end_cluster, of_head=True)
        self.state.epoch = members.epoch
        if members.is_head:
            self._is_ready = True
            self.state.founded()
            if self.folder is not None:
                self._start_from(self.folder)
        elif self.folder is not None:
            from weft.store.head_folder import supersede

            supersede(self.folder.path, _name_of_head(members))
        if self.store is not None:
            self._beat()

    def _start_from(self, folder: HeadFolder) -> None:
        """This node begins the cluster, or starts it again with what its head had kept."""
        from weft.store.head_folder import epoch_in, row_of_epoch

        keeping, members = self._shell.keeping, self._shell.members
        keeping.use_folder(folder)
        tables, self.kept = self.kept, {}
        before = epoch_in(tables)
        self.state.epoch = before + 1
        keeping.write([row_of_epoch(self.state.epoch)])
        if not before:
            keeping.keep_all()
            return
        from weft.engine.cluster.restoring import restore, rows_in

        rows = rows_in(tables)
        members.took_over(rows.members, self.state.epoch)
        keeping.member(members.own)
        restore(self._daemon, self._shell, rows, self.state.epoch, None, {}, {}, is_restart=True)
        own = members.own
        text = f"node {own.node_id[:8]} at {own.address} started the cluster again, as head"
        self._daemon.chronicle.note(HEAD, own.node_id, text, WARNING)
        self._daemon.feed(ev.HeadReady())

    def _keep_in_folder(self) -> None:
        """As a head that has taken over: the folder of this machine is to have what the control store has."""
        folder, store = self.folder, self.store
        if folder is None or store is None or self._is_closed or not self._is_ready or folder.is_open:
            return
        from weft.engine.cluster.restoring import read_tables

        def failed(_: str) -> None:
            keeping.let_go_of_folder()
            folder.close()
            self._loop.call_later(FOLDER_AGAIN_S, self._keep_in_folder)

        try:
            folder.open(is_successor=True)
        except StartError as error:  # the head before may be about to end
            if not self._has_complained:
                self._has_complained = True
                print(f"weft: this head cannot keep its store yet: {error}", file=sys.stderr, flush=True)
            self._loop.call_later(FOLDER_AGAIN_S, self._keep_in_folder)
            return
        keeping, epoch = self._shell.keeping, self.state.epoch
        keeping.expect_folder()
        keeping.when_kept(
            lambda: read_tables(store, lambda tables: keeping.begin_folder(folder, tables, epoch), failed)
        )

    def _found_store(self) -> None:
        """There are other nodes that could take over: write all that the head keeps, and go on doing so."""
        if self.store is None or self._is_closed:
            return
        self.store.begin_epoch(self.state.epoch)
        self._shell.keeping.begin()
        self._shell.keeping.keep_all()
        self.store.found(self.servers.up)
        self._carry(self.state.store_begun(self._loop.now()))

    def store_lost(self) -> None:
        """The only server of the store is gone, and all rows with it; an empty one is being begun."""
        self.servers.begin_anew()
        self.state.founded()
        self._shell.keeping.begin_anew()
        self._carry(self.state.store_begun(self._loop.now()))

    def close(self) -> None:
        self._is_closed = True
        self._shell.keeping.let_go_of_folder()
        if self._hands_over and self.folder is not None:
            from weft.store.head_folder import supersede

            supersede(self.folder.path, "its head has ended, and handed over to another node of the cluster")
        if self.store is not None:
            self.store.close()

    def resign(self, why: str, then: Callable[[], None]) -> None:
        """This node is about to end: `then` is called once the others can do without it, where they ever can.
        Who asks again meanwhile is not called."""
        store, members = self.store, self._shell.members
        if self._hands_over:
            return None
        if store is None or (self.is_head and not self.can_be_followed):
            members.ends_cluster = members.is_head
            return then()
        if not self.is_head:
            return store.withdraw(then)
        self._hands_over = True
        self.state.resigned()
        death = why or lm.Leaving().why
        self._shell.keeping.member(msgspec.structs.replace(members.own, is_alive=False, death=death))
        is_over = False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                store.withdraw(then)

        self._shell.keeping.when_kept(over)
        self._loop.call_later(RESIGN_S, over)
        return None

    @property
    def can_be_followed(self) -> bool:
        """Whether what the head keeps is also beside a node that could take over."""
        if self.store is None or not any(self._shell.reporting.has_store.values()):
            return False
        return self.store.statistics()["replicas"] > 1

    def _head_row(self, params: dict[str, Any]) -> dict[str, Any]:
        """Of the node that acts as head."""
        own = self._shell.members.own
        store = {} if self.store is None else self.store.statistics()
        return {"number": own.number, "node_id": own.node_id, "epoch": self.state.epoch, "store": store}

    def _end_cluster(self, params: dict[str, Any]) -> dict[str, Any]:
        """Once this has been answered."""
        self._loop.call_later(ANSWERED_S, lambda: self._shell.end_cluster("the cluster was asked to end"))
        return {"cluster": self._shell.cluster_address, "nodes": len(list(self._shell.members.alive()))}

    def hold(self, call: Callable[[], None]) -> None:
        """Until this head serves."""
        self._held.append(call)

    # ---- the lease and the loss of the head ----

    def lost(self, reason: str, is_certain: bool) -> None:
        if self.state.role is Role.FOLLOWING:
            self._old = self._shell.members.lost_head
            self._loss = reason
        self.state.head_lost(is_certain, self._loop.now())
        self._shell.reporting.report()
        self._beat()

    def found(self) -> None:
        """The head that was doubted is heard again."""
        self.state.head_found()
        if self.state.role is Role.FOLLOWING:
            self._old = None
            self._shell.reporting.report()

    def _beat(self) -> None:
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        members = self._shell.members
        heard = members.heard()
        is_heard = members.head_may_answer or any(self._shell.reporting.hears_head.get(one, False) for one in heard)
        turn = sum(number < members.own.number for number in heard)
        is_cut_off = members.is_cut_off and not members.head_may_answer
        can_claim = any(self._shell.reporting.has_store.get(one, False) for one in heard)
        now = self._loop.now()
        self._carry(self.state.beat(is_heard, turn, now, is_cut_off, self._shell.reporting.is_backed(heard), can_claim))
        if self._has_no_hope():
            text = f"the head of the cluster is gone ({self._loss}), and too little of the control store is left"
            # Who hears nobody may be the one that is not heard.
            is_over = bool(members.links) or self.state.is_certain
            text += f" to follow it: most of the servers that decide died at once. {_START_AGAIN}"
            self._shell.lost(text, Ending.WITH_CLUSTER if is_over else Ending.LEFT_BEHIND)
            return
        if self._held and self.is_serving:
            held, self._held = self._held, []
            for call in held:
                call()
        is_calm = self.state.role in (Role.FOLLOWING, Role.ACTING)
        self._timer = self._loop.call_later(RENEW_S if is_calm else BEAT_S, self._beat)

    def _has_no_hope(self) -> bool:
        assert self.store is not None
        is_known = self.servers.is_here or any(self._shell.reporting.has_store.values())
        # A store that is lost may find that the last of its servers can go on alone; another's may yet be told of.
        return self.state.has_no_hope(is_known and not self.store.is_lost, self._loop.now())

    def _carry(self, instructions: list[do.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, do.Claim):
                self._claim(one)
            elif isinstance(one, do.ReadClaim):
                self._read_claim(one)
            elif isinstance(one, do.Act):
                self._take_over(one.epoch)
            elif isinstance(one, do.End):
                self._shell.lost(one.reason, Ending.LEFT_BEHIND)

    def _claim(self, one: do.Claim) -> None:
        assert self.store is not None
        own = self._shell.members.own
        row = Put(HEADS, b"%d" % one.epoch, _encode((own.number, own.node_id, own.address)), if_absent=True)

        def done(has_won: Any, error: str) -> None:
            now = self._loop.now()
            if error:
                self._carry(self.state.store_failed(now))
            else:
                self._carry(self.state.claimed(one.epoch, bool(has_won), one.asked_at, now))
                if has_won:
                    self._shell.members.won_by(own.number, own.address, one.epoch)
                else:
                    self._read_claim(one)
                self.servers.enlist()

        self.store.write([row], done)

    def _read_claim(self, one: do.ReadClaim | do.Claim) -> None:
        assert self.store is not None

        def done(values: Any, error: str) -> None:
            now = self._loop.now()
            if error:
                self._carry(self.state.store_failed(now))
            else:
                self._carry(self.state.claim_read(one.epoch, values[0] is not None, one.asked_at, now))
                if values[0] is not None and not self._is_closed:
                    number, _, *rest = msgspec.msgpack.decode(values[0])  # no address from an older Weft
                    self._shell.members.won_by(number, rest[0] if rest else "", one.epoch)

        self.store.read([(HEADS, b"%d" % one.epoch)], done)

    # ---- following another ----

    def head_came(self, link: NodeLink, message: lm.HeadIs) -> None:
        """A node has taken over: tell it all that the head must know of this one."""
        self._carry(self.state.deposed(message.epoch))
        if not self.state.heard(message.epoch):
            return
        shell = self._shell
        old = shell.members.head if self._old is None else self._old
        self._old = None
        shell.members.head_is(link.peer, message.epoch)
        new = shell.names.to_local((link.peer, *DAEMON))
        if old is not None and (process := shell.names.proxies.get((old, *DAEMON))) is not None:
            hosted = frozenset(found.worker for found in shell.places.found_here().values())
            self._daemon.feed(ev.HeadChanged(process, new, hosted))
            shell.proxy_died((old, *DAEMON), "it was the head, and died", NODE_LOST)
        link.send(shell.places.hosted_message())
        shell.following.register()
        link.send(lm.Registered(message.epoch, "" if self.store is None else self.store.address))
        shell.following.ask_again()
        self._daemon.chronicle.head_is_there()
        shell.inheritance.tell_again()
        shell.reporting.report()

    # ---- taking over ----

    def _take_over(self, epoch: int) -> None:
        assert self.store is not None
        self.store.begin_epoch(epoch)
        self._shell.keeping.begin()
        fences = [Delete(HEADS, key) for key in key_of_each_shard(b"fence", self.store.shards)]
        self._shell.keeping.write(list(fences), lambda: self._read(epoch))

    def _read(self, epoch: int) -> None:
        from weft.engine.cluster.restoring import read_rows  # only who takes over needs it

        assert self.store is not None

        def failed(reason: str) -> None:
            self._shell.lost(f"this node could not take over as the cluster's head: {reason}", Ending.FAILED)

        read_rows(self.store, lambda rows: self._tell_all(epoch, rows), failed)

    def _tell_all(self, epoch: int, rows: Rows) -> None:
        members = self._shell.members
        self._rows = rows
        self._found = self._shell.places.found_here()
        self._bundles = {}
        self._add_bundles(members.own.number, self._daemon.state.bundles.by_group())
        self._awaited = set(members.links)
        members.broadcast(lm.HeadIs(epoch))
        members.took_over(rows.members, epoch)
        self._finish_if_all_came()

    def hosted_came(self, link: NodeLink, message: lm.Hosted) -> None:
        for slot, generation, pid, actor, incarnation, is_created in message.actors:
            worker = self._shell.names.to_local((link.peer, slot, generation))
            found = self._found.get(actor)
            if found is None or found.incarnation < incarnation:
                self._found[actor] = FoundActor(worker, pid, incarnation, is_created)
        self._add_bundles(link.peer, message.bundles)

    def _add_bundles(self, node: int, bundles: dict[bytes, list[int]]) -> None:
        for group, indexes in bundles.items():
            self._bundles.setdefault(group, {}).update(dict.fromkeys(indexes, node))

    def registered(self, link: NodeLink, message: lm.Registered) -> None:
        if message.store:
            self.servers.listens(link.peer, message.store)
        self._awaited.discard(link.peer)
        self._finish_if_all_came()

    def node_gone(self, number: int) -> None:
        self._awaited.discard(number)
        self.servers.node_gone(number)
        self._finish_if_all_came()
        if self._is_ready:
            self.servers.enlist()

    def _finish_if_all_came(self) -> None:
        rows = self._rows
        if rows is None or self._awaited:
            return
        from weft.engine.cluster.restoring import restore

        self._rows = None
        old = None if self._old is None else self._shell.names.proxies.get((self._old, *DAEMON))
        restore(self._daemon, self._shell, rows, self.state.epoch, old, self._found, self._bundles)
        if self._old is not None:
            self._shell.proxy_died((self._old, *DAEMON), "it was the head, and died", NODE_LOST)
        self._old = None
        self._found, self._bundles = {}, {}
        self._daemon.operations.ask_head = None
        self._is_ready = True
        own = self._shell.members.own
        self._daemon.chronicle.note(
            HEAD, own.node_id, f"node {own.node_id[:8]} at {own.address} took over as head", WARNING
        )
        self._daemon.chronicle.head_is_there()
        self.servers.listens(own.number, self.store.address if self.store is not None else "")
        for process, kind, payload in self._shell.following.became_head():
            self._daemon.rings.handle(process, kind, payload)
        held, self._held = self._held, []
        for call in held:
            call()
        self._daemon.feed(ev.HeadReady())
        self._shell.following.ask_again()
        self._shell.inheritance.tell_again()
        self._shell.reporting.report()
        self.servers.enlist()
        self._keep_in_folder()


def _name_of_head(members: Membership) -> str:
    """For people, and for another time."""
    head = members.members.get(-1 if members.head is None else members.head)
    where = "another node" if head is None else f"node {head.node_id[:8]} at {head.address}"
    return f"{where} is the head of the cluster in epoch {members.epoch}"
