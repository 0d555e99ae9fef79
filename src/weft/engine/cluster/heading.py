"""Who acts as the cluster's head: carries out what `state.headship` decides, and takes the head's duties over.

Runs in the daemon's thread, on every node. Taking over, in order: fence the head before (its writes are refused
from then on), read the control store's rows, tell all nodes, hear from each what lives there and what it had told
the head before, and go on. What comes for the head meanwhile is held back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.cluster.heads_folder import HeadsFolder
from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.restoring import Restoring, Rows, read_rows
from weft.engine.cluster.store_servers import StoreServers
from weft.engine.node.chronicle import HEAD, WARNING, Chronicle
from weft.engine.state import events as ev
from weft.engine.state import headship as do
from weft.engine.state.actors import NODE_LOST
from weft.engine.state.events import FoundActor, Process
from weft.engine.state.headship import BEAT_S, RENEW_S, Headship, Role
from weft.engine.state.instructions import Ending
from weft.engine.wire import link_messages as lm
from weft.store.state.chain_layout import key_of_each_shard
from weft.store.tables import HEADS, Delete, Put

if TYPE_CHECKING:
    from weft.engine.cluster.following import Following
    from weft.engine.cluster.keeping import Keeping
    from weft.engine.cluster.membership import Membership
    from weft.engine.cluster.names import Names
    from weft.engine.cluster.places import Places
    from weft.engine.cluster.reporting import Reporting
    from weft.engine.cluster.transport import NodeLink
    from weft.engine.node.operations import Operations
    from weft.engine.state.node import NodeState
    from weft.net.loop import Loop, Timer
    from weft.store.served_store import Store

ANSWERED_S = 0.1
RESIGN_S = 2.0
"""A head that hands over waits no longer for its last rows to be safe; what they say is told again."""
_START_AGAIN = (
    "`weft start --head` on the machine of that head starts the cluster again, with the names, keys, jobs, "
    "detached and exact-state actors that its folder kept"
)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Around:
    """What it needs: of the daemon, of the other parts of the cluster, and of the shell."""

    loop: Loop
    state: NodeState
    feed: Callable[[ev.Event], None]
    operations: Operations
    chronicle: Chronicle
    handle: Callable[[Process, int, bytes], None]
    """A record of a process, that was held back."""
    members: Membership
    names: Names
    reporting: Reporting
    places: Places
    keeping: Keeping
    following: Following
    restoring: Restoring
    address: Callable[[], str]
    """Of the cluster."""
    lost: Callable[[str, Ending], None]
    end_cluster: Callable[[str], None]
    proxy_died: Callable[[tuple[int, int, int], str, int], None]
    tell_again: Callable[[], None]
    """There is another head: it must hear of the nodes that are lost."""


class Heading:
    """One daemon's part in having a head."""

    def __init__(self, around: Around, store: Store | None) -> None:
        self._around = around
        self._loop = around.loop
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
        self.memory = HeadsFolder(
            around.loop, around.keeping, around.members, around.restoring, around.chronicle, around.feed
        )
        """What the next head must know after the end of all nodes."""
        self._hands_over = False
        """It was asked to end, and its last rows are being written."""
        self._is_closed = False
        self.servers = StoreServers(
            self._loop,
            store,
            around.members,
            self.state,
            lambda: self._is_ready,
            lambda: self.is_head,
            self._found_store,
            around.reporting.report,
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
        members = self._around.members
        if self.store is not None:
            members.state.may_decide = self.state.may_act
        self._around.state.standing.is_head = members.is_head
        self._around.operations.ask_head = None if members.is_head else self._around.following.ask
        self._around.operations.offer("head", self._head_row, of_head=True)
        self._around.operations.offer("end_cluster", self._end_cluster, of_head=True)
        self.state.epoch = members.epoch
        if members.is_head:
            self._is_ready = True
            self.state.founded()
            if self.memory.folder is not None:
                self.state.epoch = self.memory.epoch + 1
                self.memory.begin(self.state.epoch)
        else:
            self.memory.supersede(_name_of_head(members))
        if self.store is not None:
            self._beat()

    def _keep_in_folder(self) -> None:
        """As a head that has taken over."""
        if self.store is not None and self._is_ready and not self._is_closed:
            self.memory.keep(self.store, self.state.epoch, self._keep_in_folder)

    def _found_store(self) -> None:
        """There are other nodes that could take over: write all that the head keeps, and go on doing so."""
        if self.store is None or self._is_closed:
            return
        self.store.begin_epoch(self.state.epoch)
        self._around.keeping.begin()
        self._around.keeping.keep_all()
        self.store.found(self.servers.up)
        self._carry(self.state.store_begun(self._loop.now()))

    def store_lost(self) -> None:
        """The only server of the store is gone, and all rows with it; an empty one is being begun."""
        self.servers.begin_anew()
        self.state.founded()
        self._around.keeping.begin_anew()
        self._carry(self.state.store_begun(self._loop.now()))

    def close(self) -> None:
        self._is_closed = True
        self._around.keeping.let_go_of_folder()
        if self._hands_over:
            self.memory.supersede("its head has ended, and handed over to another node of the cluster")
        if self.store is not None:
            self.store.close()

    def resign(self, why: str, then: Callable[[], None]) -> None:
        """This node is about to end: `then` is called once the others can do without it, where they ever can.
        Who asks again meanwhile is not called."""
        store, members = self.store, self._around.members
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
        self._around.keeping.member(msgspec.structs.replace(members.own, is_alive=False, death=death))
        is_over = False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                store.withdraw(then)

        self._around.keeping.when_kept(over)
        self._loop.call_later(RESIGN_S, over)
        return None

    @property
    def can_be_followed(self) -> bool:
        """Whether what the head keeps is also beside a node that could take over."""
        if self.store is None or not any(self._around.reporting.has_store.values()):
            return False
        return self.store.statistics()["replicas"] > 1

    def _head_row(self, params: dict[str, Any]) -> dict[str, Any]:
        """Of the node that acts as head."""
        own = self._around.members.own
        store = {} if self.store is None else self.store.statistics()
        return {"number": own.number, "node_id": own.node_id, "epoch": self.state.epoch, "store": store}

    def _end_cluster(self, params: dict[str, Any]) -> dict[str, Any]:
        """Once this has been answered."""
        self._loop.call_later(ANSWERED_S, lambda: self._around.end_cluster("the cluster was asked to end"))
        return {"cluster": self._around.address(), "nodes": len(list(self._around.members.alive()))}

    def mark_came(self, link: NodeLink, message: lm.Mark) -> None:
        """Answered once all that was told before is kept."""
        if self.is_serving:
            self._around.keeping.when_kept(lambda: link.send(lm.Marked(message.number)))
        elif self.is_head:
            self.hold(lambda: self.mark_came(link, message))

    def hold(self, call: Callable[[], None]) -> None:
        """Until this head serves."""
        self._held.append(call)

    # ---- the lease and the loss of the head ----

    def lost(self, reason: str, is_certain: bool, is_winner: bool) -> None:
        """`is_winner`: who was to follow it died before it could say that it is the head."""
        if self.state.role is Role.FOLLOWING:
            self._old = self._around.members.lost_head
            self._loss = reason
        if is_winner:
            self.state.winner_lost(self._loop.now())
        else:
            self.state.head_lost(is_certain, self._loop.now())
        self._around.reporting.report()
        self._beat()

    def found(self) -> None:
        """The head that was doubted is heard again."""
        self.state.head_found()
        if self.state.role is Role.FOLLOWING:
            self._old = None
            self._around.reporting.report()

    def _beat(self) -> None:
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        members = self._around.members
        heard = members.heard()
        is_heard = members.head_may_answer or any(self._around.reporting.hears_head.get(one, False) for one in heard)
        turn = sum(number < members.own.number for number in heard)
        is_cut_off = members.is_cut_off and not members.head_may_answer
        can_claim = any(self._around.reporting.has_store.get(one, False) for one in heard)
        now = self._loop.now()
        self._carry(
            self.state.beat(is_heard, turn, now, is_cut_off, self._around.reporting.is_backed(heard), can_claim)
        )
        if self._has_no_hope():
            text = f"the head of the cluster is gone ({self._loss}), and too little of the control store is left"
            # Who hears nobody may be the one that is not heard.
            is_over = bool(members.links) or self.state.is_certain
            text += f" to follow it: most servers that decide, or all that had some row, died at once. {_START_AGAIN}"
            self._around.lost(text, Ending.WITH_CLUSTER if is_over else Ending.LEFT_BEHIND)
            return
        if self._held and self.is_serving:
            held, self._held = self._held, []
            for call in held:
                call()
        is_calm = self.state.role in (Role.FOLLOWING, Role.ACTING)
        self._timer = self._loop.call_later(RENEW_S if is_calm else BEAT_S, self._beat)

    def _has_no_hope(self) -> bool:
        assert self.store is not None
        is_known = self.servers.is_here or any(self._around.reporting.has_store.values())
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
                self._around.lost(one.reason, Ending.LEFT_BEHIND)

    def _claim(self, one: do.Claim) -> None:
        assert self.store is not None
        own = self._around.members.own
        row = Put(HEADS, b"%d" % one.epoch, _encode((own.number, own.node_id, own.address)), if_absent=True)

        def done(has_won: Any, error: str) -> None:
            now = self._loop.now()
            if error:
                self._carry(self.state.store_failed(now))
            else:
                self._carry(self.state.claimed(one.epoch, bool(has_won), one.asked_at, now))
                if has_won:
                    self._around.members.won_by(own.number, own.address, one.epoch)
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
                    self._around.members.won_by(number, rest[0] if rest else "", one.epoch)

        self.store.read([(HEADS, b"%d" % one.epoch)], done)

    # ---- following another ----

    def head_came(self, link: NodeLink, message: lm.HeadIs) -> None:
        """A node has taken over: tell it all that the head must know of this one."""
        self._carry(self.state.deposed(message.epoch))
        if not self.state.heard(message.epoch):
            return
        around = self._around
        old = around.members.head if self._old is None else self._old
        self._old = None
        around.members.head_is(link.peer, message.epoch)
        new = around.names.to_local((link.peer, *DAEMON))
        if old is not None and (process := around.names.proxies.get((old, *DAEMON))) is not None:
            hosted = frozenset(found.worker for found in around.places.found_here().values())
            self._around.feed(ev.HeadChanged(process, new, hosted))
            around.proxy_died((old, *DAEMON), "it was the head, and died", NODE_LOST)
        link.send(around.places.hosted_message())
        around.following.register()
        link.send(lm.Registered(message.epoch, "" if self.store is None else self.store.address))
        around.following.ask_again()
        self._around.chronicle.head_is_there()
        around.tell_again()
        around.reporting.report()

    # ---- taking over ----

    def _take_over(self, epoch: int) -> None:
        assert self.store is not None
        self.store.begin_epoch(epoch)
        self._around.keeping.begin()
        fences = [Delete(HEADS, key) for key in key_of_each_shard(b"fence", self.store.shards)]
        self._around.keeping.write(list(fences), lambda: self._read(epoch))

    def _read(self, epoch: int) -> None:
        assert self.store is not None

        def failed(reason: str) -> None:
            self._around.lost(f"this node could not take over as the cluster's head: {reason}", Ending.FAILED)

        read_rows(self.store, lambda rows: self._tell_all(epoch, rows), failed)

    def _tell_all(self, epoch: int, rows: Rows) -> None:
        members = self._around.members
        self._rows = rows
        self._found = self._around.places.found_here()
        self._bundles = {}
        self._add_bundles(members.own.number, self._around.state.bundles.by_group())
        self._awaited = set(members.links)
        members.broadcast(lm.HeadIs(epoch))
        members.took_over(rows.members, epoch)
        self._finish_if_all_came()

    def hosted_came(self, link: NodeLink, message: lm.Hosted) -> None:
        for slot, generation, pid, actor, incarnation, is_created in message.actors:
            worker = self._around.names.to_local((link.peer, slot, generation))
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
        self._rows = None
        old = None if self._old is None else self._around.names.proxies.get((self._old, *DAEMON))
        self._around.restoring.restore(rows, self.state.epoch, old, self._found, self._bundles)
        if self._old is not None:
            self._around.proxy_died((self._old, *DAEMON), "it was the head, and died", NODE_LOST)
        self._old = None
        self._found, self._bundles = {}, {}
        self._around.operations.ask_head = None
        self._is_ready = True
        own = self._around.members.own
        self._around.chronicle.note(
            HEAD, own.node_id, f"node {own.node_id[:8]} at {own.address} took over as head", WARNING
        )
        self._around.chronicle.head_is_there()
        self.servers.listens(own.number, self.store.address if self.store is not None else "")
        for process, kind, payload in self._around.following.became_head():
            self._around.handle(process, kind, payload)
        held, self._held = self._held, []
        for call in held:
            call()
        self._around.feed(ev.HeadReady())
        self._around.following.ask_again()
        self._around.tell_again()
        self._around.reporting.report()
        self.servers.enlist()
        self._keep_in_folder()


def _name_of_head(members: Membership) -> str:
    """For people, and for another time."""
    head = members.members.get(-1 if members.head is None else members.head)
    where = "another node" if head is None else f"node {head.node_id[:8]} at {head.address}"
    return f"{where} is the head of the cluster in epoch {members.epoch}"
