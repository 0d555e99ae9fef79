"""A virtual node: the real daemon, its state and its part in the cluster, over a modelled segment, zygote and network.

`SimDaemon` is `engine.node.daemon.NodeDaemon` without sockets: how events are fed, records taken in, deaths handled and
instructions carried out is the real code, and so are `ClusterShell`, `Membership` and all of `engine/state`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from weft.engine.cluster.shell import ClusterShell
from weft.engine.node.daemon import NodeDaemon
from weft.engine.node.folders import Folders
from weft.engine.node.people import People
from weft.engine.node.worker_processes import WorkerProcesses
from weft.engine.node.zygote import LEASE_S
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.node import NodeState
from weft.engine.wire.link_messages import GlobalProcess, Member
from weft.engine.wire.messages import DriverHello
from weft.observe.log_store import LogStore
from weft.store.tables import MemoryTables, Write
from weft.testing.simulate.base import ProcessBase
from weft.testing.simulate.clock import NodeLoop
from weft.testing.simulate.costs import Machine
from weft.testing.simulate.crowd import CrowdShell
from weft.testing.simulate.executor import Executor
from weft.testing.simulate.network import SimLink, SimTransport
from weft.testing.simulate.port import Name, SimPort
from weft.testing.simulate.process import Process
from weft.testing.simulate.program import INLINE_BYTES, Bunch
from weft.testing.simulate.store import SimStore

if TYPE_CHECKING:
    from weft.testing.simulate.simulation import Simulation


class SimZygote:
    """Forks and kills in virtual time."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    def fork(self, process: Name, pipes: list[int]) -> None:
        self._node.begin_worker(process)

    def kill(self, process: Name) -> None:
        self._node.kill(process)

    def renew_lease(self, is_limited: bool) -> None:
        self._node.workers_run_until = self._node.cluster.clock.now + LEASE_S if is_limited else math.inf


class SimOutput:
    """Workers that write nothing."""

    def open(self, process: Name) -> list[int]:
        return []

    def close(self, process: Name) -> None: ...

    def flush(self) -> None: ...


