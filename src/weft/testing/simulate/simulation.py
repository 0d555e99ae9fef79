"""A simulated cluster, from its seed to its report."""

from __future__ import annotations

import contextlib
import io
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from weft.engine.state.headship import HEADLESS_S
from weft.engine.wire.link_messages import GlobalProcess
from weft.net.pulse import DEAD_S
from weft.testing.simulate import invariants
from weft.testing.simulate.base import ProcessBase
from weft.testing.simulate.clock import Clock
from weft.testing.simulate.control import ControlLoad
from weft.testing.simulate.costs import Costs, Machine, Wire
from weft.testing.simulate.crowd import Crowd
from weft.testing.simulate.invariants import Broken
from weft.testing.simulate.lending import Lending
from weft.testing.simulate.network import Network
from weft.testing.simulate.node import SimNode
from weft.testing.simulate.process import Process
from weft.testing.simulate.program import Bunch, CreateGroup, Program, Run
from weft.testing.simulate.stats import Stats
from weft.testing.simulate.store import StoreModel

CROWD_FROM = 200
"""From so many nodes on, all share one copy of what they know of each other (see `crowd`)."""
CHECKED_OFTEN = 24
"""Up to so many nodes, each daemon's invariants are checked after every event that it is fed."""
RETURN_S = 1.0
"""Between two looks of a node that was left behind."""
CHECKED_EACH_TIME = 1000
"""While a node has no more workers and actors; of k times as many at one event in k, for a check looks at each."""
SETTLE_S = 25.0
"""After the last program and fault: longer than silence lasts, so that all have noticed what is gone."""


class Plan(msgspec.Struct, frozen=True):
    """All that a run depends on."""

    nodes: int = 3
    seed: int = 0
    machine: Machine = Machine()
    costs: Costs = Costs()
    wire: Wire = Wire()
    limit_s: float = 300.0
    """Of virtual time: what still waits then, waits for ever."""
    most_events: int = 200_000_000
    bugs: frozenset[str] = frozenset()
    """Bugs put in on purpose; see `bugs`."""
    machines: dict[int, Machine] = {}
    """Nodes that are not like the others."""
    left_behind_return: bool = False
    """Whether nodes that the cluster goes on without come back as new ones, as those of `weft start` do."""


class Names:
    """One number for each process of all nodes, from 1 on: the native core's name for it."""

    def __init__(self) -> None:
        self._names: list[GlobalProcess] = [(-1, 0, 0)]
        self._numbers: dict[GlobalProcess, int] = {}

    def number_of(self, name: GlobalProcess) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number

    def name_of(self, number: int) -> GlobalProcess:
        return self._names[number]


