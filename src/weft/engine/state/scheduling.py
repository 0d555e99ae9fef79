"""Matching those who wait with workers: the part of a node that hands out leases and places.

Pure: no I/O, no clock. Composes resources, bundles, demands, leases and workers; other parts of a node say when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.state.bundles import BundlePools
from weft.engine.state.demands import Demand, DemandKey, DemandQueue
from weft.engine.state.instructions import (
    BindWorker,
    EndJob,
    Fault,
    ForkWorker,
    GrantLease,
    Instruction,
    KillWorker,
    LimitMemory,
    RefuseShape,
    RevokeLease,
    SendMessage,
)
from weft.engine.state.launches import needs_launch
from weft.engine.state.leases import Lease, LeaseTable
from weft.engine.state.nesting import Nesting
from weft.engine.state.resources import UNIT, Holding, ResourcePool
from weft.engine.state.workers import Binding, Place, Worker, WorkerPool
from weft.engine.wire.messages import ExitProcess

if TYPE_CHECKING:
    from weft.engine.state.actors import ActorTable
    from weft.engine.state.events import Process
    from weft.engine.state.jobs import Job
    from weft.engine.state.standing import Standing


class Scheduler:
    """What a node has, who waits for it, and who has it."""

    def __init__(
        self,
        resources: ResourcePool,
        standing: Standing,
        actors: ActorTable,
        prestart: int,
        start_limit: int,
        most_blocked: int,
    ) -> None:
        self.resources = resources
        self._standing = standing
        self._actors = actors
        self.demands = DemandQueue()
        self.leases = LeaseTable()
        self.workers = WorkerPool(prestart, start_limit)
        self.bundles = BundlePools(resources)
        self.nesting = Nesting(most_blocked, self.demands, self.leases, self.workers)
        self.jobs: dict[int, Job] = {}
        self.drivers: dict[Process, Job] = {}
        self.guests: dict[Process, int] = {}
        """Processes of other nodes, and their jobs."""
        self.place_group: Callable[[Demand, list[Instruction]], bool] = lambda demand, out: False
        """`grouping`'s: set the bundles of a group aside; they fit."""

    def job_of(self, process: Process) -> Job | None:
        """The job that a driver or a bound worker belongs to."""
        if (job := self.drivers.get(process)) is not None:
            return job
        if (guest := self.guests.get(process)) is not None:
            return self.jobs.get(guest)
        worker = self.workers.by_process.get(process)
        return self.jobs.get(worker.binding.job) if worker is not None and worker.binding is not None else None

    def schedule(self, out: list[Instruction]) -> None:
        """Serve what fits, ask leases back for what does not, and keep the store of workers filled."""
        if self._standing.is_draining:
            return
        lacking: set[DemandKey] = set()
        someone_waits = False
        if self.demands.is_waiting:
            while (demand := self.demands.next_fitting(self.resources, lacking, self.nesting.holds_back)) is not None:
                if not self._place(demand, out):
                    lacking.add(demand.key)
                    someone_waits |= not needs_launch(self.jobs[demand.job].runtime_env_for(demand.runtime_env))
            for lease in self._ask_back():
                out.append(RevokeLease(lease.holder, lease.id))
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
            return self.place_group(demand, out)
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
                out.append(ForkWorker(ticket, job.bind(binding, cpus, self._standing.home)))
            return False
        place = Place.ACTOR if demand.is_actor else Place.LEASED
        if self.workers.put_to_work(worker, place, binding, holding, pool):
            out.append(BindWorker(worker.process, job.bind(binding, cpus, self._standing.home)))
        for other in self.workers.idle_on_gpus(holding.gpu_ids):
            if not other.lends:
                self.let_go(other, "another worker uses its GPU", out)
        self._limit(worker, holding, out)
        self.bundles.drawn(pool)
        worker.depth = demand.depth + 1
        self.demands.granted(demand)
        if isinstance(demand.key, bytes):
            self.demands.gave_back(demand.key)
            self._actors.placed(self._actors.by_id[demand.key], worker.process, worker.pid, out)
        else:
            lease = self.leases.grant(demand, worker)
            out.append(GrantLease(demand.requester, lease.id, demand.key[1], worker.process, worker.pid))
        return True

    def _limit(self, worker: Worker, holding: Holding, out: list[Instruction]) -> None:
        """Hold it to the memory that its work declares."""
        declared_bytes = holding.memory // UNIT
        if declared_bytes or worker.limit_bytes:
            worker.limit_bytes = declared_bytes
            out.append(LimitMemory(worker.process, declared_bytes))

    def release(self, worker: Worker) -> None:
        """What it holds goes back to where it is from."""
        pool = worker.pool
        if worker.holding is not None and pool is not None:
            pool.release(worker.holding, worker.lent)
            worker.holding = worker.pool = None
            if worker.lent and worker.process in self.workers.by_process:
                self.workers.block(worker, False)
            self.bundles.returned(pool)

    # ---- ends ----

    def refuse(self, demand: Demand, fault: Fault, out: list[Instruction], only_now: bool = False) -> None:
        """Whatever waits in that shape fails, now and later; or only what waits now."""
        assert isinstance(demand.key, tuple)
        out.append(RefuseShape(demand.requester, demand.key[1], fault, only_now))
        self.demands.cancel(demand.key)

    def kill(self, worker: Worker, out: list[Instruction]) -> None:
        self.workers.end(worker)
        out.append(KillWorker(worker.process))

    def kill_process(self, process: Process, out: list[Instruction]) -> None:
        """A worker of this node or of another."""
        if (worker := self.workers.by_process.get(process)) is not None:
            self.workers.end(worker)
        out.append(KillWorker(process))

    def let_go(self, worker: Worker, reason: str, out: list[Instruction]) -> None:
        """End an idle worker; it waits until nobody needs what it owns."""
        self.workers.end(worker)
        out.append(SendMessage(worker.process, ExitProcess(reason, drain=True)))

    def wind_up(self, job_id: int, out: list[Instruction]) -> None:
        """Without its driver a job goes on for its detached actors only; then its workers end, then the job.

        All its workers, whoever leased them: two that hold each other would never end by themselves."""
        job = self.jobs.get(job_id)
        if job is None or job.is_driver_alive or self._actors.has_living(job_id):
            return
        workers = [worker for worker in self.workers if worker.binding is not None and worker.binding.job == job_id]
        if any(worker.place is Place.ACTOR and self.leases.of_worker(worker) is not None for worker in workers):
            return  # living actors that another node keeps: that node ends them
        for worker in workers:
            self.kill(worker, out)
        if not workers:
            del self.jobs[job_id]
            self.demands.job_ended(job_id)
            out.append(EndJob(job_id))