class CountedTables(MemoryTables):
    """The daemon's tables; each write is also the control store's load."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def write(self, batch: Any) -> bool:
        rows: list[Write] = list(batch)
        for row in rows:
            self._simulation.control.write(row.table, zlib.crc32(row.key), 1)
        return super().write(rows)


class NoRequests:
    """Virtual processes ask their daemon for no listings, keep no logs, do not wait for each other, fill no memory."""

    is_watching = True
    name_of: object = None

    @property
    def told(self) -> NoRequests:
        return self

    @property
    def logs(self) -> NoRequests:
        return self

    @property
    def key_values(self) -> NoRequests:
        return self

    def process_died(self, process: tuple[int, int]) -> None:
        pass

    def drop(self, actor: bytes) -> None:
        pass

    def limit(self, one: object) -> None:
        pass


class SimDaemon(NodeDaemon):
    """The real daemon's decisions and order of things, with the model's processes under it."""

    def __init__(self, node: SimNode, machine: Machine) -> None:
        total = {"CPU": float(machine.cpus), **machine.resources}
        gpu_ids = tuple(range(int(total.get("GPU", 0))))
        self.node = node
        self.loop = cast(Any, NodeLoop(node.cluster.clock, machine.clock_rate, machine.clock_offset_s))
        self.port = cast(Any, SimPort(node))
        self.state = NodeState(total, gpu_ids, max(1, machine.cpus), max(8, machine.cpus))
        self.tables = CountedTables(node.cluster)
        node_id = node.cluster.new_id().hex()
        self._make_tables(node_id, f"@{node_id[:6]}", machine.labels, lambda: int(self.loop.now() * 1e9))
        self.operations.offer_more = None
        self.folders = Folders(node_id, False, str)
        self.people = People(self.state, node_id, self.chronicle, LogStore(None), self.send)
        self.output = cast(Any, SimOutput())
        self.spilling = self.kept = self.storage = cast(Any, None)
        self.requests = self._deadlocks = self._memory = cast(Any, NoRequests())
        self.workers = WorkerProcesses(
            self.loop, self.port, self.output, self.folders, self.state.workers, self.feed, self.died
        )
        self.workers.zygote = cast(Any, SimZygote(node))
        self.workers.limits = cast(Any, NoRequests())
        self._carriers = self._make_carriers()
        self.rings = self._make_rings({})
        self.tables.put("nodes", node_id.encode(), b"row")

    def feed(self, event: ev.Event) -> None:
        super().feed(event)
        self.node.cluster.fed(self.node)

    def stop(self, error: str = "", ending: do.Ending = do.Ending.FAILED) -> None:
        if error and not self.error:
            self.error, self.ending = error, ending
        self.node.cluster.clock.after(0.0, self.node.stop)


class SimNode:
    """One virtual machine with its daemon and processes."""

    def __init__(self, simulation: Simulation, machine: Machine, index: int, head: str) -> None:
        self.cluster = simulation
        self.machine = machine
        self.index = index
        self.address = f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}:1#{simulation.next_boot()}"
        self.speed = machine.speed
        self.is_up = True
        self.has_joined = False
        self.comes_back = False
        """It is there in place of one that was left behind."""
        self.executed = 0
        self.processes: dict[Name, Process] = {}
        self._talkers: dict[GlobalProcess, dict[ProcessBase, None]] = {}
        self._rings: dict[ProcessBase, dict[ProcessBase, bool]] = {}
        """By sender and receiver, both of this node: whether they have a ring, or go through the relay."""
        self.rings = 0
        self.most_rings = 0
        self._copies: dict[tuple[int, int], float] = {}
        """When the copy of an object of another node is (or was) here."""
        self.workers_run_until = math.inf
        """The zygote ends them then, unless the daemon says otherwise before."""
        self._daemon_free = 0.0
        self.daemon_work_s = 0.0
        self.daemon = SimDaemon(self, machine)
        self.transport = SimTransport(simulation.network, self, simulation.costs.message_s)
        own = Member(0, self.daemon.node_id, self.address, self.daemon.address, _floats(self.daemon), machine.labels)
        store = SimStore(simulation, self) if simulation.crowd is None else None
        made = ClusterShell if simulation.crowd is None else CrowdShell
        self.shell = made(self.daemon, self.transport, head, own, store)
        self.daemon.join(self.shell)
        self.shell.on_joined = self._joined

    @property
    def number(self) -> int:
        return self.shell.members.own.number

    @property
    def port(self) -> SimPort:
        return cast(SimPort, self.daemon.port)

    def start(self) -> None:
        self.daemon.feed(ev.NodeStarted())
        self.shell.start()

    def _joined(self) -> None:
        self.has_joined = True
        self.cluster.joined(self)

    # ---- time ----

    def busy_until(self, work_s: float) -> float:
        now = self.cluster.clock.now
        begin = self._daemon_free if self._daemon_free > now else now
        self.daemon_work_s += work_s
        self._daemon_free = begin + work_s / self.speed
        return self._daemon_free

    def when_awake(self, call: Callable[[], None]) -> None:
        """Now, or when the daemon goes on."""
        self.daemon.loop.when_awake(call)  # type: ignore[attr-defined]

    def stand_still(self, seconds: float) -> None:
        """The daemon is stopped for so long; its processes go on, the workers until their lease is over."""
        self.daemon.loop.sleep()  # type: ignore[attr-defined]
        if self.workers_run_until < self.cluster.clock.now + seconds:
            self.cluster.clock.at(self.workers_run_until, self._end_workers)
        self.cluster.clock.after(seconds, self.daemon.loop.wake)  # type: ignore[attr-defined]

    def _end_workers(self) -> None:
        for process in list(self.processes.values()):
            if process.is_worker and self.is_up:
                self.process_exits(process, -9)

    # ---- names ----

    def find(self, process: Name) -> Process | None:
        """The living process that a slot of this node stands for."""
        return self.cluster.process(self.global_of(process))

    def knows_number(self, number: int) -> bool:
        """Whether it is one of this node's own, or has a proxy here."""
        name = self.cluster.names.name_of(number)
        return name[0] == self.number or name in self.shell.names.proxies

    def global_of(self, process: Name) -> GlobalProcess:
        return self.shell.names.to_global(process)

    def talks(self, process: ProcessBase, other: ProcessBase) -> None:
        """The two share a ring (through proxies): one is told of the other's death."""
        if other.node is not self:
            self._talkers.setdefault(other.global_name, {})[process] = None

    def talkers_of(self, proxy: Name) -> list[Name]:
        talkers = self._talkers.pop(self.global_of(proxy), {})
        return [process.name for process in talkers if not process.is_dead]

    # ---- records ----

    def record_sent(self, process: ProcessBase, kind: int, payload: bytes) -> None:
        when = self.busy_until(self.cluster.costs.daemon_record_s) + self.cluster.costs.ring_s
        self.cluster.clock.at(when, self._record_came, process.name, kind, payload)

    def in_turn(self, call: Callable[[], None]) -> None:
        """When the daemon has read all records that it was sent until now."""
        self.cluster.clock.at(self.busy_until(0.0) + self.cluster.costs.ring_s, self.when_awake, call)

    def _record_came(self, process: Name, kind: int, payload: bytes) -> None:
        def take() -> None:
            if self.is_up:
                self.daemon.port.inbox.append((*process, kind, payload))  # type: ignore[attr-defined]
                self.daemon.rings.drain()

        self.when_awake(take)

    def send_between(
        self, sender: ProcessBase, to: ProcessBase, count: int, deliver: Callable[..., None], *args: object
    ) -> None:
        """Task records and replies: straight over a ring, or through both daemons over their link."""
        if sender.is_dead or not self.is_up:
            return
        if to.node is self:
            costs = self.cluster.costs
            if self._has_ring(sender, to):
                self.cluster.clock.after(costs.ring_s, deliver, *args)
            else:
                self.cluster.stats.relayed += count
                self.cluster.clock.at(self.busy_until(costs.forward_s * count) + 2 * costs.ring_s, deliver, *args)
            return
        when = self.busy_until(self.cluster.costs.forward_s * count)
        self.cluster.clock.at(when, self._forward, to, count, deliver, args)

    def _has_ring(self, sender: ProcessBase, to: ProcessBase) -> bool:
        """Made at the first need. A pair that found none free stays with the relay, so that its records keep their
        order; the native core tries again now and then."""
        mine = self._rings.setdefault(sender, {})
        if (known := mine.get(to)) is not None:
            return known
        is_made = mine[to] = self.rings < self.machine.rings
        if is_made:
            self.rings += 1
            self.most_rings = max(self.most_rings, self.rings)
        return is_made

    def _give_rings_back(self, dead: ProcessBase) -> None:
        self.rings -= sum(self._rings.pop(dead, {}).values())
        for mine in self._rings.values():
            self.rings -= mine.pop(dead, False)

    def _forward(self, to: ProcessBase, count: int, deliver: Callable[..., None], args: tuple[object, ...]) -> None:
        def forward() -> None:
            link = self.shell.members.links.get(to.node.number)
            if link is not None and self.is_up:
                cast(SimLink, link).carry(to.node._forwarded, count, deliver, args)

        self.when_awake(forward)

    def _forwarded(self, link: SimLink, count: int, deliver: Callable[..., None], args: tuple[object, ...]) -> None:
        when = self.busy_until(self.cluster.costs.forward_s * count)
        self.cluster.clock.at(when + self.cluster.costs.ring_s, deliver, *args)

    # ---- objects ----

    def pull_args(self, bunch: Bunch, own: list[int]) -> float:
        """When the large arguments of these tasks are on this node."""
        ready = self.cluster.clock.now
        for arg in bunch.args:
            if arg.function.result_bytes > INLINE_BYTES:
                indices = own if arg.count == bunch.count else range(arg.count)
                ready = max(ready, max((self._pull(arg, index) for index in indices), default=0.0))
        return ready

    def pull_all(self, bunches: list[Bunch]) -> float:
        ready = self.cluster.clock.now
        for bunch in bunches:
            if bunch.function.result_bytes > INLINE_BYTES:
                ready = max(ready, max((self._pull(bunch, index) for index in bunch.origins), default=0.0))
        return ready

    def _pull(self, bunch: Bunch, index: int) -> float:
        origin = self.cluster.by_number.get(bunch.origins.get(index, -1))
        if origin is self:
            return 0.0
        if origin is None or not origin.is_up:
            self.cluster.stats.objects_lost += 1
            return 0.0
        key = (id(bunch), index)
        if key not in self._copies:
            self._copies[key] = self.cluster.network.transfer(origin.address, self.address, bunch.function.result_bytes)
        return self._copies[key]

    # ---- processes ----

    def new_driver(self) -> Process:
        """As `NodeDaemon._admit` does it."""
        name = self.daemon.port.reserve_slot()
        driver = self.processes[name] = Process(self, name, is_worker=False)
        job = self.daemon.jobs.next()
        self.daemon.feed(ev.DriverJoined(name, job, 1000))
        self.daemon.feed(ev.DriverGreeted(name, DriverHello(1000, [], "/", {}, "ns")))
        self.daemon.tables.put("jobs", b"%d" % job, b"row")
        return driver

    def begin_worker(self, name: Name) -> None:
        self.processes[name] = Process(self, name, is_worker=True)
        self.cluster.clock.after(self.cluster.costs.fork_s / self.speed, self._worker_forked, name)

    def _worker_forked(self, name: Name) -> None:
        def forked() -> None:
            if self.is_up and name in self.processes:
                self.daemon.feed(ev.WorkerForked(name, name[0]))

        self.when_awake(forked)

    def kill(self, name: Name) -> None:
        self.cluster.clock.after(self.cluster.costs.ring_s, self._kill_now, name)

    def _kill_now(self, name: Name) -> None:
        if (process := self.processes.get(name)) is not None and not process.is_dead:
            self.process_exits(process, -9)

    def process_exits(self, process: Executor, status: int) -> None:
        if process.is_dead:
            return
        process.cut_short(replies_arrive=True)
        process.is_dead = True
        self._give_rings_back(process)
        if not process.is_worker:
            self.cluster.driver_gone(process)
        # What it had published is read before the daemon hears of its death.
        when = max(self.cluster.clock.now + self.cluster.costs.death_s, self.busy_until(0.0) + 2e-6)
        self.cluster.clock.at(when, self._died, process.name, status)

    def _died(self, name: Name, status: int) -> None:
        self.when_awake(lambda: self.daemon.died(name, f"ended with {status}", status) if self.is_up else None)

    # ---- ends ----

    def stop(self) -> None:
        """The daemon ends by itself, and says why."""
        was_up = self.is_up
        self._left()
        was_left_behind = self.daemon.ending is do.Ending.LEFT_BEHIND
        if was_up and (was_left_behind or (self.comes_back and not self.has_joined)):
            self.cluster.left_behind(self)

    def end(self) -> None:
        """The daemon is killed; its kernel closes its links."""
        if self.is_up:
            self._vanish()
            self.transport.reset_peers()

    def leave(self) -> None:
        """The daemon was asked to end, and says so."""
        if self.is_up:
            self.shell.leave("", self._left)

    def _left(self) -> None:
        if self.is_up:
            self.shell.close()
            self._vanish()

    def crash(self) -> None:
        """The machine is gone: nobody closes anything."""
        if self.is_up:
            self._vanish()
            self.transport.crashed()

    def _vanish(self) -> None:
        self.is_up = False
        self.daemon.loop.stop()
        for process in self.processes.values():
            if not process.is_dead:
                process.cut_short(replies_arrive=False)
                process.is_dead = True
        self.cluster.vanished(self)


def _floats(daemon: SimDaemon) -> dict[str, float]:
    return {name: amount / 10_000 for name, amount in daemon.state.resources.total.items()}
