"""The node daemon: carries out what `engine/state` decides.

One thread, one loop over the segment's eventfd, the drivers' sockets, the zygote and the workers' output. It holds no
decisions of its own: records become events, events become instructions, instructions become calls.

A death is handled in one order, whoever died: what the process had published is read, its slot is marked dead, what
had still slipped in is read, and only then the state hears of it. The slot is given back once no living process
shares a ring with the dead one.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.node import handshake, outgoing
from weft.engine.node.chronicle import DRIVER, Chronicle
from weft.engine.node.config import WAITS_VARIABLE, NodeConfig, NodeOffer
from weft.engine.node.deadlocks import Deadlocks
from weft.engine.node.doors import Doors
from weft.engine.node.folders import Folders
from weft.engine.node.functions import FunctionTable
from weft.engine.node.inheritance import InheritanceShell
from weft.engine.node.kept_objects import KeptObjects
from weft.engine.node.memory import DeclaredLimits, MemoryMonitor
from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations
from weft.engine.node.output import WorkerOutput
from weft.engine.node.people import People
from weft.engine.node.requests import Requests
from weft.engine.node.rings import Rings
from weft.engine.node.room import RoomRequests
from weft.engine.node.spilling import Spilling, temporary_folders
from weft.engine.node.storage import Storage
from weft.engine.node.worker_processes import WorkerProcesses
from weft.engine.node.zygote_link import ZygoteLink
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.actors import Stage
from weft.engine.state.events import Process
from weft.engine.state.jobs import JobNumbers
from weft.engine.state.node import NodeState
from weft.engine.wire import kinds
from weft.engine.wire.messages import Home, Message, Request
from weft.inspection.listing import Listing
from weft.net.loop import Loop
from weft.observe import event_records
from weft.observe.log_store import LogStore
from weft.store.tables import ACTORS, JOBS, NODES, Delete, MemoryTables, Put

if TYPE_CHECKING:
    from weft.engine.node.cluster_port import Cluster
    from weft.inspection.front import Front
    from weft.jobs.job_service import JobService
    from weft.observe.node_past import NodePast

TICK_S = 1.0
PAST_S = 10.0
"""So long after its start a node begins to keep what it did."""
CHANGING = frozenset(
    "claim_actor_name kv_put kv_del create_group actor_log_open actor_log_append name_object delete_object".split()
)
"""Requests that change what a cluster's head keeps."""
_encode = msgspec.msgpack.Encoder().encode
Taker = Callable[[Process, bytes], None]


