"""Several things that go wrong at once, or one at a bad moment: while another node takes over, joins or comes back.

Part of `cut_worlds`, which runs them."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from machines import ON_NEAR, Counter, Machines, double, limited, pause

import weft
from waiting import wait_until
from weft.cluster_utils import ClusterNode
from weft.engine.process.session import rpc

ANYWHERE = {"num_cpus": 0}


def ordinary(world: Machines) -> list[ClusterNode]:
    """In a place of their own, and not the head."""
    return [node for node in world.places if node is not world.head]


def first_at(node: ClusterNode) -> dict[str, Any]:
    """Options of an actor: on that node, and elsewhere once that has ended."""
    place = weft.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.node_id, soft=True)
    return {"num_cpus": 0, "scheduling_strategy": place}


def settled(world: Machines, *gone: ClusterNode, most_epoch: int = 1) -> None:
    """Work goes on, now and once all have found each other again; nobody else has ended."""
    world.goes_on()
    pause(12)
    world.goes_on()
    world.only(*gone)
    assert world.status()["epoch"] <= most_epoch, world.status()["epoch"]


class ExactCalls:
    """Calls of an actor with exact state, one after another: each is counted once, whatever happens meanwhile."""

    def __init__(self, **options: Any) -> None:
        self._actor = Counter.options(checkpoint=5, **options).remote()
        assert weft.get(self._actor.add.remote(), timeout=60) == 1
        self._stop = threading.Event()
        self._answers = [1]
        self.longest_s = 0.0
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def _call(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._answers.append(weft.get(self._actor.add.remote(), timeout=60))
            except Exception as error:
                self._failed = error
                return
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(timeout=70)
        if self._failed is not None:
            raise self._failed
        assert self._answers == list(range(1, len(self._answers) + 1)), self._answers[-20:]
        print(f"   {len(self._answers)} calls of an exact counter, the longest {self.longest_s:.2f} s")


@contextlib.contextmanager
def exact_calls(**options: Any) -> Iterator[None]:
    calls = ExactCalls(**options)
    try:
        yield
    finally:
        calls.end()


# ---- worlds ----


def cut_both(seconds: float) -> Callable[[Machines], None]:
    """Two ordinary nodes, each alone: three of five go on, with at least a majority of the store."""

    def harm(world: Machines) -> None:
        two = ordinary(world)[:2]
        with exact_calls(**first_at(world.victim)):
            for node in two:
                world.places[node].cut()
            pause(seconds)
            for node in two:
                world.places[node].mend()
            settled(world, *two)

    return harm


def cut_while_taken_over(seconds: float, after_s: float) -> Callable[[Machines], None]:
    """The head is killed, and while another node takes over a third one's cable is out."""

    def harm(world: Machines) -> None:
        with exact_calls(**first_at(world.victim)):
            os.kill(world.head.pid, signal.SIGKILL)
            pause(after_s)
            world.places[world.victim].cut()
            pause(seconds)
            world.places[world.victim].mend()
            settled(world, world.head, world.victim, most_epoch=3)

    return harm


def cut_while_it_joins(seconds: float, after_s: float) -> Callable[[Machines], None]:
    """A sixth node's cable is out soon after it was started."""

    def harm(world: Machines) -> None:
        started: list[ClusterNode | BaseException] = []

        def start() -> None:
            try:
                started.append(world.add(resources={"late": 1}))
            except (OSError, RuntimeError, TimeoutError) as error:
                started.append(error)

        thread = threading.Thread(target=start)
        thread.start()
        wait_until(lambda: len(world.network.places) == 5)
        pause(after_s)
        world.network.places[-1].cut()
        pause(seconds)
        world.network.places[-1].mend()
        thread.join(timeout=90)
        assert started, "neither joined nor refused"
        late = [one for one in started if isinstance(one, ClusterNode)]
        settled(world, *late)
        if late and late[0].is_alive():
            there = double.options(num_cpus=0, resources={"late": 0.001})
            assert weft.get(there.remote(21), timeout=60) == 42
        print(f"   the late one: {started}")

    return harm