class Simulation:
    """One cluster and its virtual time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.costs = plan.costs
        self.rng = random.Random(plan.seed)
        self.clock = Clock()
        self.network = Network(self.clock, plan.wire, random.Random(plan.seed + 1), random.Random(plan.seed + 2))
        self.stats = Stats()
        self.store = StoreModel()
        self.control = ControlLoad(self.clock, plan.nodes, plan.costs.control_write_s)
        self.names = Names()
        self.bunches: list[Bunch] = []
        self.groups: dict[bytes, tuple[ProcessBase, CreateGroup]] = {}
        self.group_states: dict[bytes, str] = {}
        self.by_number: dict[int, SimNode] = {}
        self.nodes: list[SimNode] = []
        self.broken: list[Broken] = []
        self.has_faults = False
        """Tasks may fail, and executions be lost."""
        self.faults_end = 0.0
        self.troubled: list[SimNode] = []
        """The nodes that something is done to, where nothing is done to the others."""
        self.most_epoch = 1
        """That their trouble may lead to."""
        self.is_end_forced = False
        """The head vanished before another node had a server of the store, so nobody can follow it."""
        self.lending: Lending | None = None
        self.programs = 0
        """Drivers that have not ended."""
        self.drivers: list[Process] = []
        self.formed_at = 0.0
        self.worked_until = 0.0
        self.wall_s = 0.0
        self._boots = 0
        self._fed = 0
        self._on_formed: Callable[[], None] | None = None
        self._checks_often = plan.nodes <= CHECKED_OFTEN
        self._unchecked: Counter[int] = Counter()
        """Events of each node since its last check."""
        self.crowd = Crowd(self) if plan.nodes >= CROWD_FROM else None

    # ---- names ----

    def new_id(self) -> bytes:
        return self.rng.randbytes(16)

    def next_boot(self) -> int:
        self._boots += 1
        return self._boots

    def process(self, name: GlobalProcess) -> Process | None:
        node = self.by_number.get(name[0])
        process = node.processes.get(name[1:]) if node is not None and node.is_up else None
        return process if process is not None and not process.is_dead else None

    def has_bug(self, name: str) -> bool:
        return name in self.plan.bugs

    @property
    def epoch(self) -> int:
        """The latest that any node knows of."""
        return max(node.shell.heading.state.epoch for node in self.nodes)

    def up(self) -> list[SimNode]:
        return [node for node in self.nodes if node.is_up]

    # ---- nodes ----

    def add_node(self, index: int, entry: str = "") -> SimNode:
        """A machine that joins now, at the first node if no other is named; the first one is the head."""
        machine = self.plan.machines.get(index, self.plan.machine)
        head = entry or (self.nodes[0].address if self.nodes else "")
        node = SimNode(self, machine, index, head)
        self.nodes.append(node)
        node.start()
        return node

    def left_behind(self, node: SimNode) -> None:
        """Where heads are lost or one node is in trouble: it comes back as a new one, when it reaches somebody."""
        if not self.plan.left_behind_return:
            return

        def look() -> None:
            def answers(other: str) -> bool:
                return self.network.reaches(node.address, other) and self.network.reaches(other, node.address)

            there = [other.address for other in self.up() if other.has_joined and answers(other.address)]
            if there:
                self.add_node(node.index, there[0]).comes_back = True
            else:
                self.clock.after(RETURN_S, look)

        self.clock.after(RETURN_S, look)

    def joined(self, node: SimNode) -> None:
        self.by_number[node.number] = node
        if self._on_formed is not None and len(self.by_number) >= self.plan.nodes:
            formed, self._on_formed = self._on_formed, None
            self.formed_at = self.worked_until = self.clock.now
            formed()

    def vanished(self, node: SimNode) -> None:
        for driver in self.drivers:
            if driver.node is node:
                self.driver_gone(driver)
        if node.has_joined and self.by_number.get(node.number) is node:
            del self.by_number[node.number]

    def driver_gone(self, driver: ProcessBase) -> None:
        """Its program is over, or will never be because the process is dead."""
        if not driver.is_over:
            driver.is_over = True
            self.programs -= 1
            self.worked_until = self.clock.now

    def fed(self, node: SimNode) -> None:
        """A daemon has handled an event."""
        self._fed += 1
        if self.crowd is not None:
            self.crowd.fed(node)
        if self._is_to_be_checked(node):
            self.broken += invariants.of_node(self, node)
        if self.has_faults and self._checks_often and node.shell.heading.is_serving:
            self.broken += invariants.of_heads(self)

    def _is_to_be_checked(self, node: SimNode) -> bool:
        if not self._checks_often:
            return self._fed % 997 == 0
        state = node.daemon.state
        self._unchecked[node.number] += CHECKED_EACH_TIME
        if self._unchecked[node.number] < len(state.workers.by_process) + len(state.actors.by_id):
            return False
        del self._unchecked[node.number]
        return True

    def waited_too_long(self, process: ProcessBase, run: Run, seconds: float) -> None:
        text = f"a task {run.bunch.function.name} waited {seconds:.3f} s behind another on node {process.node.number}"
        self.broken.append(Broken("SIM-10", text, self.clock.now))

    # ---- running ----

    def drive(self, node: SimNode, program: Callable[[Process], Program]) -> None:
        """Start a driver there; it leaves when its program is over."""
        self.programs += 1
        driver = node.new_driver()
        self.drivers.append(driver)

        def over() -> None:
            self.driver_gone(driver)
            node.process_exits(driver, 0)

        driver.run_program(program(driver), over)

    def drive_if_up(self, node: SimNode, program: Callable[[Process], Program]) -> None:
        """The same for programs that start later."""
        if node.is_up:
            self.drive(node, program)

    def run(self, workload: Callable[[Simulation], None], faults: Iterable[Callable[[Simulation], None]] = ()) -> None:
        """Form the cluster, run the workload under the faults, let it settle, check it."""
        began = time.perf_counter()
        given = list(faults)

        def formed() -> None:
            for fault in given:
                fault(self)
            workload(self)

        self._on_formed = formed
        for index in range(self.plan.nodes):
            self.clock.after(0.0 if index == 0 else 0.001, self.add_node, index)
        self._log = io.StringIO()
        with contextlib.redirect_stderr(self._log):
            try:
                self._run()
            except Exception:
                where = "".join(traceback.format_exc(limit=-3).splitlines(keepends=True)[1:])
                self.broken.append(Broken("SIM-0", where.strip(), self.clock.now))
        self.broken += invariants.at_end(self)
        self.wall_s = time.perf_counter() - began

    @property
    def log(self) -> str:
        """What the daemons would have written to their standard error."""
        return self._log.getvalue()

    def _run(self) -> None:
        self.clock.run(self.plan.limit_s, self._is_over, self.plan.most_events)
        if self._is_over() and not self.broken:
            if self.crowd is None:
                epoch = self.epoch
                self._run_on(SETTLE_S)
                if self.epoch > epoch:
                    text = f"epoch {self.epoch} was reached after epoch {epoch}, with no fault left"
                    self.broken.append(Broken("SIM-14", text, self.clock.now))
                if any(node.has_joined and node.shell.members.head is None for node in self.up()):
                    self._run_on(HEADLESS_S)  # then these end, and whoever waits there does
                if not any(node.shell.heading.is_serving for node in self.up()):
                    self._run_on(2 * DEAD_S)  # an answer of the store to the head may be late
            else:
                self._run_on(1.0)

    def _run_on(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds, lambda: bool(self.broken), self.plan.most_events)

    def _is_over(self) -> bool:
        if self.broken:
            return True
        return not self.programs and self._on_formed is None and self.clock.now >= self.faults_end
