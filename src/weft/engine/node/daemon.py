"""The node daemon: carries out what `engine/state` decides.

One thread, one loop over the segment's eventfd, the drivers' sockets, the zygote and the workers' output. It holds no
decisions of its own: records become events, events become instructions, instructions become calls.

A death is handled in one order, whoever died: what the process had published is read, its slot is marked dead, what
had still slipped in is read, and only then the state hears of it. The slot is given back once no living process
shares a ring with the dead one.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.control.tables import ACTORS, JOBS, NODES, Delete, MemoryTables, Put
from weft.engine.node import handshake, intake
from weft.engine.node.chronicle import ACTOR, DRIVER, ERROR, WARNING, WORKER, Chronicle
from weft.engine.node.config import PROCESSES_VARIABLE, NodeConfig, NodeOffer
from weft.engine.node.deadlocks import Deadlocks
from weft.engine.node.doors import Doors
from weft.engine.node.functions import FunctionTable
from weft.engine.node.inheritance import InheritanceShell
from weft.engine.node.kept_objects import KeptObjects
from weft.engine.node.listing import Listing
from weft.engine.node.log_store import LogStore
from weft.engine.node.memory import DeclaredLimits, MemoryMonitor
from weft.engine.node.operations import Operations, Pending, gather
from weft.engine.node.output import WorkerOutput
from weft.engine.node.requests import Requests
from weft.engine.node.room import RoomRequests
from weft.engine.node.spilling import Spilling
from weft.engine.node.storage import Storage
from weft.engine.node.zygote_link import ZygoteLink
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.actors import Stage
from weft.engine.state.cluster import NodeView
from weft.engine.state.events import Process
from weft.engine.state.instructions import Fault
from weft.engine.state.jobs import JobNumbers
from weft.engine.state.memory_pressure import StoppedForMemory
from weft.engine.state.node import NodeState
from weft.engine.state.resources import to_floats
from weft.engine.state.stuck import WARN_AFTER_TICKS
from weft.engine.state.workers import Place, how_ended
from weft.engine.wire import kinds
from weft.engine.wire.loop import OUT_OF_DESCRIPTORS, Loop
from weft.engine.wire.messages import Happening, Home, LogLines, Message, Request

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.jobs.service import JobService
    from weft.engine.node.front import Front
    from weft.engine.wire.link_messages import Member

TICK_S = 1.0
FORK_AGAIN_S = 0.1
LINGER_NS = 100_000
"""The daemon stays awake for so long after a request."""
MOST_LINGERS = 64
"""Then the rest of the loop has its turn."""
FAILURES_KEPT = 50
PIDS_S = 2.0
"""So long another node is asked for the pids of its processes, for a listing."""
SLOTS_REMEDY = (
    f"Tasks wait until one of them ends; actors, too, and fail when none has ended for {WARN_AFTER_TICKS} s. Set "
    f"{PROCESSES_VARIABLE} before the node starts for more room"
)
CHANGING = frozenset(
    "claim_actor_name kv_put kv_del create_group actor_log_open actor_log_append name_object delete_object".split()
)
"""Requests that change what a cluster's head keeps."""
_encode = msgspec.msgpack.Encoder().encode


