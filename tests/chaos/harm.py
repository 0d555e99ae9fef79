"""Real programs on a cluster of real nodes, while all that they run on is killed, stalled, cut and filled at random.

Workers, node daemons, servers of the control store, the acting head, links between nodes, disks; only the drivers and
the node that they are attached to are not killed, because a driver ends with its node.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from weft.engine.cluster.client import Client
from weft.net import endpoint
from weft.testing import Cluster
from weft.testing.cluster import ClusterNode
from weft.testing.cutting import cut_between, silence_between

NODES = 3
END_S = 120.0
"""So long after its time a program may still need to recover from the last faults; a guard, not a measure."""
STALL_S = (0.2, 2.0)
FULL_S = (0.5, 3.0)
"""So long a disk takes nothing."""
KINDS = ("worker", "node", "stall", "store", "head", "link", "line", "zygote", "disk")
"""One as often as another: next comes one of those that were done least often, if it can be done now."""
ARENA_BYTES = 64 << 20
"""Of each node: less than one of the programs has in use, so that nodes spill."""
SAFE_REPLICAS = 3
"""So many servers must have the head's rows before it, or one of them, is killed."""


@dataclass
class Program:
    """One driver process."""

    name: str
    process: subprocess.Popen[str]
    errors: Path
    last_s: float
    """When it was started, or last finished a round."""
    rounds: int = 0


@dataclass
class Report:
    """What a run has done and seen."""

    faults: dict[str, int] = field(default_factory=dict)
    recoveries: list[tuple[float, str]] = field(default_factory=list)
    """For each fault: seconds until every program had finished a round (under way, or a later one); its story."""
    rounds: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Programs that were given another answer than their own."""
    lost: list[str] = field(default_factory=list)
    """Programs that were given an error, or ended in another way."""
    hung: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Nodes that ended and were not killed."""
    calm_s: float = 0.0
    """The slowest first round, before any fault: programs are started, and workers import what they need."""
    slowest: tuple[float, str] = (0.0, "none")
    """The slowest round since then; no call was longer."""

    @property
    def losses(self) -> list[str]:
        return [*self.wrong, *self.lost, *self.hung, *self.ended]

    def add(self, other: Report) -> None:
        """What came of another cluster."""
        for counts, more in ((self.faults, other.faults), (self.rounds, other.rounds)):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        self.recoveries += other.recoveries
        self.wrong += other.wrong
        self.lost += other.lost
        self.hung += other.hung
        self.ended += other.ended
        self.calm_s = max(self.calm_s, other.calm_s)
        self.slowest = max(self.slowest, other.slowest)

    def __str__(self) -> str:
        total = sum(self.faults.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.faults.items())
        rounds = ", ".join(f"{name} {count}" for name, count in self.rounds.items())
        slowest = "{:.1f} s, {}".format(*max(self.recoveries)) if self.recoveries else "none measured"
        counts = f"wrong: {len(self.wrong)}\nlost: {len(self.lost)}\nhung: {len(self.hung)}"
        counts += f"\nnodes ended that were not killed: {len(self.ended)}"
        longest = "slowest round: {:.1f} s, {}; before any fault {:.1f} s".format(*self.slowest, self.calm_s)
        lines = [f"faults: {total} ({kinds})", counts, f"slowest recovery: {slowest}", longest]
        lines.append(f"rounds done: {rounds}")
        return "\n".join([*lines, *self.losses])