class NodeDaemon:
    """One node's daemon, from start to end: the parts, and who of them hears of what."""

    def __init__(
        self,
        config: NodeConfig,
        offer: NodeOffer,
        port: _native.NodePort,
        zygote: socket.socket,
        address_suffix: str = "",
        ip: str = Home().ip,
    ) -> None:
        self.loop = Loop()
        self.port = port
        self.state = NodeState(offer.total, offer.gpu_ids, offer.prestart, offer.start_limit, offer.most_blocked)
        self.tables = MemoryTables()
        node_id = os.urandom(16).hex()
        started_ms = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        self._make_tables(
            node_id, f"@weft-{os.getuid()}-{started_ms:011x}{node_id[:6]}{address_suffix}", config.labels, time.time_ns
        )
        self.state.standing.home = Home(node_id, ip)
        self.state.standing.waits_alone = os.environ.get(WAITS_VARIABLE) == "1"
        self.folders = Folders(
            node_id,
            config.cluster is not None and not config.cluster.is_leashed,
            lambda: "" if self.cluster is None else self.cluster.jobs_folder,
        )
        logs = LogStore(self.folders.session if self.folders.keeps_files else None)
        self.people = People(self.state, node_id, self.chronicle, logs, self.send)
        self.output = WorkerOutput(self.loop, self.people.written)
        self._make_memory()
        self._make_workers(zygote)
        self.storage = Storage(self.operations, self.nodes, config.storage)
        self.kept = KeptObjects(
            self.loop, port, self.tables, self.functions, self.operations, self.nodes, self.storage,
            lambda *change: self.requests.key_values.once(*change), self.inheritance.forget_left,
        )  # fmt: skip
        self.inheritance.is_kept, self.inheritance.find_named = self.kept.has, self.kept.find_named
        self._deadlocks = Deadlocks(self.loop, self.state, self.operations, self.nodes, self.send)
        self.requests = self._make_requests(config)
        self._front: Front | None = None
        """The door for browsers, once its address was asked for."""
        fds = (port.segment_fd, port.event_fd)
        self._doors = Doors(self.loop, self.address, fds, self._admit, self._driver_left, self.operations)
        self._carriers = self._make_carriers()
        takers: dict[int, Taker] = {
            kinds.DEPOSIT: self.kept.deposited,
            kinds.WITHDRAW: self.kept.withdrawn,
            kinds.NEED_SPACE: self._room.need_space,
            kinds.RESTORE: self._room.restore,
        }
        self.rings: Rings = self._make_rings(takers)
        self.loop.watch(port.event_fd, self.rings.rung)
        self.tables.put(NODES, node_id.encode(), _encode({"address": self.address, "resources": offer.total}))

    def _make_tables(self, node_id: str, address: str, labels: dict[str, str], now_ns: Callable[[], int]) -> None:
        """What needs neither processes nor sockets."""
        self.node_id, self.address = node_id, address
        self.state.standing.own.name(node_id, labels)
        self.cluster: Cluster | None = None
        """Its part in a cluster, where there is one."""
        self.error = ""
        """Why the node ended, when it was not asked to."""
        self.ending = do.Ending.ASKED
        self.operations = Operations()
        self.operations.offer_more = self._offer_more
        self.nodes = Nodes(self.state, self.operations, node_id, address)
        self.chronicle = Chronicle(self.tables, node_id, self.nodes.tell_head, now_ns)
        self.functions = FunctionTable(self.tables)
        self.inheritance = InheritanceShell(self.port, self.functions, self.nodes.local_processes, self.state)
        self.submitted: JobService | None = None
        """The jobs that were submitted to this daemon's cluster, once there were any."""
        self.on_jobs: Callable[[JobService], None] = lambda jobs: None
        """In a cluster: what it does with them once they are there."""
        self.jobs = JobNumbers()
        self._dead: dict[Process, None] = {}
        """Whose slots wait to be given back."""
        self._is_ticking = False
        self._events: deque[ev.Event] = deque()
        self._is_feeding = False

    def _make_memory(self) -> None:
        self.spilling = Spilling(self.port, self.people.name_of_slot)
        self.loop.watch(self.spilling.fd, self.spilling.completed)
        self._room = RoomRequests(
            self.port,
            self.loop,
            self.spilling,
            lambda: self.cluster is not None and self.cluster.has_arrivals(),
        )

    def _make_workers(self, zygote: socket.socket) -> None:
        workers = WorkerProcesses(
            self.loop, self.port, self.output, self.folders, self.state.workers, self.feed, self.died
        )
        is_local, stop = self.nodes.is_local, workers.stop_for_memory
        workers.zygote = ZygoteLink(
            self.loop,
            zygote,
            workers.forked,
            workers.exited,
            workers.fork_failed,
            lambda: self.stop("the zygote died, and with it every worker"),
        )
        workers.limits = DeclaredLimits(self.loop, self.port, self.node_id, self.state.workers, is_local, stop)
        self._memory = MemoryMonitor(self.loop, self.state, is_local, stop)
        self.workers = workers

    def _make_requests(self, config: NodeConfig) -> Requests:
        listing = Listing(self.state, self.node_id, self.address, config.labels, self.nodes.place_of)
        listing.members = self.nodes.rows
        listing.pids_of = self.nodes.pids_of
        self.operations.offer("node_pids", lambda params: listing.pids())
        more: dict[str, Callable[..., object]] = {
            **self.kept.requests(),
            "storage_folder": lambda asker: self.storage.folder(),
            "dashboard": lambda asker: self.dashboard(),
            "flush_output": lambda asker: self.output.flush(),
            "waits_long": self._deadlocks.waits_long,
            "waits_told": self._deadlocks.told,
        }
        calls = (self.feed, self.loop.call_later, self.nodes.all_views)
        return Requests(self.state, self.port, self.tables, self.chronicle, listing, *calls, more)

    def _make_rings(self, takers: dict[int, Taker]) -> Rings:
        takers |= {
            kinds.FUNCTION: self._function_came,
            kinds.PEER_DETACHED: lambda process, payload: self.release(kinds.PROCESS_BODY.unpack(payload)),
            kinds.ORPHANS: self.inheritance.answered,
            kinds.ADOPTED: self.inheritance.adopted,
            kinds.ORPHAN_ASKED: self.inheritance.asked,
        }
        return Rings(self.port, self.state.workers, self.nodes, self.feed, self._answer, takers)

    def _make_carriers(self) -> dict[type[do.Instruction], Callable[..., None]]:
        """How each instruction is carried out."""
        return {
            **dict.fromkeys(outgoing.KINDS, self._tell),
            do.BindWorker: self.workers.bind,
            do.SendFunction: self._send_function,
            do.ForkWorker: self.workers.fork,
            do.KillWorker: self._kill_worker,
            do.LimitMemory: self.workers.limits.limit,
            do.RecordActor: self._record_actor,
            do.EndJob: self._end_job,
            do.StopNode: lambda one: self.stop(one.error, one.ending),
            do.ReserveBundles: self._tell_nodes,
            do.ReleaseBundles: self._tell_nodes,
            do.AnswerBundles: self._tell_nodes,
            do.PublishGroup: self._tell_nodes,
        }

    def join(self, cluster: Cluster) -> None:
        """It is part of a cluster."""
        self.cluster = self.nodes.cluster = cluster

    def start(self, founder: socket.socket | None) -> None:
        """Let the founder in and have the first workers made."""
        if founder is not None:
            self._doors.add(founder, is_founder=True)
        self.feed(ev.NodeStarted())
        self._past = _record(self.loop, self.port)

    def close(self) -> None:
        """Let everything go; a zygote that still lives ends its workers when it sees the socket's end."""
        for part in (self._front, self.submitted, self.cluster, self.workers.zygote, self._doors):
            if part is not None:
                part.close()
        self.output.close_all()
        self.loop.unwatch(self.spilling.fd)
        self.spilling.close()
        self.port.end_recording()
        self.storage.close()
        self.workers.limits.close()
        self.folders.sweep(of_own=True)
        self.loop.close()

    # ---- events in, instructions out ----

    def feed(self, event: ev.Event) -> None:
        """Let the state decide, and carry it out. What that leads to waits its turn."""
        self._events.append(event)
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                for instruction in self.state.handle(self._events.popleft()):
                    self._carriers[type(instruction)](instruction)
        finally:
            self._is_feeding = False
        if self.cluster is not None:
            self.cluster.reporting.changed()
            self.people.idle_s()
        if not self._memory.is_watching and self.state.workers.is_busy:
            self._memory.watch()
        if not self._is_ticking and (self._dead or self.state.wants_ticks):
            self._is_ticking = True
            self.loop.call_later(TICK_S, self._tick)

    def _answer(self, process: Process, request: Request) -> None:
        """In a cluster who has changed something is answered when it is safe."""
        reply = self.requests.answer(process, request)
        if reply is None:
            return
        if not request.id:  # nobody waits for it
            if reply.error_kind:
                raise ValueError(f"{request.method}: {reply.error}")
        elif self.cluster is not None and request.method in CHANGING:
            self.cluster.keeping.when_kept(lambda: self.send(process, reply))
        else:
            self.send(process, reply)

    def _tick(self) -> None:
        self._is_ticking = False
        for process in list(self._dead):
            self.release(process)
        self.feed(ev.Ticked())

    # ---- carrying out ----

    def _tell(self, one: do.Tell) -> None:
        self.port.send(*one.process, *outgoing.encode(one))

    def send(self, process: Process, message: Message) -> None:
        """One message to a process."""
        self.port.send(*process, kinds.CONTROL, _encode(message))

    def _kill_worker(self, one: do.KillWorker) -> None:
        if self.cluster is None or not self.cluster.places.kill(one.process):
            self.workers.kill(one.process)

    def _send_function(self, one: do.SendFunction) -> None:
        record = self.functions.find(one.key)
        if record is not None:
            self.port.send(*one.process, kinds.FUNCTION, record)

    def _function_came(self, process: Process, record: bytes) -> None:
        if (job := self.state.job_of(process)) is not None:
            self.functions.keep(job.id, record)

    def _record_actor(self, one: do.RecordActor) -> None:
        row = _encode({**one.row, "state": one.state})
        self.tables.write([Put(ACTORS, one.actor, row) if one.state else Delete(ACTORS, one.actor)])
        if one.state == Stage.DEAD.value:
            self.requests.logs.drop(one.actor)
        self.people.note_actor(one)
        if self.cluster is not None:
            self.cluster.keeping.actor(one)

    def _end_job(self, one: do.EndJob) -> None:
        self.functions.end_job(one.job)
        self.folders.sweep()
        self.tables.delete(JOBS, str(one.job).encode())
        self.chronicle.note(DRIVER, str(one.job), f"job {one.job} is over")
        if self.cluster is not None:
            self.cluster.keeping.job_ended(one.job)

    def _tell_nodes(self, one: do.ReserveBundles | do.ReleaseBundles | do.AnswerBundles | do.PublishGroup) -> None:
        if self.cluster is not None:
            self.cluster.far_groups.carry(one)

    def stop(self, error: str = "", ending: do.Ending = do.Ending.FAILED) -> None:
        """The node ends; an empty `error`: it was asked to."""
        if error and not self.error:
            self.error, self.ending = error, ending
        self.loop.stop()

    def asked_to_end(self) -> None:
        """By a signal."""
        if self.cluster is not None:
            self.cluster.leave("")
        else:
            self.loop.stop()

    # ---- processes come and go ----

    def _admit(self, pid: int, is_founder: bool) -> handshake.Welcome:
        process = self.port.reserve_slot()
        job = self.jobs.next()
        self.feed(ev.DriverJoined(process, job, pid, is_founder))
        self.tables.put(JOBS, str(job).encode(), _encode({"pid": pid, "is_founder": is_founder}))
        self.chronicle.note(DRIVER, str(job), f"the driver of job {job} attached (pid {pid})")
        return handshake.Welcome(*process, job, self.node_id, self.nodes.address, self.state.standing.home.ip)

    def _driver_left(self, process: Process, how: str) -> None:
        if process == (0, 0):
            self.stop()
        else:
            self.died(process, how, -9)

    def died(self, process: Process, reason: str, status: int, memory_peak: int | None = None) -> None:
        """`memory_peak`: what it held at most, in bytes, when it was stopped for memory."""
        self.rings.drain()
        lent = self.inheritance.take(process)
        peers = tuple(peer for peer in self.port.mark_dead(*process) if peer[0] != 0)
        self.rings.drain()
        self.output.close(process)
        self.rings.process_died(process)
        self.requests.told.process_died(process)
        self._deadlocks.process_died(process)
        self._dead[process] = None
        self.people.note_death(process, reason, status)
        if self.cluster is not None:
            self.cluster.process_died(process, reason, status, memory_peak)
        self.feed(ev.ProcessDied(process, reason, peers, status, memory_peak))
        self.inheritance.died(process, lent)
        if not peers:
            self.release(process)

    def release(self, process: Process) -> None:
        if process in self._dead and self.port.release_slot(*process):
            del self._dead[process]
            self.feed(ev.SlotReleased())

    # ---- what is made at its first need ----

    def dashboard(self) -> dict[str, Any]:
        """Where this node's dashboard is: {"address", "token", "url"}. OSError when it cannot listen."""
        from weft.inspection.front import Front

        if self._front is None:
            self._front = Front(self.loop, self.address)
        return self._front.where()

    def restore_submissions(self, rows: list[bytes], is_restart: bool = False) -> None:
        """This daemon is its cluster's head now: the jobs that were submitted to the one before."""
        self.operations.complete()
        assert self.submitted is not None
        if is_restart:
            self.submitted.restart(rows, self.nodes.own_number, self.node_id)
        else:
            self.submitted.restore(rows)

    def _offer_more(self) -> None:
        """The operations that are seldom asked for."""
        from weft.inspection.observation import Observation
        from weft.inspection.overview import Overview
        from weft.jobs.job_service import JobService

        here = (self.operations, self.nodes)
        jobs = self.submitted = JobService(self.loop, *here, self.folders.jobs, lambda: self.nodes.address)
        Overview(self.state, self.port, *here, self.people, lambda: jobs.job_list({}))
        told = (self.people, self.requests)
        Observation(self.state, self.port, self.tables, *here, *told, self.output.flush, self._past())
        self.operations.offer("dashboard", lambda params: self.dashboard())
        self.on_jobs(jobs)


def _record(loop: Loop, port: _native.NodePort) -> Callable[[], NodePast]:
    """A native thread keeps what processes did. What is made of that is loaded when somebody asks, or a while later."""
    began_s = time.time()

    @functools.cache
    def past() -> NodePast:
        from weft.observe.node_past import NodePast

        return NodePast(loop, port, began_s)

    def begin() -> None:
        past()

    limit = event_records.file_bytes(os.environ.get(event_records.FILE_VARIABLE))
    port.begin_recording(temporary_folders(), limit)
    loop.call_later(PAST_S, begin)
    return past
