"""A node's part in its cluster: passes records on, asks for leases, answers the other daemons.

Runs in the daemon's thread, and only where there is a cluster: a node of its own has none of this. See
docs/design/0002-cluster.md for what travels and why.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.cluster.calls import Calls
from weft.engine.cluster.handover import Handover
from weft.engine.cluster.membership import HEAD, Membership
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import DAEMON, Objects
from weft.engine.cluster.transport import NodeLink, Transport
from weft.engine.node.loop import Timer
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.actors import NODE_LOST
from weft.engine.state.asking import Asking
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.events import Process
from weft.engine.state.membership import MembershipState
from weft.engine.state.resources import to_amounts, to_floats
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess, Member
from weft.engine.wire.messages import (
    CreateGroup,
    DefineShape,
    DriverHello,
    KillActor,
    RemoveGroup,
    Reply,
    Request,
    Warn,
    WatchGroup,
)

if TYPE_CHECKING:
    from weft.engine.node.daemon import NodeDaemon

LEASE_SHIFT = 40
JOB_SHIFT = 16
PLAN_S = 0.003
"""Work that is done sooner is not worth another node."""
REPORT_S = 0.005
REPORT_EACH_S = 100e-6
"""Reports of changes come so much later for each node that hears them: no node sends more than 10,000 a second."""
HEARTBEAT_S = 1.0
HEARTBEAT_EACH_S = 500e-6
"""The same for heartbeats: 5 s among 10,000 nodes, well below what silence is borne."""
FLUSH_S = 1.0
"""A node that takes longer to pass its workers' output on is not waited for."""
REPLY, STREAM_ITEM = 64, 71
RECORD_HEAD = struct.Struct("<I20x")
"""Of a record in a batch: u32 bytes, then what only the native core reads."""
_FOR_HEAD = frozenset((kinds.CREATE_ACTOR, kinds.ACTOR_WATCH, kinds.ACTOR_DROP, kinds.ACTOR_CREATED, kinds.FUNCTION))
_HEAD_METHODS = frozenset(
    "get_actor claim_actor_name list_named_actors actor_info kv_get kv_put kv_del kv_keys "
    "create_group get_group list_groups list_actors list_jobs".split()
)
_LOOKED_AT = _FOR_HEAD | {kinds.RESTORE, kinds.LEASE_RETURN, kinds.CONTROL}
_messages = msgspec.msgpack.Decoder(
    DefineShape | DriverHello | KillActor | CreateGroup | RemoveGroup | WatchGroup | Request
)


class _Flush:
    """A driver that waits for the output of all nodes."""

    def __init__(self, process: Process, request: int, nodes: set[int], timer: Timer) -> None:
        self.process = process
        self.request = request
        self.nodes = nodes
        self.timer = timer


class OutgoingRecords:
    """The records for one node; see `wire.link.Records`."""

    def __init__(self, port: _native.NodePort, node: int) -> None:
        self._port = port
        self._node = node

    def take(self) -> bytes:
        return self._port.take_batch(self._node)

    def hold(self, is_full: bool) -> None:
        if is_full:
            self._port.hold_link(self._node)
        else:
            self._port.release_link(self._node)


