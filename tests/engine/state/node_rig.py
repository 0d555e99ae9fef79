"""A node's state with the shell played by the test: slots are named at once, messages are collected."""

from __future__ import annotations

from typing import Any, TypeVar

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.node import NodeState
from weft.engine.wire.messages import ActorSpec, DefineShape, DriverHello

DRIVER = (1, 1)
Told = TypeVar("Told", bound=do.Tell)


class Rig:
    """Feeds events, carries out ForkWorker, remembers the rest, and checks the invariants after every event."""

    def __init__(
        self,
        total: dict[str, float] | None = None,
        gpu_ids: tuple[int, ...] = (),
        forks_at_once: bool = True,
        **options: Any,
    ) -> None:
        self.forks_at_once = forks_at_once
        self.state = NodeState({"CPU": 2} if total is None else total, gpu_ids, **options)
        self.done: list[do.Instruction] = []
        self.slots_left = 1000
        self._next_slot = 100

    def feed(self, event: ev.Event) -> list[do.Instruction]:
        """What was decided, ForkWorker carried out as the shell does."""
        seen: list[do.Instruction] = []
        queue: list[ev.Event] = [event]
        while queue:
            for instruction in self.state.handle(queue.pop(0)):
                seen.append(instruction)
                if isinstance(instruction, do.ForkWorker):
                    queue += self._fork(instruction.ticket)
            self.state.check()
        self.done += seen
        return seen

    def _fork(self, ticket: int) -> list[ev.Event]:
        if not self.slots_left:
            return [ev.SlotsExhausted(ticket)]
        self.slots_left -= 1
        self._next_slot += 1
        process = (self._next_slot, 1)
        reserved = ev.SlotReserved(ticket, process)
        return [reserved, ev.WorkerForked(process, self._next_slot)] if self.forks_at_once else [reserved]

    def join(self, process: tuple[int, int] = DRIVER, job: int = 1, founder: bool = False) -> None:
        self.feed(ev.DriverJoined(process, job, pid=1000 + job, founder=founder))
        self.feed(ev.DriverGreeted(process, DriverHello(1000 + job, ["/lib"], "/", {"A": "1"}, "ns")))

    def define(self, shape: int, process: tuple[int, int] = DRIVER, runtime_env: str = "", **resources: float) -> None:
        self.feed(ev.ShapeDefined(process, DefineShape(shape, resources, runtime_env, name="f")))

    def want(self, wanted: int, shape: int = 1, process: tuple[int, int] = DRIVER) -> list[tuple[int, tuple[int, int]]]:
        """The leases granted at once, to whomever: (lease, worker)."""
        return grants(self.feed(ev.LeaseRequested(process, shape, wanted)))

    def give_back(self, lease: int, process: tuple[int, int] = DRIVER) -> list[do.Instruction]:
        return self.feed(ev.LeaseReturned(process, lease))

    def die(self, process: tuple[int, int], status: int = -9, **more: Any) -> list[do.Instruction]:
        return self.feed(ev.ProcessDied(process, f"killed by SIGKILL (pid {process[0]})", status=status, **more))

    def create(self, number: int, process: tuple[int, int] = DRIVER, **fields: Any) -> list[do.Instruction]:
        fields = {"resources": {}, "placement_resources": {"CPU": 1.0}} | fields
        spec = ActorSpec(actor=actor_id(number), class_name="Counter", class_key=7, **fields)
        return self.feed(ev.ActorRequested(process, spec, b"creation"))

    def free(self) -> dict[str, float]:
        return {name: amount / 10_000 for name, amount in self.state.resources.available.items()}


def actor_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def grants(instructions: list[do.Instruction]) -> list[tuple[int, tuple[int, int]]]:
    return [(one.lease, one.worker) for one in sent(instructions, do.GrantLease)]


def sent(instructions: list[do.Instruction], kind: type[Told], to: tuple[int, int] | None = None) -> list[Told]:
    """What one process or all are told of a kind."""
    return [one for one in instructions if isinstance(one, kind) and to in (None, one.process)]


def killed(instructions: list[do.Instruction]) -> set[tuple[int, int]]:
    return {one.process for one in instructions if isinstance(one, do.KillWorker)}


def two_cpus(**options: Any) -> Rig:
    """Two CPUs, one driver, shape 1 of one CPU."""
    made = Rig(prestart=2, **options)
    made.feed(ev.NodeStarted())
    made.join()
    made.define(1, CPU=1)
    return made