def flap_with_exact_state(out_s: float, in_s: float) -> Callable[[Machines], None]:
    """The cables of the two nodes that an actor with exact state may be on are out and in again, out of step."""

    def harm(world: Machines) -> None:
        one, other = (world.places[node] for node in ordinary(world)[:2])
        with exact_calls(**first_at(world.victim)):
            for _ in range(4):
                for place in (one, other):
                    place.cut()
                    pause(out_s)
                    place.mend()
                    pause(in_s)
            settled(world, *ordinary(world)[:2])

    return harm


def cut_nodes_between(seconds: float) -> Callable[[Machines], None]:
    """Two ordinary nodes do not reach each other; all others reach both."""

    def harm(world: Machines) -> None:
        two = ordinary(world)[:2]
        one, other = (world.places[node] for node in two)
        with exact_calls(**first_at(world.victim)):
            one.lose(other)
            pause(seconds)
            one.find(other)
            settled(world, *two)

    return harm


def cut_from_head(seconds: float) -> Callable[[Machines], None]:
    """The head and one node do not reach each other; all others reach both."""

    def harm(world: Machines) -> None:
        head, victim = world.places[world.head], world.places[world.victim]
        head.lose(victim)
        pause(seconds)
        head.find(victim)
        settled(world, world.victim)

    return harm


def lose_packets(share: float, whose: str) -> Callable[[Machines], None]:
    """That share of all packets to and from one node, each by itself, for 20 s."""

    def harm(world: Machines) -> None:
        place = world.places[getattr(world, whose)]
        with exact_calls(**ANYWHERE):
            place.lose_packets(share)
            pause(20)
            place.lose_packets(0)
            settled(world)

    return harm


def stop_then_kill(world: Machines) -> None:
    """The head stands still for 8 s, and who took over is killed when it wakes."""
    os.kill(world.head.pid, signal.SIGSTOP)
    try:
        pause(8)
        world.goes_on()
        winner = world.status()["node_id"]
    finally:
        os.kill(world.head.pid, signal.SIGCONT)
    next_head = next(node for node in world.nodes if node.node_id == winner)
    assert next_head is not world.head
    if next_head is world.near:  # the driver is attached to it
        settled(world, world.head, most_epoch=2)
        return
    os.kill(next_head.pid, signal.SIGKILL)
    settled(world, world.head, next_head, most_epoch=3)


def head_loses_its_disk(world: Machines) -> None:
    """All files of its store and of its own vanish under it; then it dies: nothing that was said is lost."""
    rpc.request("kv_put", key=b"before", value=b"1")
    with exact_calls(**ON_NEAR):
        for folder in world.folders(world.head):
            shutil.rmtree(folder, ignore_errors=True)
        rpc.request("kv_put", key=b"after", value=b"2")
        settled(world)
        os.kill(world.head.pid, signal.SIGKILL)
        settled(world, world.head, most_epoch=2)
    assert rpc.request("kv_get", key=b"before") == b"1"
    assert rpc.request("kv_get", key=b"after") == b"2"


def fill_all_disks(world: Machines) -> None:
    """No file of any daemon or server of the store grows for 8 s; then the head dies."""
    pids = [pid for node in world.nodes for pid in (node.pid, world.child(node, "weft-control").pid)]
    with exact_calls(**ANYWHERE), limited(pids, resource.RLIMIT_FSIZE, lambda pid: 0):
        rpc.request("kv_put", key=b"key", value=b"v" * 100_000)
        pause(8)
        os.kill(world.head.pid, signal.SIGKILL)
        world.goes_on()
        assert rpc.request("kv_get", key=b"key") == b"v" * 100_000
    settled(world, world.head, most_epoch=2)


DRIVER = """
import sys, weft
from machines import ON_VICTIM, Counter
weft.init(address=sys.argv[1], namespace="drivers", log_to_driver=False)
lasting = Counter.options(name="outlives", lifetime="detached", **ON_VICTIM).remote()
held = [Counter.options(name="of-the-driver", **ON_VICTIM).remote(), lasting]
weft.get([one.add.remote() for one in held])
print("ready", flush=True)
while True:
    weft.get(held[0].add.remote())
"""


