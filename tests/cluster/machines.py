"""Five nodes as five machines (namespaces with addresses of their own, encrypted) and a program that checks its
answers: what the worlds of `cut_worlds` and `worlds_at_once` do harm to."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import weft
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client
from weft.testing.network import Network, Place

sys.path.insert(0, str(Path(__file__).parent.parent))
from waiting import children_named, wait_until

ON_NEAR = {"resources": {"near": 0.001}, "num_cpus": 0}
ON_VICTIM = {"resources": {"victim": 0.001}, "num_cpus": 0}


@weft.remote(max_retries=-1, scheduling_strategy="SPREAD")
def double(number: int) -> int:
    return 2 * number


@weft.remote
class Counter:
    """Counts, and says in a file of the folder which of its incarnations still runs."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def write_on(self, folder: str) -> int:
        """Write the time to a file of its own, again and again, whatever becomes of the cluster."""

        def write() -> None:
            while True:
                Path(folder, str(os.getpid())).write_text(str(time.monotonic()))
                time.sleep(0.05)

        threading.Thread(target=write, daemon=True).start()
        return os.getpid()


@dataclass
class Told:
    """What the program has seen."""

    rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    longest_s: float = 0.0


class Machines:
    """The head, a victim, two others, and one on this machine's own address to which the driver is attached."""

    def __init__(self, network: Network) -> None:
        self.places: dict[ClusterNode, Place] = {}
        self.cluster = Cluster()
        self.nodes: list[ClusterNode] = []
        self.told = Told()
        self._stop = threading.Event()
        self._program: threading.Thread | None = None
        self.network = network

    def start(self) -> None:
        self.head = self.add(resources={"head": 1})
        self.victim = self.add(resources={"victim": 1})
        self.add(resources={"victim": 1})
        self.add()
        self.near = self.cluster.add_node(num_cpus=1, resources={"near": 1}, host=self.network.address)
        self.nodes.append(self.near)
        weft.init(address=self.near.local_address, log_to_driver=False)
        wait_until(lambda: self.status()["store"]["servers"] == 5 and self.status()["store"]["replicas"] == 3)
        self.calm = Counter.options(name="calm", **ON_NEAR).remote()
        assert weft.get(self.calm.add.remote(), timeout=60) == 1
        self._program = threading.Thread(target=self._run)
        self._program.start()
        wait_until(lambda: self.told.rounds > 2)

    def add(self, **given: Any) -> ClusterNode:
        """One more machine."""
        place = self.network.add_place()
        node = self.cluster.add_node(num_cpus=1, place=place, **given)
        self.places[node] = place
        self.nodes.append(node)
        return node

    def status(self) -> Any:
        return Client(self.near.local_address).ask("head", timeout_s=90)

    def _run(self) -> None:
        count = 1
        while not self._stop.is_set():
            began = time.monotonic()
            count += 1
            try:
                found = weft.get([double.remote(n) for n in range(12)], timeout=120)
                if found != [2 * n for n in range(12)]:
                    self.told.wrong.append(f"tasks gave {found}")
                if (answer := weft.get(self.calm.add.remote(), timeout=120)) != count:
                    self.told.wrong.append(f"the counter says {answer}, not {count}")
            except Exception as error:
                self.told.wrong.append(f"{type(error).__name__}: {error}")
                return
            self.told.rounds += 1
            self._stop.wait(0.05)
            self.told.longest_s = max(self.told.longest_s, time.monotonic() - began)

    def goes_on(self) -> None:
        """New work of all kinds is done: it needs a head that serves."""
        before = self.told.rounds
        made = Counter.options(**ON_NEAR).remote()
        assert weft.get(made.add.remote(), timeout=120) == 1
        assert weft.get_actor("calm")._actor_id == self.calm._actor_id
        wait_until(lambda: self.told.rounds > before + 1 or self.told.wrong)
        assert not self.told.wrong, self.told.wrong

    def alive(self) -> set[ClusterNode]:
        return {node for node in self.nodes if node.is_alive()}

    def only(self, *gone: ClusterNode) -> None:
        """Nobody ended but these, if at all."""
        lost = set(self.nodes) - self.alive() - set(gone)
        assert not lost, {str(node): node.log()[-600:] for node in self.nodes if not node.is_alive()}

    def child(self, node: ClusterNode, name: str) -> psutil.Process:
        """The zygote, or the server of the control store, of that node."""
        (found,) = children_named(node.pid, name)
        return found

    def folders(self, node: ClusterNode) -> set[str]:
        """In which its daemon and its server of the control store have files open."""
        both = (psutil.Process(node.pid), self.child(node, "weft-control"))
        return {os.path.dirname(file.path) for one in both for file in one.open_files() if "weft" in file.path}

    def end_program(self) -> None:
        self._stop.set()
        if self._program is not None:
            self._program.join(timeout=130)

    def close(self) -> None:
        for place in self.places.values():
            with contextlib.suppress(OSError):
                place.mend()
        self.end_program()
        weft.shutdown()
        self.cluster.shutdown()


@contextlib.contextmanager
def machines() -> Iterator[Machines]:
    with Network() as network:
        made = Machines(network)
        try:
            made.start()
            yield made
        finally:
            made.close()


def stand_still(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        pause(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def pause(seconds: float) -> None:
    """The fault lasts so long; nothing of it can be waited for."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, timeout_s=seconds + 60)


@contextlib.contextmanager
def limited(pids: list[int], what: int, most: Callable[[int], int]) -> Iterator[None]:
    """These processes have no more than that of a resource."""
    before = {pid: resource.prlimit(pid, what) for pid in pids}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, what, (most(pid), hard))
    yield
    for pid, limits in before.items():
        resource.prlimit(pid, what, limits)
