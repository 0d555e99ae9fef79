"""The pool of workers: which exist, what each is for, how many to keep in store.

Pure: no I/O, no clock. A worker is asked for by ticket; its slot is named at once and its process follows, and from the
moment it has a slot it can be given work (records wait in its ring). It is bound at its first work to one job, one
runtime environment, one set of GPUs and one number of threads, and afterwards serves only what matches. Where the
environment needs a launch of its own (`launches`) the worker is bound when it is asked for.

Before its first use the pool holds one worker a CPU. While anything runs it keeps `SPARE` unbound ones in store, so
that nested work and actors start at once. More idle workers than both together are ended after a tick or two; idle
workers bound to GPUs are ended even if they are few, because their contexts hold device memory.

Invariants (`WorkerPool.check`):
    WOR-1  a worker is in the idle store if and only if its place is IDLE.
    WOR-2  a worker holds resources if and only if it is leased, an actor, or ending.
    WOR-3  two workers never share a slot and generation.
    WOR-4  a leased worker and an actor's worker are bound.
    WOR-5  the counts of busy, of blocked and of starting workers are right.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Callable, Iterator

import msgspec

from weft.engine.state.events import Process
from weft.engine.state.launches import needs_launch
from weft.engine.state.resources import Holding, ResourcePool

SPARE = 2
CRASHES_IN_A_ROW = 10
"""So many workers that fail before their first work mean that no worker can start here."""


class Place(enum.Enum):
    """Where in its life a worker is."""

    REQUESTED = "requested"
    IDLE = "idle"
    LEASED = "leased"
    ACTOR = "actor"
    ENDING = "ending"


_BUSY = (Place.LEASED, Place.ACTOR)


class Binding(msgspec.Struct, frozen=True):
    """What a worker is bound to at its first work."""

    job: int
    runtime_env: str = ""
    gpu_ids: tuple[int, ...] = ()
    threads: int = 1
    group: str = ""
    """The placement group that its work is in."""
    captures: bool = False
    """Whether what its work submits is in that group too."""


class Worker:
    """One worker process, existing or on its way."""

    __slots__ = (
        "binding",
        "depth",
        "forked",
        "holding",
        "idle_ticks",
        "is_retired",
        "lends",
        "lent",
        "limit_bytes",
        "pid",
        "place",
        "pool",
        "process",
        "ticket",
    )

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.process: Process = (0, 0)
        """(0, 0) until its slot is named."""
        self.pid = 0
        self.place = Place.REQUESTED
        self.binding: Binding | None = None
        self.holding: Holding | None = None
        self.pool: ResourcePool | None = None
        """Where what it holds is from: the node's, or a bundle's."""
        self.lent = False
        """Its task is blocked and others may use its CPU."""
        self.lends = False
        """It owns objects that other processes refer to."""
        self.is_retired = False
        """It takes no task any more, and ends when its lease comes back."""
        self.forked = False
        self.limit_bytes = 0
        """The memory that it is held to; 0 for nothing."""
        self.depth = 0
        self.idle_ticks = 0


class WorkerPool:
    """All workers of a node."""

    def __init__(self, prestart: int, start_limit: int) -> None:
        self.prestart = prestart
        self.start_limit = start_limit
        """So many may be on their way at once."""
        self.by_process: dict[Process, Worker] = {}
        self.crashes_in_a_row = 0
        self._by_ticket: dict[int, Worker] = {}
        self._idle: dict[Binding | None, dict[int, Worker]] = {None: {}}
        self._awaited: set[Binding] = set()
        """Of workers that are bound from their birth and have no slot yet."""
        self._last_ticket = 0
        self._starting = self._requested = self._busy = 0
        self.blocked = 0
        """So many have lent their CPU."""
        self._was_used = False
        self._is_exhausted = False
        self._was_exhausted = False
        self.full_ticks = 0
        """Since a worker could have no slot, and none has come back."""

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._by_ticket.values())

    # ---- coming into being ----

    def top_up(self, someone_waits: bool) -> list[int]:
        """Tickets of workers to fork now, so that the store is as it should be."""
        if self._is_exhausted:
            return []
        target = self.prestart if not self._was_used else SPARE if self._busy else 0
        in_store = len(self._idle[None]) + self._requested
        count = min(max(target, int(someone_waits)) - in_store, self.start_limit - self._starting)
        tickets = []
        for _ in range(count):
            self._last_ticket += 1
            self._by_ticket[self._last_ticket] = Worker(self._last_ticket)
            tickets.append(self._last_ticket)
        self._starting += len(tickets)
        self._requested += len(tickets)
        return tickets

    def launch(self, binding: Binding) -> int:
        """The ticket of a worker to be born bound to it; 0 when one is coming, or none may be asked for now."""
        if self._is_exhausted or self._starting >= self.start_limit or binding in self._awaited:
            return 0
        self._last_ticket += 1
        worker = self._by_ticket[self._last_ticket] = Worker(self._last_ticket)
        worker.binding = binding
        self._awaited.add(binding)
        self._starting += 1
        return worker.ticket

    def _has_arrived(self, worker: Worker) -> None:
        """It has its slot, or will never have one."""
        if worker.binding is None:
            self._requested -= 1
        else:
            self._awaited.discard(worker.binding)

    def slot_reserved(self, ticket: int, process: Process) -> None:
        worker = self._by_ticket[ticket]
        self._has_arrived(worker)
        worker.process = process
        self.by_process[process] = worker
        self._make_idle(worker)

    def slots_exhausted(self, ticket: int) -> bool:
        """No worker is asked for again until a slot comes back. Whether it is the first time."""
        self._has_arrived(self._by_ticket.pop(ticket))
        self._starting -= 1
        self._is_exhausted = True
        is_first, self._was_exhausted = not self._was_exhausted, True
        return is_first

    def slot_released(self) -> None:
        self._is_exhausted = False
        self.full_ticks = 0

    def forked(self, process: Process, pid: int) -> None:
        worker = self.by_process.get(process)
        if worker is not None and not worker.forked:
            worker.forked = True
            worker.pid = pid
            self._starting -= 1

    # ---- work ----

    def choose(self, binding: Binding, prefer_unbound: bool, requester: Process) -> Worker | None:
        """An idle worker for this work: one that is bound to the same, the last used first, or an unbound one.

        Never the requester itself, which may be idle while what it has submitted still waits."""
        order: tuple[Binding | None, ...] = (None, binding) if prefer_unbound else (binding, None)
        if needs_launch(binding.runtime_env):
            order = (binding,)
        for key in order:
            if key is None and (store := self._idle[None]):
                return next((worker for worker in store.values() if worker.forked), next(iter(store.values())))
            for worker in reversed(self._idle.get(key, {}).values()):
                if worker.process != requester:
                    return worker
        return None

    def put_to_work(self, worker: Worker, place: Place, binding: Binding, holding: Holding, pool: ResourcePool) -> bool:
        """Lease it or make it an actor; whether it was unbound before."""
        self._was_used = True
        self._busy += 1
        self._unstore(worker)
        was_unbound = worker.binding is None
        worker.binding = binding
        worker.place = place
        worker.holding = holding
        worker.pool = pool
        return was_unbound

    def block(self, worker: Worker, is_blocked: bool = True) -> None:
        """Its task waits for others, or goes on."""
        self.blocked += is_blocked - worker.lent
        worker.lent = is_blocked

    def give_back(self, worker: Worker) -> None:
        """Its lease ended and its resources were released."""
        self.crashes_in_a_row = 0
        self._busy -= 1
        worker.holding = None
        self.block(worker, False)
        self._make_idle(worker)

    def end(self, worker: Worker) -> None:
        """It has been told to end, or been killed; it keeps what it holds until it is dead."""
        self._unstore(worker)
        self._busy -= worker.place in _BUSY
        worker.place = Place.ENDING

    def died(self, process: Process, status: int) -> Worker | None:
        """Forget it; None when it was no worker."""
        worker = self.by_process.pop(process, None)
        if worker is not None:
            self._unstore(worker)
            self.blocked -= worker.lent
            self._busy -= worker.place in _BUSY
            self._starting -= not worker.forked
            del self._by_ticket[worker.ticket]
            was_killed = status in (-signal.SIGKILL, -signal.SIGTERM)
            if worker.binding is None and worker.place is Place.IDLE and not was_killed:
                self.crashes_in_a_row += 1
        return worker

    # ---- the store ----

    def idle_on_gpus(self, gpu_ids: tuple[int, ...]) -> list[Worker]:
        """Idle workers whose contexts sit on these devices."""
        if not gpu_ids:
            return []
        return [
            worker
            for binding, store in self._idle.items()
            if binding is not None and not set(binding.gpu_ids).isdisjoint(gpu_ids)
            for worker in store.values()
        ]

    def idle_of_group(self, group: str) -> list[Worker]:
        return [
            w for key, store in self._idle.items() if key is not None and key.group == group for w in store.values()
        ]

    def idle_of_job(self, job: int) -> list[Worker]:
        return [w for key, store in self._idle.items() if key is not None and key.job == job for w in store.values()]

    def tick(self, may_end: Callable[[Worker], bool]) -> list[Worker]:
        """The idle workers to end now, those idle longest first."""
        self.full_ticks += self._is_exhausted
        bound = [worker for key, store in self._idle.items() if key is not None for worker in store.values()]
        bound.sort(key=lambda worker: -worker.idle_ticks)
        excess = self._excess()
        ended = []
        for worker in bound:
            worker.idle_ticks += 1
            on_gpus = worker.binding is not None and bool(worker.binding.gpu_ids)
            if worker.idle_ticks > 1 and (excess > 0 or on_gpus) and may_end(worker):
                excess -= 1
                ended.append(worker)
        return ended

    @property
    def wants_ticks(self) -> bool:
        return self._excess() > 0 or any(key is not None and key.gpu_ids and store for key, store in self._idle.items())

    @property
    def is_busy(self) -> bool:
        """Whether any is leased or an actor."""
        return self._busy > 0

    def _excess(self) -> int:
        bound = sum(len(store) for key, store in self._idle.items() if key is not None)
        if self._is_exhausted:
            return bound  # each keeps a slot from who waits for one
        return min(bound, bound + len(self._idle[None]) - self.prestart - SPARE)

    def _make_idle(self, worker: Worker) -> None:
        worker.place = Place.IDLE
        worker.idle_ticks = 0
        self._idle.setdefault(worker.binding, {})[worker.ticket] = worker

    def _unstore(self, worker: Worker) -> None:
        store = self._idle.get(worker.binding)
        if store is None:
            return
        store.pop(worker.ticket, None)
        if not store and worker.binding is not None:
            del self._idle[worker.binding]

    def check(self) -> None:
        """Assert the invariants."""
        stored = {ticket: worker for store in self._idle.values() for ticket, worker in store.items()}
        assert sum(map(len, self._idle.values())) == len(stored), "WOR-1: a worker is stored twice"
        for worker in self._by_ticket.values():
            assert (worker.ticket in stored) == (worker.place is Place.IDLE), f"WOR-1: worker {worker.ticket}"
            if worker.place in (Place.REQUESTED, Place.IDLE):
                assert worker.holding is None and not worker.lent, f"WOR-2: worker {worker.ticket}"
            if worker.place in _BUSY:
                assert worker.holding is not None, f"WOR-2: worker {worker.ticket}"
                assert worker.binding is not None, f"WOR-4: worker {worker.ticket}"
        workers = list(self._by_ticket.values())
        assert self._busy == sum(worker.place in _BUSY for worker in workers), f"WOR-5: {self._busy} busy"
        assert self.blocked == sum(worker.lent for worker in workers), f"WOR-5: {self.blocked} blocked"
        assert self._starting == sum(not worker.forked for worker in workers), f"WOR-5: {self._starting} starting"
        placed = [worker for worker in self._by_ticket.values() if worker.place is not Place.REQUESTED]
        assert len(placed) == len(self.by_process), "WOR-3: two workers share a slot"


def how_ended(status: int) -> str:
    """An exit status in words.

    >>> how_ended(-9), how_ended(3)
    ('killed by SIGKILL', 'exited with status 3')
    """
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