def harm_driver(sign: int) -> Callable[[Machines], None]:
    """Another program: stopped for 15 s it goes on afterwards; killed, its actor ends, its detached one does not."""

    def harm(world: Machines) -> None:
        command = [sys.executable, "-c", DRIVER, world.near.local_address]
        folder = os.path.dirname(__file__)
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, text=True) as driver:
            try:
                assert driver.stdout is not None and driver.stdout.readline() == "ready\n"
                driver.send_signal(sign)
                pause(15)
                if sign == signal.SIGSTOP:
                    driver.send_signal(signal.SIGCONT)
                    actor = weft.get_actor("of-the-driver", "drivers")
                    before = weft.get(actor.add.remote(), timeout=60)
                    wait_until(lambda: weft.get(actor.add.remote(), timeout=60) > before + 10)
            finally:
                driver.kill()
        wait_until(lambda: not _is_there("of-the-driver"))
        assert weft.get(weft.get_actor("outlives", "drivers").add.remote(), timeout=60) == 2
        settled(world)

    return harm


def _is_there(name: str) -> bool:
    try:
        weft.get_actor(name, "drivers")
    except ValueError:
        return False
    return True


@weft.remote(num_cpus=0)
class Keeper:
    """Has a ref to what another one has put."""

    def put(self, number: int) -> list[Any]:
        return [weft.put([number] * 100_000)]

    def keep(self, refs: list[Any]) -> None:
        self._refs = refs

    def read(self) -> int:
        return sum(weft.get(self._refs[0]))


def find_again(world: Machines) -> None:
    """Two nodes lose each other for so long that each takes the other for dead, and find each other before one of them
    has to go: what a process of one keeps is still owned by a process of the other."""
    owners, readers = ordinary(world)[:2]
    owner, reader = (Keeper.options(**first_at(node)).remote() for node in (owners, readers))
    refs = weft.get(owner.put.remote(3), timeout=60)
    weft.get(reader.keep.remote(refs), timeout=60)
    world.places[owners].lose(world.places[readers])
    pause(14)
    world.places[owners].find(world.places[readers])
    pause(4)  # until they have
    assert weft.get(reader.read.remote(), timeout=60) == 300_000
    settled(world, owners, readers)  # it may have been too late


def stop_each_in_turn(world: Machines) -> None:
    """Every process of every node but the driver's stands still for 3 s, one after another."""
    with exact_calls(**ANYWHERE):
        for node in list(world.places):
            for process in [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
                    pause(3)
                    process.resume()
        settled(world)


WORLDS: dict[str, Callable[[Machines], None]] = {
    **{f"cut-both-{seconds:g}s": cut_both(seconds) for seconds in (2, 6, 8, 20)},
    **{f"cut-in-takeover-{after:g}s": cut_while_taken_over(8, after) for after in (0.1, 0.4, 1.0)},
    **{f"cut-in-join-{after:g}s": cut_while_it_joins(8, after) for after in (0.3, 0.6, 1.0)},
    **{
        f"flap-exact-{out:g}s": flap_with_exact_state(out, back) for out, back in ((0.5, 0.5), (1, 2), (3, 3), (6.5, 2))
    },
    **{f"cut-nodes-between-{seconds:g}s": cut_nodes_between(seconds) for seconds in (8, 25)},
    **{f"cut-from-head-{seconds:g}s": cut_from_head(seconds) for seconds in (8, 25)},
    **{
        f"lose-packets-{share:.0%}-{whose}": lose_packets(share, whose)
        for share in (0.01, 0.1, 0.2)
        for whose in ("head", "victim")
    },
    "stop-then-kill": stop_then_kill,
    "head-loses-disk": head_loses_its_disk,
    "disks-full": fill_all_disks,
    "stop-driver": harm_driver(signal.SIGSTOP),
    "kill-driver": harm_driver(signal.SIGKILL),
    "find-again": find_again,
    "stop-each-in-turn": stop_each_in_turn,
}