class ClusterShell:
    """One daemon's links to all others and what goes over them."""

    def __init__(self, daemon: NodeDaemon, transport: Transport, head: str, own: Member) -> None:
        self._daemon = daemon
        self._port = daemon.port
        self._state = daemon.state
        self._loop = daemon.loop
        self.cluster_address = head or own.address
        self.error = ""
        self.on_joined: Callable[[], None] = lambda: None
        self._watchers: dict[Process, set[int]] = {}
        """Which nodes have a proxy for a process of this one."""
        self._told_jobs: set[tuple[int, int]] = set()
        self._told_guests: set[tuple[int, Process]] = set()
        self._pings: dict[int, tuple[bytes, GlobalProcess, int]] = {}
        self._flushes: dict[int, _Flush] = {}
        self._last_ping = 0
        self._planned: Timer | None = None
        self._reported: tuple[dict[str, int], int] | None = None
        self._report_timer: Timer | None = None
        self.objects = Objects(
            self._port,
            daemon.loop,
            daemon.spilling,
            own.number,
            self._send,
            lambda transfer: self.members.drop_chunks(transfer),
        )
        self.members = Membership(
            daemon.loop,
            transport,
            MembershipState(own, head),
            self._joined,
            self._linked,
            self._received,
            self._records_came,
            self._node_gone,
            self._lost,
            lambda node: OutgoingRecords(self._port, node),
            self.objects.pulls,
        )
        transport.open(self.members)
        self.names = Names(self._port, own.number, self._proxy_made)
        self.asking = Asking(
            self._state, daemon.feed, self._send_to_daemon, self.members.send, self._tell_job, self._warn
        )
        self.calls = Calls(daemon.loop, daemon.operations, self.members.send)
        self.handover = Handover(self.objects, self.members.send, self.members.broadcast)
        if head:
            daemon.operations.ask_head = lambda method, params: self.calls.ask(HEAD, method, params)
        self._handlers: dict[type[lm.LinkMessage], Any] = {
            lm.Report: self._report_came,
            lm.WatchProcess: self._watch_came,
            lm.ProcessGone: self._gone_came,
            lm.KillProcess: self._kill_came,
            lm.JobInfo: self._job_came,
            lm.Guest: self._guest_came,
            lm.WantPlace: self._want_place_came,
            lm.Ping: self._ping_came,
            lm.Pong: self._pong_came,
            lm.Imported: lambda link, message: self.objects.was_imported(link.peer, message),
            lm.Gone: lambda link, message: self.objects.is_gone(link.peer, message),
            lm.Free: lambda _, message: self.objects.free(message),
            lm.FindObject: self.objects.find_came,
            lm.Sources: lambda _, message: self.objects.pulls.sources_came(message),
            lm.Pull: self.objects.pull_came,
            lm.PullFailed: lambda link, message: self.objects.pulls.refused(link.peer, message.transfer),
            lm.Copied: lambda link, message: self.objects.pulls.copied_came(link.peer, message),
            lm.Ask: self._ask_came,
            lm.TakeOver: self.handover.asked,
            lm.TakenOver: self.handover.taken,
            lm.Moved: self.handover.moved,
            lm.Call: self.calls.came,
            lm.CallAnswer: self.calls.answered,
            lm.AskBundles: self._bundles_asked,
            lm.BundlesSet: lambda link, message: daemon.feed(
                ev.BundlesAnswered(link.peer, message.group, message.ok, message.attempt)
            ),
            lm.DropBundles: lambda _, message: daemon.feed(ev.BundlesDropped(message.group, message.bundles)),
            lm.GroupNews: lambda _, message: daemon.feed(ev.GroupLearnt(message.spec, message.state, message.nodes)),
        }

    @property
    def is_head(self) -> bool:
        return self.members.is_head

    def start(self) -> None:
        self.members.start()

    def close(self) -> None:
        self.members.close()

    # ---- nodes ----

    def _joined(self) -> None:
        own = self.members.own
        self.names.joined(own.number)
        self.objects.number = own.number
        self._state.leases.last_id = own.number << LEASE_SHIFT
        self._daemon.last_job = own.number << JOB_SHIFT
        view = NodeView(own.number, own.node_id, own.labels, dict(self._state.resources.total))
        view.available = self._state.resources.available  # the very same: always up to date
        self._state.cluster = ClusterView(view)
        for number in self.members.links:
            if (member := self.members.members.get(number)) is not None:
                self._linked(member)
        self._heartbeat()
        self.on_joined()

    def _linked(self, member: Member) -> None:
        cluster = self._state.cluster
        if cluster is None or member.number in cluster.nodes or member.number not in self.members.links:
            return
        view = NodeView(member.number, member.node_id, member.labels, dict(to_amounts(member.total)))
        view.is_alive = False  # until it reports, which it does once it has links to all others
        cluster.nodes[member.number] = view
        self._report(to=member.number)
        if self.is_head:
            for group in self._state.groups.living.values():
                self.members.send(member.number, lm.GroupNews(group.spec, group.state.value, group.nodes))
        self.changed()

    def _node_gone(self, number: int, reason: str) -> None:
        if self._state.cluster is not None:
            self._state.cluster.nodes.pop(number, None)
        self.asking.node_gone(number)
        self.calls.node_gone(number)
        self.handover.node_gone(number)
        self._told_jobs = {told for told in self._told_jobs if told[0] != number}
        self._told_guests = {told for told in self._told_guests if told[0] != number}
        for watching in self._watchers.values():
            watching.discard(number)
        self.objects.node_gone(number)
        self._port.remove_link(number)
        known = self.members.members.get(number)
        name = f"node {known.node_id[:8]} at {known.address}" if known is not None else "its node"
        for process in [proxy for proxy in self.names.proxies if proxy[0] == number]:
            self._proxy_died(process, f"{name} died: {reason}", NODE_LOST)
        self._daemon.feed(ev.NodeLeft(number))
        if self._daemon.submitted is not None:
            self._daemon.submitted.node_left(number, reason)
        self.changed()

    def _lost(self, reason: str) -> None:
        self.error = reason
        self._daemon.stop(reason)

    def _report_came(self, link: NodeLink, message: lm.Report) -> None:
        cluster = self._state.cluster
        if cluster is not None and (view := cluster.nodes.get(link.peer)) is not None:
            has_turned = view.is_draining != message.is_draining
            view.is_draining = message.is_draining
            if cluster.nodes.reported(view, message.available, message.queued) or has_turned:
                self._plan_later()

    def changed(self) -> None:
        """Something has happened on this node: others may have to be told, or asked."""
        if self._state.cluster is None:
            return  # a node that has not joined is not to be used: it does not know its own number yet
        if self._report_timer is None:
            delay_s = max(REPORT_S, len(self.members.links) * REPORT_EACH_S)
            self._report_timer = self._loop.call_later(delay_s, self._report_if_changed)
        if self._state.demands.is_waiting or self.asking.asked or self._state.groups_wait:
            self._plan_later()

    def _plan_later(self) -> None:
        if self._planned is None:
            self._planned = self._loop.call_later(PLAN_S, self._plan)

    def _plan(self) -> None:
        self._planned = None
        if self._state.groups_wait:
            self._daemon.feed(ev.NodesChanged())
        if self._state.demands.is_waiting or self.asking.asked:
            self.asking.plan()

    def _report_if_changed(self) -> None:
        self._report_timer = None
        if (dict(self._state.resources.available), self.asking.queued()) != self._reported:
            self._report()

    def report(self) -> None:
        """Tell all nodes at once how it stands here."""
        self._report()

    def leave(self, why: str) -> None:
        """End this node, in order."""
        self.members.leaves_because = why
        self._daemon.stop("")

    def processes_of(self, node: int) -> list[Process]:
        """The proxies of that node's processes."""
        return [process for name, process in self.names.proxies.items() if name[0] == node]

    def _report(self, to: int | None = None) -> None:
        self._reported = (dict(self._state.resources.available), self.asking.queued())
        message = lm.Report(*self._reported, is_draining=self._state.is_draining)
        if to is None:
            self.members.broadcast(message)
        else:
            self.members.send(to, message)

    def _heartbeat(self) -> None:
        self._report()
        self._plan_later()
        delay_s = max(HEARTBEAT_S, len(self.members.links) * HEARTBEAT_EACH_S)
        self._loop.call_later(delay_s, self._heartbeat)

    # ---- records of local processes ----

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """Whether a record to this daemon is another node's affair, and has been passed on."""
        if kind not in _LOOKED_AT or self.names.is_proxy(process):
            return False
        if kind == kinds.RESTORE:
            return self.objects.restore(process, payload)
        if kind == kinds.LEASE_RETURN:
            node = kinds.LEASE_BODY.unpack_from(payload)[0] >> LEASE_SHIFT
            if node == self.names.number:
                return False
            self._send_to_daemon(node, process, kind, payload)
            return True
        if kind == kinds.CONTROL:
            message = _messages.decode(payload)
            if isinstance(message, Request) and message.method == "flush_output":
                return self._flush_everywhere(process, message.id)
        if self.is_head:
            return False
        if kind == kinds.CONTROL:
            is_theirs = isinstance(message, KillActor | CreateGroup | RemoveGroup | WatchGroup) or (
                isinstance(message, Request) and message.method in _HEAD_METHODS
            )
            if not is_theirs:
                return False
        if kind == kinds.CREATE_ACTOR:
            self._state.owners_elsewhere.add(process)
        return self._send_to_daemon(HEAD, process, kind, payload)

    def forward(self) -> None:
        """Send what local processes, and this daemon, have sent to proxies."""
        for node in self._port.nodes_with_output():
            if (link := self.members.links.get(node)) is not None:
                link.send_records()
            else:
                self._port.remove_link(node)
        for dead in self._port.take_detached():
            self._daemon.release(dead)

    def _pass_on(self, node: int, sender: Process, to: Process, kind: int, payload: bytes) -> bool:
        link = self.members.links.get(node)
        if link is None:
            return False
        self._port.pass_on(node, sender, to, kind, payload)
        link.send_records()
        return True

    def _send(self, node: int, message: lm.AnyMessage) -> bool:
        return self.members.send(node, message)

    def _send_to_daemon(self, node: int, process: Process, kind: int, payload: bytes) -> bool:
        """A record to another daemon in a local process's name."""
        if node not in self.members.links:
            return False
        if (node, process) not in self._told_guests and (job := self._state.job_of(process)) is not None:
            self._told_guests.add((node, process))
            self._tell_job(node, job.id)
            self.members.send(node, lm.Guest(*process, job.id))
        return self._pass_on(node, process, DAEMON, kind, payload)

    def _tell_job(self, node: int, job_id: int) -> None:
        job = self._state.jobs.get(job_id)
        if job is None or (node, job_id) in self._told_jobs:
            return
        self._told_jobs.add((node, job_id))
        driver = self.names.to_global(job.driver) if job.is_driver_alive else (self.names.number, *DAEMON)
        if driver[0] != node:
            self.members.send(node, lm.JobInfo(job_id, driver, job.pid, job.hello))

    # ---- records of other nodes ----

    def _received(self, link: NodeLink, message: lm.AnyMessage) -> None:
        what = f"a {type(message).__name__} of node {link.peer}"
        try:
            self._handlers[type(message)](link, message)
        except RuntimeError as error:  # no slot, ring or entry is free
            print(f"weft: {what} was dropped: {error}", file=sys.stderr, flush=True)
        except Exception as error:  # one node's nonsense must not end another
            print(f"weft: {what} makes no sense: {error!r}", file=sys.stderr, flush=True)
            self._loop.call_later(0, lambda: link.close(f"{what} made no sense"))

    def _records_came(self, link: NodeLink, batch: memoryview) -> None:
        at, node = 0, link.peer
        try:
            while at < len(batch):
                at, stop = self._port.deliver(node, batch, at)
                if stop is None:
                    break
                if not isinstance(stop[0], list):
                    self._record_came(node, stop[0], stop[1], stop[2], stop[3])
                elif not self._make_names(stop[0], stop[1], stop[2], stop[3]):
                    at += RECORD_HEAD.size + RECORD_HEAD.unpack_from(batch, at)[0]
        except Exception as error:  # one node's nonsense must not end another
            what = f"a batch of records of node {node}"
            print(f"weft: {what} makes no sense: {error!r}", file=sys.stderr, flush=True)
            self._loop.call_later(0, lambda: link.close(f"{what} made no sense"))
        self.forward()

    def _make_names(self, processes: list[GlobalProcess], objects: list[GlobalObject], to: Process, kind: int) -> bool:
        """For what the next record speaks of and is new here. False when that can not be."""
        owner = to if kind in (REPLY, STREAM_ITEM) else DAEMON
        try:
            for process in processes:
                self.names.to_local(process)
            for name in objects:
                self.objects.to_local(name, owner)
        except RuntimeError as error:  # no slot or entry is free
            print(f"weft: a record (kind {kind}) for slot {to[0]} was dropped: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _record_came(self, node: int, sender: Process, to: Process, kind: int, payload: bytes) -> None:
        """One from another daemon, or to this one."""
        try:
            if sender[0] == 0:
                self._daemon_says(node, to, kind, payload)
            else:
                self._daemon.handle_record(self.names.to_local((node, *sender)), kind, payload)
        except RuntimeError as error:  # no slot or ring is free
            print(f"weft: a record (kind {kind}) of node {node} was dropped: {error}", file=sys.stderr, flush=True)

    def _daemon_says(self, node: int, to: Process, kind: int, payload: bytes) -> None:
        """A record that another daemon sends to a process of this node, or to this daemon."""
        if kind == kinds.LEASE_GRANT:
            lease, shape, slot, generation, pid = kinds.LEASE_GRANT_BODY.unpack(payload)
            if to[0] == 0:
                self._place_came(node, lease, shape, (slot, generation), pid)
                return
            self.asking.granted(node, to, shape)
        elif kind == kinds.SHAPE_REFUSED:
            return  # its report was old; the next plan asks elsewhere
        if to[0] != 0:
            self._port.send(*to, kind, payload)
        elif kind == kinds.LEASE_RETURN:
            self._daemon.feed(
                ev.LeaseReturned(self.names.to_local((node, *DAEMON)), kinds.LEASE_BODY.unpack(payload)[0])
            )

    def _is_here(self, process: Process) -> bool:
        return process in self._state.drivers or process in self._state.workers.by_process

    def _job_came(self, link: NodeLink, message: lm.JobInfo) -> None:
        self._told_jobs.add((link.peer, message.job))
        self._daemon.feed(ev.JobLearnt(self.names.to_local(message.driver), message.job, message.pid, message.hello))

    def _guest_came(self, link: NodeLink, message: lm.Guest) -> None:
        process = self.names.to_local((link.peer, message.slot, message.generation))
        self._daemon.feed(ev.GuestJoined(process, message.job))

    # ---- actors ----

    def _want_place_came(self, link: NodeLink, message: lm.WantPlace) -> None:
        process = self.names.to_local((link.peer, *DAEMON))
        self._daemon.feed(
            ev.PlaceWanted(
                process,
                message.number,
                message.job,
                tuple(message.need),
                tuple(message.hold),
                message.runtime_env,
                message.wanted,
                message.strategy,
            )
        )

    def _place_came(self, node: int, lease: int, number: int, worker: Process, pid: int) -> None:
        """Another node has a worker for an actor: send it the creation. The watchers hear when it has arrived."""
        actor_id = self.asking.place_found(node, number, worker)
        actor = None if actor_id is None else self._state.actors.by_id.get(actor_id)
        name = self.names.to_global(worker)
        if actor is None:
            self._pass_on(node, DAEMON, DAEMON, kinds.LEASE_RETURN, kinds.LEASE_BODY.pack(lease))
            return
        if (function := self._daemon.functions.find(actor.spec.class_key)) is not None:
            self._pass_on(node, DAEMON, name[1:], kinds.FUNCTION, function)
        self._pass_on(node, DAEMON, name[1:], kinds.TASK, actor.record)
        self._last_ping += 1
        self._pings[self._last_ping] = (actor.id, name, pid)
        self.members.send(node, lm.Ping(self._last_ping))

    def _pong_came(self, link: NodeLink, message: lm.Pong) -> None:
        if (flush := self._flushes.get(message.number)) is not None:
            flush.nodes.discard(link.peer)
            if not flush.nodes:
                self._end_flush(message.number)
            return
        actor, name, pid = self._pings.pop(message.number, (b"", (0, 0, 0), 0))
        worker = self.names.proxies.get(name)
        if self.asking.creating.pop(actor, None) is not None and worker is not None:
            self._daemon.feed(ev.ActorPlacedElsewhere(actor, worker, pid))

    def kill(self, process: Process) -> bool:
        """Whether it is another node's worker, which that node has been told to end."""
        if not self.names.is_proxy(process):
            return False
        node, slot, generation = self.names.to_global(process)
        self.members.send(node, lm.KillProcess(slot, generation))
        return True

    def _kill_came(self, link: NodeLink, message: lm.KillProcess) -> None:
        process = (message.slot, message.generation)
        if process in self._state.workers.by_process:
            self._port.refuse_records(*process)
            self._daemon.kill_worker(process)

    # ---- placement groups ----

    def carry(self, one: do.ReserveBundles | do.ReleaseBundles | do.AnswerBundles | do.PublishGroup) -> None:
        """What the head decides about groups, and what it is answered."""
        if isinstance(one, do.AnswerBundles):
            self.members.send(HEAD, lm.BundlesSet(one.group, one.ok, one.attempt))
        elif isinstance(one, do.PublishGroup):
            self.members.broadcast(lm.GroupNews(one.spec, one.state, one.nodes))
        elif isinstance(one, do.ReleaseBundles):
            self.members.send(one.node, lm.DropBundles(one.group, one.bundles))
        else:
            bundles = {index: list(amounts) for index, amounts in one.bundles.items()}
            if not self.members.send(one.node, lm.AskBundles(one.group, bundles, one.attempt, one.waits)):
                self._daemon.feed(ev.BundlesAnswered(one.node, one.group, False, one.attempt))

    def _bundles_asked(self, link: NodeLink, message: lm.AskBundles) -> None:
        if self._state.cluster is None:  # it has not joined: the head asks again
            link.send(lm.BundlesSet(message.group, False, message.attempt))
            return
        bundles = {index: tuple(amounts) for index, amounts in message.bundles.items()}
        self._daemon.feed(ev.BundlesAsked(message.group, bundles, message.attempt, message.waits))

    # ---- deaths ----

    def _proxy_made(self, name: GlobalProcess) -> None:
        node, slot, generation = name
        if not self.members.send(node, lm.WatchProcess(slot, generation)):
            self._loop.call_later(0, lambda: self._proxy_died(name, "its node is gone", NODE_LOST))

    def _watch_came(self, link: NodeLink, message: lm.WatchProcess) -> None:
        process = (message.slot, message.generation)
        if process[0] == 0:
            return
        if self._is_here(process):
            self._watchers.setdefault(process, set()).add(link.peer)
        else:
            link.send(lm.ProcessGone(*process, "it had died before it was reached", -9))

    def process_died(self, process: Process, reason: str, status: int) -> None:
        """A process of this node, or a proxy, is dead."""
        for node in self._watchers.pop(process, ()):
            self.members.send(node, lm.ProcessGone(*process, reason, status))
        self.asking.process_gone(process)
        self.asking.worker_gone(process)
        self._state.owners_elsewhere.discard(process)
        self._told_guests = {told for told in self._told_guests if told[1] != process}

    def _gone_came(self, link: NodeLink, message: lm.ProcessGone) -> None:
        self._proxy_died((link.peer, message.slot, message.generation), message.reason, message.status)

    def _proxy_died(self, name: GlobalProcess, reason: str, status: int) -> None:
        if name not in self.names.proxies:
            return
        process = self.names.proxies[name]
        self._daemon.drain()  # what was sent to it goes nowhere, but names it
        self.names.gone(name)
        self._daemon.died(process, reason, status)

    # ---- for people ----

    def _flush_everywhere(self, process: Process, request: int) -> bool:
        """What workers of all nodes have written is on its way to the driver before it is answered."""
        nodes = set(self.members.links)
        if not nodes:
            return False
        self._daemon.flush_output()
        self._last_ping += 1
        number = self._last_ping
        timer = self._loop.call_later(FLUSH_S, lambda: self._end_flush(number))
        self._flushes[number] = _Flush(process, request, nodes, timer)
        self.members.broadcast(lm.Ping(number))
        return True

    def _end_flush(self, number: int) -> None:
        if (flush := self._flushes.pop(number, None)) is not None:
            flush.timer.cancel()
            self._daemon.send(flush.process, Reply(flush.request))

    def _ping_came(self, link: NodeLink, message: lm.Ping) -> None:
        self._daemon.flush_output()
        self._daemon.drain()
        link.send(lm.Pong(message.number))

    def _warn(self, driver: Process, message: Warn) -> None:
        self._daemon.send(driver, message)

    def _ask_came(self, link: NodeLink, message: lm.Ask) -> None:
        cluster = self._state.cluster
        views = [] if cluster is None else list(cluster.nodes.values())
        link.send(lm.Answer(list(self.members.members.values()), [(view.number, view.available) for view in views]))

    def rows(self) -> list[tuple[Member, dict[str, float]]]:
        """Every node, living or dead, this one first, with what it has free."""
        cluster = self._state.cluster
        if cluster is None:
            return []
        cluster.own.available = self._state.resources.available
        members = sorted(self.members.members.values(), key=lambda m: (m.number != self.names.number, m.number))
        return [(m, to_floats(cluster.nodes[m.number].available) if m.number in cluster.nodes else {}) for m in members]