class Chaos:
    """One cluster, from its start to its end."""

    kinds: tuple[str, ...] = KINDS

    def __init__(self, seed: int, seconds: float, names: list[str], every_s: float) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._seconds = seconds
        self._names = names
        self._every_s = every_s
        self._open_faults: list[tuple[float, str, set[str]]] = []
        self._stalled: dict[int, threading.Timer] = {}
        """By pid: who wakes it. A thread, because a node that joins waits for one that is stalled."""
        self._full: dict[int, threading.Timer] = {}
        """By pid of a node's daemon: who gives its disk room again."""
        self.report = Report()

    def run(self) -> Report:
        # A local socket cannot be cut.
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {endpoint.VARIABLE: "0"}):
            self._storage = os.path.join(folder, "storage")
            try:
                self._begin()
                for _ in range(NODES):
                    self._add_node()
                self._drivers = self._add_drivers_node()
                self._programs = [self._start(name, number, Path(folder)) for number, name in enumerate(self._names)]
                self._work()
            finally:
                for program in getattr(self, "_programs", []):
                    program.process.kill()
                    program.process.communicate()
                for timer in (*self._stalled.values(), *self._full.values()):
                    timer.join()
                self._end()
        return self.report

    def _begin(self) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "storage": self._storage})

    def _end(self) -> None:
        if hasattr(self, "_cluster"):
            self._cluster.shutdown()

    def _add_drivers_node(self) -> ClusterNode:
        return self._cluster.add_node(num_cpus=0, storage=self._storage)

    def _add_node(self) -> None:
        self._cluster.add_node(
            num_cpus=2, resources={"worker": 1}, object_store_memory=ARENA_BYTES, storage=self._storage
        )

    def _start(self, name: str, number: int, folder: Path) -> Program:
        errors = folder / name
        program = Path(__file__).with_name("chaos_programs.py")
        command = [sys.executable, str(program), name, self._drivers.local_address]
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [*command, str(self._seed + number), str(self._seconds)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        return Program(name, process, errors, time.monotonic())

    def _work(self) -> None:
        began = self._began = time.monotonic()
        next_fault: float | None = None
        with selectors.DefaultSelector() as selector:
            for program in self._programs:
                assert program.process.stdout is not None
                selector.register(program.process.stdout, selectors.EVENT_READ, program)
            while selector.get_map():
                now = time.monotonic()
                if now > began + self._seconds + END_S:
                    self._give_up()
                    return
                for key, _ in selector.select(0.05):
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    self._heard(key.data, line)
                    if not line:
                        selector.unregister(key.fileobj)
                if next_fault is None:
                    if all(program.rounds for program in self._programs):
                        next_fault = now + self._every_s
                elif next_fault <= now < began + self._seconds:
                    self._do_harm()
                    next_fault = time.monotonic() + self._rng.uniform(0.5, 1.5) * self._every_s

    def _heard(self, program: Program, line: str) -> None:
        now = time.monotonic()
        if line.startswith("round"):
            took_s = now - program.last_s
            if self.report.faults:
                self.report.slowest = max(self.report.slowest, (took_s, program.name))
            else:
                self.report.calm_s = max(self.report.calm_s, took_s)
            program.rounds += 1
            program.last_s = now
        if line:
            self._recovered(program.name, now)
            return
        status = program.process.wait()
        self.report.rounds[program.name] = program.rounds
        self._recovered(program.name, now)
        if status != 0:
            text = program.errors.read_text()[-3000:]
            kind = self.report.wrong if "AssertionError" in text else self.report.lost
            kind.append(f"{program.name} ended with status {status} after {now - self._began:.0f} s:\n{text}")

    def _recovered(self, name: str, now: float) -> None:
        for began, kind, waiting in self._open_faults:
            waiting.discard(name)
            if not waiting:
                self.report.recoveries.append((now - began, f"{name} after a {kind}"))
        self._open_faults = [one for one in self._open_faults if one[2]]

    def _give_up(self) -> None:
        for program in self._programs:
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGABRT)
                self.report.hung.append(f"{program.name} hung after {program.rounds} rounds")
                self.report.rounds[program.name] = program.rounds

    # ---- harm ----

    def _look_after_nodes(self) -> None:
        """Who has ended was not killed, for those are not among them any more; others take their places."""
        for node in [one for one in self._cluster.list_all_nodes() if not one.is_alive()]:
            self.report.ended.append(f"{node} ended:\n{node.log()[-1000:]}")
            self._cluster.remove_node(node)
            self._add_node()

    def _do_harm(self) -> None:
        self._look_after_nodes()
        possible = [kind for kind in self.kinds if self._can_harm(kind)]
        kinds = sorted(possible, key=lambda kind: (self.report.faults.get(kind, 0), self._rng.random()))
        nodes = [node for node in self._cluster.worker_nodes if node is not self._drivers]
        for kind in kinds:
            if getattr(self, f"_harm_{kind}")(self._rng.choice(nodes)):
                self._harm_done(kind)
                return

    def _can_harm(self, kind: str) -> bool:
        """At this moment."""
        return True

    def _harm_done(self, kind: str) -> None:
        self.report.faults[kind] = self.report.faults.get(kind, 0) + 1
        alive = {program.name for program in self._programs if program.process.poll() is None}
        if alive:
            self._open_faults.append((time.monotonic(), kind, alive))

    def _harm_worker(self, node: ClusterNode) -> bool:
        with contextlib.suppress(psutil.Error):
            zygotes = psutil.Process(node.pid).children()
            workers = [worker for zygote in zygotes for worker in zygote.children()]
            if workers:
                self._rng.choice(sorted(workers, key=lambda one: one.pid)).kill()
                return True
        return False

    def _harm_node(self, node: ClusterNode) -> bool:
        """As if its machine had failed; another takes its place."""
        self._cluster.worker_nodes.pop(node, None)
        node.kill(allow_graceful=False)
        self._add_node()
        return True

    def _harm_head(self, node: ClusterNode) -> bool:
        """The node that acts as head, once another could follow it; a new node comes in its place."""
        status = self._head_status()
        head = next((one for one in self._cluster.list_all_nodes() if one.node_id == status.get("node_id")), None)
        if head is None or head is self._drivers or not self._is_safe(status):
            return False
        if head is self._cluster.head_node:
            self._cluster.remove_node(head, allow_graceful=False)
            self._add_node()
            return True
        return self._harm_node(head)

    def _harm_store(self, node: ClusterNode) -> bool:
        """A server of the control store; its daemon lives on."""
        if not self._is_safe(self._head_status()):
            return False
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(node.pid).children():
                if child.name() == "weft-control":
                    child.kill()
                    return True
        return False

    def _head_status(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            status: dict[str, Any] = Client(self._drivers.local_address).ask("head")
            return status
        return {}

    def _is_safe(self, status: dict[str, Any]) -> bool:
        return bool(status) and status["store"].get("replicas", 0) >= SAFE_REPLICAS

    def _harm_stall(self, node: ClusterNode) -> bool:
        """Its daemon, and so its links, are silent for a while."""
        pid = node.pid
        if pid in self._stalled and self._stalled[pid].is_alive():
            return False
        os.kill(pid, signal.SIGSTOP)
        self._stalled[pid] = threading.Timer(self._rng.uniform(*STALL_S), _wake, (pid,))
        self._stalled[pid].start()
        return True

    def _harm_link(self, node: ClusterNode) -> bool:
        """All connections between its daemon and another's, with what is on its way; both live on."""
        others = [one for one in self._cluster.list_all_nodes() if one is not node and one.is_alive()]
        with contextlib.suppress(psutil.Error, OSError):
            return cut_between(node.pid, self._rng.choice(others).pid) > 0
        return False

    def _harm_line(self, node: ClusterNode) -> bool:
        """The connections between its daemon and another's carry nothing any more, and nobody is told."""
        others = [one for one in self._cluster.list_all_nodes() if one is not node and one.is_alive()]
        with contextlib.suppress(psutil.Error, OSError):
            return silence_between(node.pid, self._rng.choice(others).pid) > 0
        return False

    def _harm_zygote(self, node: ClusterNode) -> bool:
        """With it die all workers, and the node ends; another takes its place."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(node.pid).children():
                if child.name() == "weft-zygote":
                    child.kill()
                    return self._harm_node(node)
        return False

    def _harm_disk(self, node: ClusterNode) -> bool:
        """For a while no file of its daemon and of its store's server may grow: spilling and logs fail."""
        if node.pid in self._full and self._full[node.pid].is_alive():
            return False
        with contextlib.suppress(psutil.Error, OSError):
            children = psutil.Process(node.pid).children()
            pids = [node.pid, *(child.pid for child in children if child.name() == "weft-control")]
            before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
            for pid, (_, most) in before.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
            self._full[node.pid] = threading.Timer(self._rng.uniform(*FULL_S), _give_room, (before,))
            self._full[node.pid].start()
            return True
        return False


def _give_room(before: dict[int, tuple[int, int]]) -> None:
    for pid, limits in before.items():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
