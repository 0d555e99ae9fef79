"""Matching those who wait with workers: the part of a node that hands out leases and places.

Pure: no I/O, no clock. Composes resources, demands, leases and workers; `node.NodeState` stands on it and says when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.engine.state.actors import ActorTable
from weft.engine.state.cluster import ClusterView
from weft.engine.state.demands import Demand, DemandKey, DemandQueue
from weft.engine.state.events import Process
from weft.engine.state.instructions import (
    ForkWorker,
    Instruction,
    KillWorker,
    LimitMemory,
    SendMessage,
    SendRecord,
)
from weft.engine.state.jobs import Job
from weft.engine.state.launches import needs_launch
from weft.engine.state.leases import Lease, LeaseTable
from weft.engine.state.nesting import Nesting
from weft.engine.state.resources import UNIT, Holding, ResourcePool
from weft.engine.state.workers import Binding, Place, Worker, WorkerPool
from weft.engine.wire import kinds
from weft.engine.wire.messages import ExitProcess, Home


class Scheduler:
    """What a node has, who waits for it, and who has it."""

    def __init__(
        self, total: Mapping[str, float], gpu_ids: Sequence[int], prestart: int, start_limit: int, most_blocked: int
    ) -> None:
        self.resources = ResourcePool(total, gpu_ids)
        self.demands = DemandQueue()
        self.leases = LeaseTable()
        self.workers = WorkerPool(prestart, start_limit)
        self.nesting = Nesting(most_blocked, self.demands, self.leases, self.workers)
        self.actors = ActorTable()
        self.jobs: dict[int, Job] = {}
        self.drivers: dict[Process, Job] = {}
        self.guests: dict[Process, int] = {}
        """Processes of other nodes, and their jobs."""
        self.cluster: ClusterView | None = None
        """The other nodes; None where there can be none."""
        self.home = Home()
        """This node, for its workers."""
        self.owners_elsewhere: set[Process] = set()
        """Processes of this node whose actors another node keeps."""

    @property
    def is_draining(self) -> bool:
        """Whether this node is to leave: it grants nothing any more."""
        return self.cluster is not None and self.cluster.own.is_draining

    def job_of(self, process: Process) -> Job | None:
        """The job that a driver or a bound worker belongs to."""
        if (job := self.drivers.get(process)) is not None:
            return job
        if (guest := self.guests.get(process)) is not None:
            return self.jobs.get(guest)
        worker = self.workers.by_process.get(process)
        return self.jobs.get(worker.binding.job) if worker is not None and worker.binding is not None else None

    def _schedule(self, out: list[Instruction]) -> None:
        """Serve what fits, ask leases back for what does not, and keep the store of workers filled."""
        if self.is_draining:
            return
        lacking: set[DemandKey] = set()
        someone_waits = False
        if self.demands.is_waiting:
            while (demand := self.demands.next_fitting(self.resources, lacking, self.nesting.holds_back)) is not None:
                if not self._place(demand, out):
                    lacking.add(demand.key)
                    someone_waits |= not needs_launch(self.jobs[demand.job].runtime_env_for(demand.runtime_env))
            for lease in self._ask_back():
                out.append(SendRecord(lease.holder, kinds.LEASE_REVOKE, kinds.LEASE_BODY.pack(lease.id)))
        for ticket in self.workers.top_up(someone_waits):
            out.append(ForkWorker(ticket))

    def _ask_back(self) -> list[Lease]:
        """For what still waits: from the node's pool, and from the bundles of those that are in a placement group."""
        if not self.demands.is_waiting:
            return []
        asked = self.leases.ask_back(self.demands.pending(), self.resources, self.guests)
        if not self.demands.in_groups:
            return asked
        pools = {id(pool): pool for demand in self.demands.firsts() for pool in demand.draws_from or ()}
        for pool in pools.values():
            asked += self.leases.ask_back(self.demands.pending(), pool, self.guests)
        return asked

    def _place(self, demand: Demand, out: list[Instruction]) -> bool:
        """Give the demand a worker; False when there is none yet."""
        if isinstance(demand.key, str):
            return self._place_group(demand, out)
        pool = demand.pool(self.resources)
        holding = pool.acquire(demand.hold, demand.need) if pool is not None else None
        assert pool is not None and holding is not None
        job = self.jobs[demand.job]
        cpus = holding.cpu / UNIT or 1.0
        binding = Binding(
            job.id,
            job.runtime_env_for(demand.runtime_env),
            holding.gpu_ids,
            max(1, int(cpus)),
            demand.group.hex(),
            demand.captures,
        )
        worker = self.workers.choose(binding, demand.is_actor, demand.requester)
        if worker is None:
            pool.release(holding)
            if needs_launch(binding.runtime_env) and (ticket := self.workers.launch(binding)):
                out.append(ForkWorker(ticket, job.bind(binding, cpus, self.home)))
            return False
        place = Place.ACTOR if demand.is_actor else Place.LEASED
        if self.workers.put_to_work(worker, place, binding, holding, pool):
            out.append(SendMessage(worker.process, job.bind(binding, cpus, self.home), bind=True))
        for other in self.workers.idle_on_gpus(holding.gpu_ids):
            if not other.lends:
                self._let_go(other, "another worker uses its GPU", out)
        self._limit(worker, holding, out)
        self._drawn(worker)
        worker.depth = demand.depth + 1
        self.demands.granted(demand)
        if isinstance(demand.key, bytes):
            self.demands.gave_back(demand.key)
            self.actors.placed(self.actors.by_id[demand.key], worker.process, worker.pid, out)
        else:
            lease = self.leases.grant(demand, worker)
            grant = kinds.LEASE_GRANT_BODY.pack(lease.id, demand.key[1], *worker.process, worker.pid)
            out.append(SendRecord(demand.requester, kinds.LEASE_GRANT, grant))
        return True

    def _limit(self, worker: Worker, holding: Holding, out: list[Instruction]) -> None:
        """Hold it to the memory that its work declares."""
        declared_bytes = holding.memory // UNIT
        if declared_bytes or worker.limit_bytes:
            worker.limit_bytes = declared_bytes
            out.append(LimitMemory(worker.process, declared_bytes))

    def _release(self, worker: Worker) -> None:
        if worker.holding is not None and worker.pool is not None:
            worker.pool.release(worker.holding, worker.lent)
            worker.holding = worker.pool = None
            if worker.lent and worker.process in self.workers.by_process:
                self.workers.block(worker, False)

    # ---- placement groups, which `grouping.GroupScheduler` knows ----

    def _place_group(self, demand: Demand, out: list[Instruction]) -> bool:
        raise NotImplementedError

    def _drawn(self, worker: Worker) -> None:
        """It was put to work with what it holds of its pool."""

    def _kill(self, worker: Worker, out: list[Instruction]) -> None:
        self.workers.end(worker)
        out.append(KillWorker(worker.process))

    def _let_go(self, worker: Worker, reason: str, out: list[Instruction]) -> None:
        """End an idle worker; it waits until nobody needs what it owns."""
        self.workers.end(worker)
        out.append(SendMessage(worker.process, ExitProcess(reason, drain=True)))
