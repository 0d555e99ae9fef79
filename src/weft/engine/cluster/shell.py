"""A node's part in its cluster: passes records on, asks for leases, answers the other daemons.

Runs in the daemon's thread, and only where there is a cluster: a node of its own has none of this. See
docs/design/0002-cluster.md for what travels and why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.engine.cluster.calls import Calls
from weft.engine.cluster.draining import Drained, Draining
from weft.engine.cluster.far_groups import FarGroups
from weft.engine.cluster.far_records import FarRecords
from weft.engine.cluster.flushing import Flushing
from weft.engine.cluster.following import FOR_HEAD, Following, for_head
from weft.engine.cluster.guests import Guests
from weft.engine.cluster.handover import Handover
from weft.engine.cluster.heading import Around, Heading
from weft.engine.cluster.homes import Homes
from weft.engine.cluster.inheritance import ClusterInheritance
from weft.engine.cluster.keeping import Keeping
from weft.engine.cluster.membership import Membership
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import DAEMON, Objects
from weft.engine.cluster.parts import Parts
from weft.engine.cluster.peers import remember
from weft.engine.cluster.pings import Pings
from weft.engine.cluster.places import Places
from weft.engine.cluster.records import IncomingRecords, OutgoingRecords
from weft.engine.cluster.replicas import ReplicasShell
from weft.engine.cluster.reporting import Reporting
from weft.engine.cluster.restoring import Restoring
from weft.engine.cluster.transport import NodeLink, Transport
from weft.engine.node import outgoing
from weft.engine.node.chronicle import NODE, WARNING
from weft.engine.state import events as ev
from weft.engine.state.actors import NODE_LOST
from weft.engine.state.asking import Asking
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.events import Process
from weft.engine.state.instructions import Ending
from weft.engine.state.jobs import JobNumbers
from weft.engine.state.membership import MembershipState
from weft.engine.state.resources import to_amounts
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalProcess, Member
from weft.engine.wire.messages import Request
from weft.net.loop import OUT_OF_DESCRIPTORS, REST_S
from weft.store.served_store import Store

if TYPE_CHECKING:
    from weft.engine.node.daemon import NodeDaemon
    from weft.jobs.job_service import JobService

LEASE_SHIFT = 40
WATCH_AGAIN_S = 0.2
_LEFT = frozenset((kinds.DEPOSIT, kinds.WITHDRAW))
_LOOKED_AT = FOR_HEAD | {kinds.RESTORE, kinds.DEVICE_LOST, kinds.LEASE_RETURN, kinds.CONTROL} | _LEFT


class ClusterShell:
    """One daemon's links to all others and what goes over them."""

    def __init__(
        self, daemon: NodeDaemon, transport: Transport, head: str, own: Member, store: Store | None = None
    ) -> None:
        self._daemon = daemon
        self._port = daemon.port
        self._state = daemon.state
        self._loop = daemon.loop
        self.cluster_address = head or own.address
        self.folder = ""
        """Where the addresses of the cluster's nodes are written; empty: nowhere."""
        self.jobs_folder = ""
        """Where the files of jobs are, if they outlive this node's session."""
        self.error = ""
        self.on_joined: Callable[[], None] = lambda: None
        self._watchers: dict[Process, set[int]] = {}
        """Which nodes have a proxy for a process of this one."""
        self.members: Membership
        self.objects: Objects = Objects(
            self._port,
            daemon.loop,
            daemon.spilling,
            own.number,
            lambda node, message: self.members.send(node, message),
            lambda transfer: self.members.node_links.drop_chunks(transfer),
        )
        self.members = self._make_members(transport, own, head)
        transport.open(self.members.node_links)
        self.names: Names = Names(self._port, own.number, self._proxy_made)
        daemon.requests.key_values.name_of = self.names.to_global
        self._make_parts(store)
        self._handlers = self._make_handlers()

    def _make_members(self, transport: Transport, own: Member, head: str) -> Membership:
        return Membership(self._loop, transport, MembershipState(own, head), self, self.objects.pulls)

    def _make_parts(self, store: Store | None) -> None:
        """Each is given what it needs of those before it."""
        daemon, loop, state, members, names = self._daemon, self._loop, self._state, self.members, self.names
        self.pings: Pings = Pings(members)
        self.guests = Guests(self._port, state, daemon.feed, members, names)
        self.asking = Asking(
            state,
            daemon.feed,
            lambda node, process, ask: self.guests.send_to_daemon(node, process, *outgoing.encode_ask(ask)),
            members.send,
            self.guests.tell_job,
            daemon.send,
        )
        self.calls = Calls(loop, daemon.operations, members.send)
        self.reporting: Reporting = Reporting(
            loop, state, daemon.feed, members, self.asking, daemon.workers.zygote.renew_lease,
            lambda: (self.heading.is_head, self.heading.servers.is_here),
        )  # fmt: skip
        self.places = Places(
            state,
            daemon.feed,
            members,
            names,
            self.asking,
            self.guests,
            self.pings,
            daemon.functions.find,
            daemon.workers.kill_for_another,
        )
        self._flushing = Flushing(loop, daemon.output.flush, daemon.send, members, self.pings)
        self.handover = Handover(self.objects, members.send, members.broadcast)
        self.keeping = Keeping(self._port, state, daemon.tables, daemon.functions, members, names, store)
        self.following = Following(loop, daemon.operations, members, self.calls, self.guests)
        self.far_groups = FarGroups(state, daemon.feed, members, self.keeping.group, self.following.group_gone)
        self._far = FarRecords(
            self._port, daemon.output.flush, daemon.feed, daemon.rings, names,
            self.places, self.asking, self.following, self.holds_back,
        )  # fmt: skip
        self.records = IncomingRecords(self._port, loop, names, self.objects, self._far.say)
        self.heading: Heading = self._make_heading(store)
        self.homes = Homes(loop, daemon.operations, daemon.nodes, members, self.objects)
        parts = Parts(
            loop, self._port, state, daemon.operations, daemon.nodes, daemon.functions, daemon.inheritance, daemon.kept,
            members, names, self.objects, self.pings, self.keeping, self.heading, self.homes,
        )  # fmt: skip
        self.inheritance = ClusterInheritance(parts, store)
        self.keeping.on_job_ended = self.inheritance.left.functions.look_later
        self.replicas = ReplicasShell(loop, state, members, self.objects)
        daemon.requests.keep_replicas = self.replicas.begin
        daemon.requests.home_of = self.homes.home_of
        daemon.on_jobs = lambda jobs: _jobs_began(self, jobs)
        self.has_arrivals = self.objects.pulls.has_arrivals

    def _make_heading(self, store: Store | None) -> Heading:
        daemon = self._daemon
        restoring = Restoring(
            self._state, daemon.feed, daemon.functions, self.names, self.keeping, self.records,
            lambda rows: daemon.storage.keep_only(rows), daemon.restore_submissions,
        )  # fmt: skip
        around = Around(
            self._loop, self._state, daemon.feed, daemon.operations, daemon.chronicle,
            lambda *record: daemon.rings.handle(*record), self.members, self.names, self.reporting, self.places,
            self.keeping, self.following, restoring, lambda: self.cluster_address,
            lambda *why: self.lost(*why), self.end_cluster, self.proxy_died, lambda: self.inheritance.tell_again(),
        )  # fmt: skip
        return Heading(around, store)

    def _make_handlers(self) -> dict[type[lm.LinkMessage], Any]:
        """What becomes of each message."""
        objects, places, inheritance, groups = self.objects, self.places, self.inheritance, self.far_groups
        return {
            lm.Report: self.reporting.came,
            lm.WatchProcess: self._watch_came,
            lm.ProcessGone: self._gone_came,
            lm.KillProcess: places.kill_came,
            lm.JobInfo: self.guests.job_came,
            lm.Guest: self.guests.guest_came,
            lm.WantPlace: places.wanted,
            lm.Ping: self._far.ping_came,
            lm.Pong: self.pings.answered,
            lm.Happened: lambda _, message: self._daemon.chronicle.came(message.what),
            lm.Imported: lambda link, message: objects.was_imported(link.peer, message),
            lm.Keep: self.replicas.keep_came,
            lm.Kept: self.replicas.kept_came,
            lm.Gone: lambda link, message: objects.is_gone(link.peer, message),
            lm.Free: lambda _, message: objects.free(message),
            lm.FindObject: objects.find_came,
            lm.Sources: lambda _, message: objects.pulls.sources_came(message),
            lm.Pull: objects.pull_came,
            lm.PullFailed: lambda link, message: objects.pulls.refused(link.peer, message),
            lm.Copied: lambda link, message: objects.pulls.copied_came(link.peer, message),
            lm.Ask: self._ask_came,
            lm.TakeOver: self.handover.asked,
            lm.TakenOver: self.handover.taken,
            lm.Moved: self.handover.moved,
            lm.Call: self.calls.came,
            lm.CallAnswer: self.calls.answered,
            lm.AskBundles: groups.bundles_asked,
            lm.BundlesSet: groups.bundles_set,
            lm.DropBundles: groups.bundles_dropped,
            lm.GroupNews: groups.group_came,
            lm.ActorHere: places.actor_comes,
            lm.HeadIs: self.heading.head_came,
            lm.Hosted: self.heading.hosted_came,
            lm.Registered: self.heading.registered,
            lm.StartStore: self.heading.servers.asked_to_start,
            lm.StoreUp: self.heading.servers.came_up,
            lm.Mark: self.heading.mark_came,
            lm.Marked: self.following.marked,
            lm.StoreAt: self.heading.servers.told_where,
            lm.Deposit: inheritance.left.deposit_came,
            lm.Withdraw: inheritance.left.withdraw_came,
            lm.NodeLost: inheritance.executor.lost_came,
            lm.AskLost: lambda _, message: inheritance.lost_asked(message.node),
            lm.FoundAgain: inheritance.executor.found_again,
            lm.Rehomed: lambda _, message: self.homes.rehome(message.homes),
            lm.Inherit: lambda _, message: inheritance.inherit(message.estate),
            lm.Inherited: inheritance.executor.inherited_came,
            lm.AskReady: inheritance.fences.ready_asked,
            lm.EstateSettled: lambda _, message: inheritance.settle(message.estate),
        }

    @property
    def is_head(self) -> bool:
        return self.members.is_head

    def start(self) -> None:
        self.members.start()

    def close(self) -> None:
        self.members.leaves_because = self.members.leaves_because or self._daemon.error
        self.members.close()
        self.inheritance.left.directory.close()
        self.heading.close()

    # ---- nodes ----

    def joined(self) -> None:
        own = self.members.own
        self.names.joined(own.number)
        self.objects.number = own.number
        self._state.leases.last_id = own.number << LEASE_SHIFT
        self._daemon.jobs = JobNumbers(own.number)
        view = NodeView(own.number, own.node_id, own.labels, dict(self._state.resources.total))
        view.available = self._state.resources.available  # the very same: always up to date
        self._state.cluster = ClusterView(view)
        for number in self.members.links:
            if (member := self.members.members.get(number)) is not None:
                self.linked(member)
        self.heading.start()
        self._daemon.chronicle.head_is_there()
        self.reporting.beat()
        self.on_joined()

    def linked(self, member: Member) -> None:
        cluster = self._state.cluster
        if cluster is None or member.number in cluster.nodes or member.number not in self.members.links:
            return
        view = NodeView(member.number, member.node_id, member.labels, dict(to_amounts(member.total)))
        remember(self.folder, self.cluster_address, self.members.alive())
        self.inheritance.linked(member.number)
        view.is_alive = False  # until it reports, which it does once it has links to all others
        cluster.nodes[member.number] = view
        self.reporting.report(to=member.number)
        if self.is_head:
            for group in self._state.groups.living.values():
                self.members.send(member.number, lm.GroupNews(group.spec, group.state.value, group.nodes))
            self.heading.servers.need()
        self.replicas.node_came()
        self.reporting.changed()

    def node_gone(self, number: int, reason: str) -> None:
        if self._state.cluster is not None:
            self._state.cluster.nodes.pop(number, None)
        self.asking.node_gone(number)
        self.calls.node_gone(number)
        self.handover.node_gone(number)
        self.heading.node_gone(number)
        self.reporting.node_gone(number)
        self.guests.node_gone(number)
        for watching in self._watchers.values():
            watching.discard(number)
        self.objects.node_gone(number, self.homes.seek)
        self.replicas.node_gone(number)
        self._port.remove_link(number)
        known = self.members.members.get(number)
        name = f"node {known.node_id[:8]} at {known.address}" if known is not None else "its node"
        kept = (number, *DAEMON) if number == self.members.lost_head else None
        for process in [proxy for proxy in self.names.proxies if proxy[0] == number and proxy != kept]:
            self.proxy_died(process, f"{name} died: {reason}", NODE_LOST)
        self.pings.node_gone(number)
        self.inheritance.node_gone(number)
        self._daemon.feed(ev.NodeLeft(number))
        if self._daemon.submitted is not None and self.is_head:
            self._daemon.submitted.node_left(number, reason)
        self.reporting.changed()

    def lost(self, reason: str, ending: Ending) -> None:
        self.error = reason
        self._daemon.stop(reason, ending)

    def head_lost(self, reason: str, is_certain: bool, is_winner: bool) -> None:
        self.heading.lost(reason, is_certain, is_winner)

    def head_found(self) -> None:
        self.heading.found()

    def keep_member(self, member: Member, then: Callable[[], None]) -> None:
        what = f"node {member.node_id[:8]} at {member.address}"
        if member.is_alive:
            self._daemon.chronicle.note(NODE, member.node_id, f"{what} joined")
        else:
            self._daemon.chronicle.note(NODE, member.node_id, f"{what} is gone: {member.death}", WARNING)
        self.keeping.member(member, then)

    def records_came(self, link: NodeLink, batch: memoryview) -> None:
        self.records.came(link, batch)
        self.forward()

    def records_of(self, number: int) -> OutgoingRecords:
        return OutgoingRecords(self._port, number)

    def leave(self, why: str, then: Callable[[], None] | None = None) -> None:
        """End this node, in order; a head hands over before, where another node can follow it."""
        self.members.leaves_because = why
        self.heading.resign(why, then or (lambda: self._daemon.stop("")))

    def end_cluster(self, why: str) -> None:
        """On the head: end, and all other nodes with it."""
        self.members.leaves_because, self.members.ends_cluster = why, True
        self._daemon.stop("")

    # ---- records of local processes ----

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """Whether a record to this daemon is another node's affair, and has been passed on."""
        if kind not in _LOOKED_AT or self.names.is_proxy(process):
            return False
        if kind in _LEFT:
            return self.inheritance.takes(process, kind, payload)
        if kind == kinds.RESTORE:
            return self.objects.restore(process, payload)
        if kind == kinds.DEVICE_LOST:
            self.objects.device_lost(payload)
            return True
        if kind == kinds.LEASE_RETURN:
            node = kinds.LEASE_BODY.unpack_from(payload)[0] >> LEASE_SHIFT
            if node == self.names.number:
                return False
            self.guests.send_to_daemon(node, process, kind, payload)
            return True
        if kind == kinds.FUNCTION and (job := self._state.job_of(process)) is not None:
            self._daemon.functions.keep(job.id, payload)  # for who takes over from that process
        is_theirs, message = for_head(kind, payload)
        if isinstance(message, Request) and message.method == "flush_output":
            return self._flushing.begin(process, message.id)
        if not is_theirs or self.heading.is_serving:
            return False
        if self.heading.is_head:
            self.heading.hold(lambda: self._daemon.rings.handle(process, kind, payload))
            return True
        if kind == kinds.CREATE_ACTOR:
            self._state.actor_places.owners_elsewhere.add(process)
        elif kind == kinds.ACTOR_WATCH and self.following.is_watched(process, payload):
            # It was there and is out of reach: if only a link is broken, that takes a moment to be made again.
            self._loop.call_later(WATCH_AGAIN_S, lambda: self.following.tell(process, kind, payload, message))
            return True
        elif kind == kinds.ACTOR_CREATED:
            self.places.actor_created(process, bool(kinds.ACTOR_STATE_BODY.unpack_from(payload)[1]))
        self.following.tell(process, kind, payload, message)
        return True

    def holds_back(self, process: Process, kind: int, payload: bytes) -> bool:
        """Whether a record of another node's process waits until this one serves as head, or is not its affair."""
        if (
            self.heading.is_serving
            or (kind not in FOR_HEAD and kind != kinds.CONTROL)
            or not for_head(kind, payload)[0]
        ):
            return False
        if self.heading.is_head:
            self.heading.hold(lambda: self._daemon.rings.handle(process, kind, payload))
        return True

    def forward(self) -> None:
        """Send what local processes, and this daemon, have sent to proxies."""
        for node in self._port.nodes_with_output():
            if (link := self.members.links.get(node)) is not None:
                link.send_records()
            else:
                self._port.remove_link(node)

    # ---- records of other nodes ----

    def received(self, link: NodeLink, message: lm.LinkMessage) -> None:
        what = f"a {type(message).__name__} of node {link.peer}"
        try:
            self._handlers[type(message)](link, message)
        except RuntimeError as error:  # no slot, ring or entry is free
            print(f"weft: {what} was dropped: {error}", file=sys.stderr, flush=True)
        except Exception as error:  # one node's nonsense must not end another
            if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:  # it is this node that is at fault
                self._loop.call_later(REST_S, lambda: None if link.is_closed else self.received(link, message))
                return
            print(f"weft: {what} makes no sense: {error!r}", file=sys.stderr, flush=True)
            self._loop.call_later(0, lambda: link.close(f"{what} made no sense"))

    # ---- deaths ----

    def _proxy_made(self, name: GlobalProcess) -> None:
        node, slot, generation = name
        if self.inheritance.is_buried(name):  # at once, so that what comes with its name is asked for in time
            self._loop.call_later(0, lambda: self.proxy_died(name, "it had died before it was reached", -9))
        elif not self.members.send(node, lm.WatchProcess(slot, generation)):
            self._loop.call_later(0, lambda: self.proxy_died(name, "its node is gone", NODE_LOST))

    def _watch_came(self, link: NodeLink, message: lm.WatchProcess) -> None:
        process = (message.slot, message.generation)
        if process[0] == 0:
            return
        if self._state.is_here(process):
            self._watchers.setdefault(process, set()).add(link.peer)
        else:
            link.send(lm.ProcessGone(*process, "it had died before it was reached", -9))
            self.inheritance.late_watch(link, process)

    def process_died(self, process: Process, reason: str, status: int, memory_peak: int | None) -> None:
        """A process of this node, or a proxy, is dead."""
        watchers = self._watchers.pop(process, ())
        if watchers:
            self.inheritance.process_watched(process)
        for node in watchers:
            self.members.send(node, lm.ProcessGone(*process, reason, status, memory_peak))
        self.asking.process_gone(process)
        self.asking.worker_gone(process)
        self._state.actor_places.owners_elsewhere.discard(process)
        self.following.process_died(process)
        self.places.process_died(process)
        self.guests.process_died(process)

    def _gone_came(self, link: NodeLink, message: lm.ProcessGone) -> None:
        name = (link.peer, message.slot, message.generation)
        self.proxy_died(name, message.reason, message.status, message.memory_peak)

    def proxy_died(self, name: GlobalProcess, reason: str, status: int, memory_peak: int | None = None) -> None:
        if name not in self.names.proxies:
            return
        process = self.names.proxies[name]
        self._daemon.rings.drain()  # what was sent to it goes nowhere, but names it
        self.names.gone(name)
        self.inheritance.proxy_dies(name, process)
        self._daemon.died(process, reason, status, memory_peak)

    # ---- for people ----

    def _ask_came(self, link: NodeLink, message: lm.Ask) -> None:
        cluster = self._state.cluster
        views = [] if cluster is None else list(cluster.nodes.values())
        available = [(view.number, view.available) for view in views]
        link.send(lm.Answer(list(self.members.members.values()), available, self.cluster_address))


def _jobs_began(shell: ClusterShell, jobs: JobService) -> None:
    """The first operation that is seldom asked for has come to this node."""
    daemon, keeping = shell._daemon, shell.keeping
    jobs.keep, jobs.when_kept, keeping.keep_submitted = keeping.submission, keeping.when_kept, jobs.keep_all
    needed = Drained(
        shell.members,
        shell.names.of_node,
        shell.reporting.report,
        shell.handover,
        shell.leave,
        lambda: shell.heading.can_be_followed,
    )
    here = (shell._loop, shell._state, daemon.operations, daemon.nodes)
    Draining(*here, daemon.feed, lambda: jobs.runner.running, needed)