class NodeDaemon:
    """One node's daemon, from start to end."""

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
        self.node_id = os.urandom(16).hex()
        self.state.own.name(self.node_id, config.labels)
        self.state.home = Home(self.node_id, ip)
        started_ms = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        self.address = f"@weft-{os.getuid()}-{started_ms:011x}{self.node_id[:6]}{address_suffix}"
        self.tables = MemoryTables()
        self.cluster: ClusterShell | None = None
        """Its part in a cluster, where there is one."""
        self.error = ""
        """Why the node ended, when it was not asked to."""
        self.ending = do.Ending.ASKED
        self.chronicle = Chronicle(self.tables, self.node_id, self._tell_head)
        self.functions = FunctionTable(self.tables)
        self._output = WorkerOutput(self.loop, self._deliver_output)
        self.spilling = Spilling(port, self._name_of_slot)
        self.loop.watch(self.spilling.fd, self.spilling.completed)
        self._room = RoomRequests(port, self.loop, self.spilling, self._has_arrivals)
        self._zygote = ZygoteLink(
            self.loop, zygote, self._worker_forked, self._worker_exited, self._fork_failed, self._zygote_lost
        )
        self.inheritance = InheritanceShell(port, self.functions, self._local_processes, self.state)
        self.operations = Operations()
        self.operations.offer_more = self._offer_more
        self.kept = KeptObjects(self)
        self.inheritance.is_kept = self.kept.has
        self.storage = Storage(self, config.storage)
        self._deadlocks = Deadlocks(self)
        self.requests = self._make_requests(config)
        self._memory = MemoryMonitor(self, self._stop_for_memory)
        self._limits = DeclaredLimits(self, self._stop_for_memory)
        self._stopped: dict[Process, StoppedForMemory] = {}
        """Why workers are being stopped that nobody asked to end."""
        self.failures: deque[dict[str, Any]] = deque(maxlen=FAILURES_KEPT)
        """What has gone wrong here lately, for people."""
        self._busy_s = time.monotonic()
        self._keeps_files = config.cluster is not None and not config.cluster.is_leashed
        self.logs = LogStore(self.session_folder if self._keeps_files else None)
        self._front: Front | None = None
        """The door for browsers, once its address was asked for."""
        self.submitted: JobService | None = None
        """The jobs that were submitted to this daemon's cluster, once there were any."""
        fds = (port.segment_fd, port.event_fd)
        self._doors = Doors(self.loop, self.address, fds, self._admit, self._driver_left, self.operations)
        self.jobs = JobNumbers()
        self._has_environments = False
        """Some worker has a runtime environment, so there may be folders made for it."""
        self._dead: dict[Process, None] = {}
        """Whose slots wait to be given back."""
        self._complained: set[tuple[Process, int]] = set()
        """Senders, and kinds of theirs that were dropped."""
        self._is_ticking = False
        self._events: deque[ev.Event] = deque()
        self._is_feeding = False
        self._carriers = self._make_carriers()
        self.loop.watch(port.event_fd, self._rung)
        self.tables.put(NODES, self.node_id.encode(), _encode({"address": self.address, "resources": offer.total}))

    def _make_requests(self, config: NodeConfig) -> Requests:
        listing = Listing(self.state, self.node_id, self.address, config.labels, self.place_of)
        listing.members = lambda: [] if self.cluster is None else self.cluster.rows()
        listing.pids_of = self.pids_of
        self.operations.offer("node_pids", lambda params: listing.pids())
        more: dict[str, Callable[..., object]] = {
            **self.kept.requests(),
            "storage_folder": lambda asker: self.storage.folder(),
            "dashboard": lambda asker: self.dashboard(),
            "flush_output": lambda asker: self._output.flush(),
            "waits_long": self._deadlocks.waits_long,
            "waits_told": self._deadlocks.told,
        }
        calls = (self.feed, self.loop.call_later, self.all_views)
        return Requests(self.state, self.port, self.tables, self.chronicle, listing, *calls, more)

    def _make_carriers(self) -> dict[type[do.Instruction], Callable[..., None]]:
        """How each instruction is carried out."""
        return {
            do.SendRecord: self._send_record,
            do.SendMessage: self._send_message,
            do.SendFault: self._send_fault,
            do.SendFunction: self._send_function,
            do.ForkWorker: self._fork_worker,
            do.KillWorker: self._kill_worker,
            do.LimitMemory: self._limits.limit,
            do.RecordActor: self._record_actor,
            do.EndJob: self._end_job,
            do.StopNode: self._stop_node,
            do.ReserveBundles: self._tell_nodes,
            do.ReleaseBundles: self._tell_nodes,
            do.AnswerBundles: self._tell_nodes,
            do.PublishGroup: self._tell_nodes,
        }

    def start(self, founder: socket.socket | None) -> None:
        """Let the founder in and have the first workers made."""
        if founder is not None:
            self._doors.add(founder, is_founder=True)
        self.feed(ev.NodeStarted())

    def worker_pids(self) -> list[int]:
        """Of the workers that live as far as is known."""
        return [worker.pid for worker in self.state.workers if worker.pid]

    def close(self) -> None:
        """Let everything go; a zygote that still lives ends its workers when it sees the socket's end."""
        if self._front is not None:
            self._front.close()
        if self.submitted is not None:
            self.submitted.close()
        if self.cluster is not None:
            self.cluster.close()
        self._zygote.close()
        self._doors.close()
        self._output.close_all()
        self.loop.unwatch(self.spilling.fd)
        self.spilling.close()
        self.storage.close()
        self._limits.close()
        self._let_folders_go()
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
            self.idle_s()
        if not self._memory.is_watching and self.state.workers.is_busy:
            self._memory.watch()
        if not self._is_ticking and (self._dead or self.state.wants_ticks):
            self._is_ticking = True
            self.loop.call_later(TICK_S, self._tick)

    def _rung(self) -> None:
        """Handle what has come. Who asks for something mostly asks for more once it is answered, so after a request
        the daemon stays awake for a moment: a wake-up costs more than most answers do."""
        for _ in range(MOST_LINGERS):
            if not self.drain() or not self.port.linger(LINGER_NS):
                return
        self.drain()

    def drain(self) -> bool:
        """Handle all records that have come; whether there was a request or the like among them."""
        asked = False
        for slot, generation, kind, payload in self.port.drain():
            asked = asked or kind == kinds.CONTROL
            process = (slot, generation)
            try:
                kinds.check_sender(self._role_of(process), kind)
                if self.cluster is None or not self.cluster.takes(process, kind, payload):
                    self.handle_record(process, kind, payload)
            except intake.MALFORMED as error:
                self.complain(process, kind, error)
        if self.cluster is not None:
            self.cluster.forward()
        return asked

    def _role_of(self, process: Process) -> kinds.Role:
        if not self.is_local(process):
            return kinds.Role.FAR
        return kinds.Role.WORKER if process in self.state.workers.by_process else kinds.Role.DRIVER

    def complain(self, process: Process, kind: int, error: Exception) -> None:
        """A record makes no sense, or is not its sender's to say: it is dropped, and told once for each."""
        if (process, kind) not in self._complained:
            self._complained.add((process, kind))
            what = f"a malformed record (kind {kind}) of the process in slot {process[0]}, generation {process[1]},"
            print(f"weft: {what} was dropped by the node daemon: {error}", file=sys.stderr, flush=True)

    def handle_record(self, process: Process, kind: int, payload: bytes) -> None:
        event = intake.decode(process, kind, payload)
        if isinstance(event, ev.Event):
            self.feed(event)
        elif isinstance(event, Request):
            self._answer(process, event)
        elif kind == kinds.FUNCTION:
            if (job := self.state.job_of(process)) is not None:
                self.functions.keep(job.id, payload)
        elif kind == kinds.PEER_DETACHED:
            self.release(kinds.PROCESS_BODY.unpack(payload))
        elif kind == kinds.ORPHANS:
            self.inheritance.answered(process, payload)
        elif kind == kinds.ADOPTED:
            self.inheritance.adopted(process, payload)
        elif kind == kinds.ORPHAN_ASKED:
            self.inheritance.asked(process, payload)
        elif kind in (kinds.DEPOSIT, kinds.WITHDRAW):
            self.kept.takes(process, kind, payload)
        elif kind == kinds.NEED_SPACE:
            self._room.need_space(process, payload)
        elif kind == kinds.RESTORE:
            self._room.restore(process, payload)
        else:
            raise ValueError("not a record for the daemon")

    def _answer(self, process: Process, request: Request) -> None:
        """In a cluster who has changed something is answered when it is safe."""
        reply = self.requests.answer(process, request)
        if reply is None:
            return
        if not request.id:  # nobody waits for it
            if reply.error_kind:
                raise ValueError(f"{request.method}: {reply.error}")
        elif self.cluster is not None and request.method in CHANGING:
            self.cluster.keeping.when_kept(lambda: self._send(process, reply))
        else:
            self._send(process, reply)

    def _tick(self) -> None:
        self._is_ticking = False
        for process in list(self._dead):
            self.release(process)
        self.feed(ev.Ticked())

    # ---- carrying out ----

    def _send_record(self, one: do.SendRecord) -> None:
        self.port.send(*one.process, one.kind, one.payload)

    def _send_message(self, one: do.SendMessage) -> None:
        self._has_environments |= one.bind and bool(getattr(one.message, "runtime_env", ""))
        self._send(one.process, one.message, kinds.BIND_JOB if one.bind else kinds.CONTROL)

    def stop(self, error: str, ending: do.Ending = do.Ending.FAILED) -> None:
        self._stop_node(do.StopNode(error, ending))

    def asked_to_end(self) -> None:
        """By a signal."""
        if self.cluster is not None:
            self.cluster.leave("")
        else:
            self.loop.stop()

    def flush_output(self) -> None:
        """What workers have written until now is sent to their drivers."""
        self._output.flush()

    def send(self, process: Process, message: Message) -> None:
        """One message to a process."""
        self._send(process, message)

    def _send(self, process: Process, message: Message, kind: int = kinds.CONTROL) -> None:
        self.port.send(*process, kind, _encode(message))

    def _send_fault(self, one: do.SendFault) -> None:
        self.port.send(*one.process, one.kind, one.head + _native.error_value(one.fault.code, one.fault.text))

    def _send_function(self, one: do.SendFunction) -> None:
        record = self.functions.find(one.key)
        if record is not None:
            self.port.send(*one.process, kinds.FUNCTION, record)

    def _fork_worker(self, one: do.ForkWorker) -> None:
        try:
            process = self.port.reserve_slot()
        except RuntimeError as error:
            self.feed(ev.SlotsExhausted(one.ticket, f"{error}. {SLOTS_REMEDY}"))
            return
        self.feed(ev.SlotReserved(one.ticket, process))
        self._fork_into(process, one)

    def _fork_into(self, process: Process, one: do.ForkWorker) -> None:
        pipes: list[int] = []
        try:
            pipes = self._output.open(process)
            if one.bind is not None:
                self._has_environments = True
                pipes.append(self._in_memory(_encode(one.bind)))
        except OSError as error:
            why = error.strerror or str(error)
            for fd in pipes:
                os.close(fd)
            self._output.close(process)
            if error.errno in OUT_OF_DESCRIPTORS:
                self.loop.call_later(FORK_AGAIN_S, lambda: self._fork_again(process, one, why))
            else:
                self.loop.call_later(0, lambda: self._fork_failed(process, why))  # not in the middle of a batch
            return
        self._zygote.fork(process, pipes)

    def _fork_again(self, process: Process, one: do.ForkWorker, why: str) -> None:
        """There may be descriptors now. Whoever wanted it may have been told meanwhile to end it."""
        worker = self.state.workers.by_process.get(process)
        if worker is None or worker.place is Place.ENDING:
            self._fork_failed(process, why)
        else:
            self._fork_into(process, one)

    def _in_memory(self, data: bytes) -> int:
        """A descriptor to read it from: it may be longer than a command."""
        fd = os.memfd_create("weft-binding")
        os.write(fd, data)
        return fd

    def _kill_worker(self, one: do.KillWorker) -> None:
        if self.cluster is None or not self.cluster.places.kill(one.process):
            self.kill_worker(one.process)

    def renew_lease(self, is_limited: bool) -> None:
        """This node's workers may go on; limited, where other nodes start their actors again when it stands still."""
        self._zygote.renew_lease(is_limited)

    def kill_worker(self, process: Process) -> None:
        """A process of this node."""
        self._zygote.kill(process)

    def _record_actor(self, one: do.RecordActor) -> None:
        row = _encode({**one.row, "state": one.state})
        self.tables.write([Put(ACTORS, one.actor, row) if one.state else Delete(ACTORS, one.actor)])
        if one.state == Stage.DEAD.value:
            self.requests.logs.drop(one.actor)
        self._note_actor(one)
        if self.cluster is not None:
            self.cluster.keeping.actor(one)

    def _note_actor(self, one: do.RecordActor) -> None:
        """Tell the chronicle of what nobody asked for."""
        actor = self.state.actors.by_id.get(one.actor)
        if actor is None or isinstance(actor.ending, Fault):
            return
        if one.state == Stage.DEAD.value:
            text = actor.cause.text if isinstance(actor.cause, Fault) else f"the constructor of {actor} raised"
            self.chronicle.note(ACTOR, actor.id.hex(), text, ERROR)
        elif one.state == Stage.PENDING.value and actor.incarnation and actor.unavailable is not None:
            self.chronicle.note(ACTOR, actor.id.hex(), actor.unavailable.text, WARNING)

    def _tell_head(self, one: Happening) -> bool | None:
        if self.cluster is None or self.cluster.is_head:
            return False
        head = self.cluster.members.head
        return True if head is not None and self.cluster.tell_head(head, one) else None

    def _end_job(self, one: do.EndJob) -> None:
        self.functions.end_job(one.job)
        self._sweep()
        self.tables.delete(JOBS, str(one.job).encode())
        self.chronicle.note(DRIVER, str(one.job), f"job {one.job} is over")
        if self.cluster is not None:
            self.cluster.keeping.job_ended(one.job)

    def _stop_node(self, one: do.StopNode) -> None:
        if one.error and not self.error:
            self.error, self.ending = one.error, one.ending
        self.loop.stop()

    def _tell_nodes(self, one: do.ReserveBundles | do.ReleaseBundles | do.AnswerBundles | do.PublishGroup) -> None:
        if self.cluster is not None:
            self.cluster.places.carry(one)

    def _sweep(self) -> None:
        """Remove folders that were made for runtime environments of jobs that are over."""
        if self._has_environments:
            from weft.engine.process.runtime_env import folders

            folders.sweep()

    def _let_folders_go(self) -> None:
        """Of this node's own: nothing of it runs any more."""
        if self._has_environments:
            from weft.engine.process.runtime_env import folders

            folders.release()
            folders.sweep()

    # ---- processes come and go ----

    def _admit(self, pid: int, is_founder: bool) -> handshake.Welcome:
        process = self.port.reserve_slot()
        job = self.jobs.next()
        self.feed(ev.DriverJoined(process, job, pid, is_founder))
        self.tables.put(JOBS, str(job).encode(), _encode({"pid": pid, "is_founder": is_founder}))
        self.chronicle.note(DRIVER, str(job), f"the driver of job {job} attached (pid {pid})")
        address = self.address if self.cluster is None else self.cluster.cluster_address
        return handshake.Welcome(*process, job, self.node_id, address, self.state.home.ip)

    def _driver_left(self, process: Process, how: str) -> None:
        if process == (0, 0):
            self._stop_node(do.StopNode())
        else:
            self.died(process, how, -9)

    def _worker_forked(self, process: Process, pid: int) -> None:
        self._limits.forked(process, pid)
        self.feed(ev.WorkerForked(process, pid))

    def _worker_exited(self, process: Process, pid: int, status: int) -> None:
        killed = self._limits.exited(process, pid)
        if (why := self._stopped.pop(process, killed)) is None:
            self.died(process, f"{how_ended(status)} (pid {pid})", status)
        else:
            self.died(process, why.text, status, why.peak_bytes)

    def _has_arrivals(self) -> bool:
        return self.cluster is not None and self.cluster.objects.pulls.has_arrivals()

    def _stop_for_memory(self, process: Process, why: StoppedForMemory) -> None:
        self._stopped[process] = why
        self.kill_worker(process)

    def _fork_failed(self, process: Process, why: str) -> None:
        self.died(process, f"its process could not be forked: {why}", 1)

    def _zygote_lost(self) -> None:
        self._stop_node(do.StopNode("the zygote died, and with it every worker"))

    def died(self, process: Process, reason: str, status: int, memory_peak: int | None = None) -> None:
        """`memory_peak`: what it held at most, in bytes, when it was stopped for memory."""
        self.drain()
        lent = self.inheritance.take(process)
        peers = tuple(peer for peer in self.port.mark_dead(*process) if peer[0] != 0)
        self.drain()
        self._output.close(process)
        self._complained = {one for one in self._complained if one[0] != process}
        self.requests.told.process_died(process)
        self._deadlocks.process_died(process)
        self._dead[process] = None
        self._note_failure(process, reason, status)
        if self.cluster is not None:
            self.cluster.process_died(process, reason, status, memory_peak)
        self.feed(ev.ProcessDied(process, reason, peers, status, memory_peak))
        self.inheritance.died(process, lent)
        if not peers:
            self.release(process)

    def _local_processes(self) -> list[Process]:
        """All drivers and workers of this node."""
        return [process for process in (*self.state.drivers, *self.state.workers.by_process) if self.is_local(process)]

    def busy_processes(self) -> list[Process]:
        """Of this node: drivers, and workers that have run something."""
        bound = [worker.process for worker in self.state.workers if worker.pid and worker.binding is not None]
        return [process for process in (*self.state.drivers, *bound) if self.is_local(process)]

    @property
    def own_number(self) -> int:
        """This node's, in its cluster."""
        return 0 if self.cluster is None else self.cluster.members.own.number

    def release(self, process: Process) -> None:
        if process in self._dead and self.port.release_slot(*process):
            del self._dead[process]
            self.feed(ev.SlotReleased())

    # ---- for people ----

    def ask_node(self, number: int, method: str, params: dict[str, Any], timeout_s: float = 30.0) -> Pending:
        """An operation of that node of the cluster, this one included."""
        if self.cluster is None or number == self.cluster.members.own.number:
            return self.operations.perform(method, params)
        return self.cluster.calls.ask(number, method, params, timeout_s)

    def all_views(self) -> list[NodeView]:
        """The living nodes, this one first."""
        if self.state.cluster is None:
            self.state.own.available = self.state.resources.available
            return [self.state.own]
        self.state.cluster.own.available = self.state.resources.available
        return [view for view in self.state.cluster.nodes.values() if view.is_alive]

    def node_views(self) -> list[NodeView]:
        """Those of them that take work."""
        return [view for view in self.all_views() if view.takes_work]

    def all_members(self) -> list[Member]:
        """Every node of the cluster, living or dead."""
        from weft.engine.wire.link_messages import Member

        if self.cluster is not None:
            return sorted(self.cluster.members.members.values(), key=lambda member: member.number)
        total = to_floats(self.state.resources.total)
        return [Member(0, self.node_id, self.address, self.address, total, dict(self.state.own.labels))]

    def is_local(self, process: Process) -> bool:
        """Whether it is a process of this node, not one of another that is known here."""
        return self.cluster is None or not self.cluster.names.is_proxy(process)

    def place_of(self, process: Process) -> tuple[str, Process]:
        """Of a process that is known here, or was until lately: its node's id, and what that node calls it."""
        if self.cluster is None:
            return self.node_id, process
        number, slot, generation = self.cluster.names.to_global(process)
        if number == self.cluster.names.number and slot == process[0]:
            return self.node_id, process
        member = self.cluster.members.members.get(number) if slot else None  # 0: nobody knows any more who it was
        return member.node_id if member is not None else "", (slot, generation)

    def pids_of(self, nodes: set[str]) -> Pending:
        """Of the processes of these nodes: of each that answers in time {worker id: pid}."""
        views = [view for view in self.all_views() if view.node_id in nodes]
        asked = {view.number: self.ask_node(view.number, "node_pids", {}, PIDS_S) for view in views}
        return gather(asked).map(lambda outcomes: [one.value for one in outcomes.values() if not one.error_kind])

    def idle_s(self) -> float:
        """How long nothing has been held here; looked at after each event."""
        if self.state.resources.available != self.state.resources.total:
            self._busy_s = time.monotonic()
        return time.monotonic() - self._busy_s

    def _note_failure(self, process: Process, reason: str, status: int) -> None:
        """A worker that nobody asked to end."""
        worker = self.state.workers.by_process.get(process)
        if worker is None or worker.place is Place.ENDING or status == 0:
            return
        actor = self.state.actors.of_worker(process)
        job = f" of job {worker.binding.job}" if worker.binding is not None else ""
        what = str(actor) if actor is not None else f"a worker{job}"
        if actor is None:
            self.chronicle.note(WORKER, str(worker.pid), f"{what} died: {reason}", WARNING)
        self.failures.append({"time_s": time.time(), "node_id": self.node_id, "what": f"{what} died: {reason}"})

    def restore_submissions(self, rows: list[bytes], is_restart: bool = False) -> None:
        """This daemon is its cluster's head now: the jobs that were submitted to the one before."""
        self.operations.complete()
        assert self.submitted is not None
        if is_restart:
            self.submitted.restart(rows, self.own_number, self.node_id)
        else:
            self.submitted.restore(rows)

    def _offer_more(self) -> None:
        """The operations that are seldom asked for."""
        from weft.engine.jobs.service import JobService
        from weft.engine.node.observation import Observation
        from weft.engine.node.overview import Overview

        def address() -> str:
            return self.address if self.cluster is None else self.cluster.cluster_address

        jobs = self.submitted = JobService(self.loop, self.operations, self, self._jobs_folder, address)
        if self.cluster is not None:
            jobs.keep, jobs.when_kept = self.cluster.keeping.submission, self.cluster.keeping.when_kept
        Overview(self, lambda: jobs.job_list({}))
        Observation(self)
        if self.cluster is not None:
            from weft.engine.cluster.draining import Draining

            Draining(self, self.cluster)

    def dashboard(self) -> dict[str, Any]:
        """Where this node's dashboard is: {"address", "token", "url"}. OSError when it cannot listen."""
        from weft.engine.node.front import Front

        if self._front is None:
            self._front = Front(self)
        return self._front.where()

    def _jobs_folder(self) -> str:
        """Where the files of submitted jobs are: with all that a head keeps, if it keeps something."""
        kept = "" if self.cluster is None else self.cluster.jobs_folder
        return kept or self.session_folder()

    def session_folder(self) -> str:
        """Where this node keeps files, made now."""
        from weft.engine.jobs import session_folder

        self._has_environments = True  # there may be a folder to be swept
        return session_folder.make(self.node_id, self._keeps_files)

    def _deliver_output(self, process: Process, stream: str, lines: list[tuple[str, str]]) -> None:
        worker = self.state.workers.by_process.get(process)
        job = self.state.job_of(process)
        if worker is not None:
            self.logs.add(worker.pid, 0 if job is None else job.id, stream, lines)
        if worker is None or job is None:
            text = "".join(f"{line}\n" for _, line in lines)
            os.write(2, text.encode("utf-8", "replace"))
        elif job.is_driver_alive and (job.hello is None or job.hello.log_to_driver):
            self._send(job.driver, LogLines(worker.pid, stream, lines))

    def _name_of_slot(self, slot: int) -> str:
        """Who a slot is, for error messages."""
        for process, job in self.state.drivers.items():
            if process[0] == slot:
                return f"the driver (pid {job.pid})"
        for process, worker in self.state.workers.by_process.items():
            if process[0] == slot:
                actor = self.state.actors.of_worker(process)
                return str(actor) if actor is not None else f"a worker (pid {worker.pid})"
        return "a process that has ended"
