"""One thing that goes wrong with one or two of five machines. What must come of it: nobody ends but the node that was
harmed, and work goes on. `worlds_at_once` has worlds in which several things do.

    python tests/cluster/cut_worlds.py [--world NAME ...] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import worlds_at_once
from machines import ON_VICTIM, Counter, Machines, double, limited, machines, pause, stand_still

import weft
from waiting import children_named, wait_until
from weft.cluster_utils import ClusterNode
from weft.engine.process.session import rpc
from weft.testing.cutting import silence_between

# ---- what goes wrong ----


def cut_victim(seconds: float) -> Callable[[Machines], None]:
    def harm(world: Machines) -> None:
        place = world.places[world.victim]
        place.cut()
        pause(seconds)
        place.mend()
        world.goes_on()
        pause(12)
        world.goes_on()
        world.only(world.victim)
        assert world.status()["epoch"] == 1

    return harm


def mute_victim(seconds: float) -> Callable[[Machines], None]:
    def harm(world: Machines) -> None:
        place = world.places[world.victim]
        place.mute()
        pause(seconds)
        place.mend()
        world.goes_on()
        pause(12)
        world.goes_on()
        world.only(world.victim)
        assert world.status()["epoch"] == 1

    return harm


def lose_head(seconds: float, only_its_words: bool = False) -> Callable[[Machines], None]:
    """Its cable is out, both ways or one: what it says is lost, and it hears all."""

    def harm(world: Machines) -> None:
        place = world.places[world.head]
        if only_its_words:
            place.mute()
        else:
            place.cut()
        pause(seconds)
        place.mend()
        world.goes_on()
        pause(12)
        world.goes_on()
        world.only(world.head)
        assert world.status()["epoch"] <= 2

    return harm


def stop_head(seconds: float) -> Callable[[Machines], None]:
    def harm(world: Machines) -> None:
        stand_still(world.head.pid, seconds)
        world.goes_on()
        pause(8)
        world.goes_on()
        world.only(world.head)
        assert world.status()["epoch"] <= 2

    return harm


def kill_zygote_of_head(world: Machines) -> None:
    world.child(world.head, "weft-zygote").kill()
    world.goes_on()
    wait_until(lambda: not world.head.is_alive())
    world.only(world.head)
    assert world.status()["epoch"] == 2


def kill_head(world: Machines) -> None:
    began = time.monotonic()
    os.kill(world.head.pid, signal.SIGKILL)
    world.goes_on()
    print(f"   taken over, and an actor made, after {time.monotonic() - began:.2f} s")
    world.only(world.head)
    assert world.status()["epoch"] == 2


def kill_store_of_head(world: Machines) -> None:
    world.child(world.head, "weft-control").kill()
    world.goes_on()
    wait_until(lambda: len(children_named(world.head.pid, "weft-control")) == 1)
    world.goes_on()
    world.only()
    assert world.status()["epoch"] == 1


def stop_daemon_of_victim(world: Machines) -> None:
    """Its workers run on, and their actors start again elsewhere: an old incarnation has stopped by then."""
    folder = Path("/tmp") / f"weft-incarnations-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    actor = Counter.options(max_restarts=-1, max_task_retries=-1, **ON_VICTIM).remote()
    first = weft.get(actor.write_on.remote(str(folder)), timeout=60)
    hosts = [node for node in world.nodes if first in {c.pid for c in psutil.Process(node.pid).children(True)}]
    host = hosts[0].pid
    os.kill(host, signal.SIGSTOP)
    try:
        second = weft.get(actor.write_on.remote(str(folder)), timeout=60)
        assert second != first
        began = time.monotonic()
        wait_until(lambda: (folder / str(second)).exists())
        last = float((folder / str(first)).read_text())
        print(f"   the first incarnation wrote last {began - last:.2f} s before the second one began")
        assert last < began, "two incarnations write"
        pause(6)
        assert float((folder / str(first)).read_text()) == last, "two incarnations write"
    finally:
        os.kill(host, signal.SIGCONT)
    world.goes_on()
    world.only(hosts[0])


def drop_large_packets(world: Machines) -> None:
    import numpy

    place = world.places[world.victim]
    place.drop_large()
    try:
        actor = Counter.options(max_restarts=-1, max_task_retries=-1, **ON_VICTIM).remote()
        began = time.monotonic()
        assert weft.get(actor.add.remote(), timeout=120) >= 1
        answer = weft.get(double.options(**ON_VICTIM).remote(numpy.ones(200_000)), timeout=120)
        assert answer.sum() == 400_000
        print(f"   answered after {time.monotonic() - began:.2f} s")
        world.goes_on()
        world.only(world.victim)
    finally:
        place.mend()


def silence_store_lines_of_head(world: Machines) -> None:
    """The head daemon's connections to the store's servers go dead, and nobody is told. To its own server it has a
    local socket, which cannot."""
    stores = [world.child(node, "weft-control").pid for node in world.nodes if node is not world.head]
    lines = [silence_between(world.head.pid, pid) for pid in stores]
    assert all(lines), lines
    began = time.monotonic()
    rpc.request("kv_put", key=b"key", value=b"value")
    assert rpc.request("kv_get", key=b"key") == b"value"
    print(f"   a key is safe after {time.monotonic() - began:.2f} s")
    world.goes_on()
    world.only()
    assert world.status()["epoch"] == 1


def silence_links_of_head(world: Machines) -> None:
    """The connections between the head and all other nodes go dead."""
    assert sum(silence_between(world.head.pid, node.pid) for node in world.nodes if node is not world.head) == 4
    began = time.monotonic()
    world.goes_on()
    print(f"   all goes on after {time.monotonic() - began:.2f} s")
    pause(8)
    world.goes_on()
    world.only()
    assert world.status()["epoch"] == 1


def stop_store_of_head(world: Machines) -> None:
    store = world.child(world.head, "weft-control").pid
    os.kill(store, signal.SIGSTOP)
    try:
        world.goes_on()
        pause(15)
        world.goes_on()
    finally:
        os.kill(store, signal.SIGCONT)
    world.goes_on()
    world.only()
    assert world.status()["epoch"] == 1


def cut_two(seconds: float) -> Callable[[Machines], None]:
    """Two ordinary nodes that still reach each other: they back each other, and are not enough."""

    def harm(world: Machines) -> None:
        gone = [node for node in world.places if node is not world.head][:2]
        one, other = (world.places[node] for node in gone)
        rest = [place for place in world.places.values() if place not in (one, other)]
        for place in (one, other):
            for there in rest:
                place.lose(there)
            place.lose_address(world.near.node_ip_address)
        pause(seconds)
        for place in (one, other):
            for there in rest:
                place.find(there)
            place.find_address(world.near.node_ip_address)
        world.goes_on()
        pause(12)
        world.goes_on()
        world.only(*gone)
        assert world.status()["epoch"] == 1

    return harm


def lose_some(share: float) -> Callable[[Machines], None]:
    """The cable of one node is out for that share of each tenth of a second: what is under way is lost in bursts. Loss
    of single packets needs netem or iptables, which not every kernel has."""

    def harm(world: Machines) -> None:
        place = world.places[world.victim]
        until = time.monotonic() + 20
        while time.monotonic() < until:
            place.cut()
            time.sleep(share / 10)
            place.mend()
            time.sleep((1 - share) / 10)
        world.goes_on()
        world.only()
        assert world.status()["epoch"] == 1

    return harm


def lose_one_way(seconds: float, *, is_heads: bool) -> Callable[[Machines], None]:
    """Of the two ends of one link: what the head sends to one node is lost, or what that sends to the head."""

    def harm(world: Machines) -> None:
        ends = [world.places[world.head], world.places[world.victim]]
        sender, receiver = ends if is_heads else ends[::-1]
        sender.lose_address(receiver.address)
        pause(seconds)
        sender.find_address(receiver.address)
        world.goes_on()
        pause(12)
        world.goes_on()
        world.only(world.victim)
        assert world.status()["epoch"] == 1

    return harm


def cut_head_and_node(seconds: float) -> Callable[[Machines], None]:
    def harm(world: Machines) -> None:
        for node in (world.head, world.victim):
            world.places[node].cut()
        pause(seconds)
        for node in (world.head, world.victim):
            world.places[node].mend()
        world.goes_on()
        pause(12)
        world.goes_on()
        world.only(world.head, world.victim)
        assert world.status()["epoch"] <= 2

    return harm


def harm_two_stores(sign: int) -> Callable[[Machines], None]:
    """Two of five servers of the control store, the head's among them."""

    def harm(world: Machines) -> None:
        pids = [world.child(node, "weft-control").pid for node in (world.head, world.victim)]
        for pid in pids:
            os.kill(pid, sign)
        world.goes_on()
        pause(12)
        world.goes_on()
        for pid in pids if sign == signal.SIGSTOP else ():
            os.kill(pid, signal.SIGCONT)
        world.goes_on()
        world.only()
        assert world.status()["epoch"] == 1

    return harm


def no_descriptors(whose: str) -> Callable[[Machines], None]:
    """For a while, in which actors are made there and a connection must be made anew: they come afterwards."""

    def harm(world: Machines) -> None:
        node: ClusterNode = getattr(world, whose)
        pids = [node.pid, *(world.child(node, name).pid for name in ("weft-control", "weft-zygote"))]
        with limited(pids, resource.RLIMIT_NOFILE, lambda pid: psutil.Process(pid).num_fds()):
            actors = [Counter.options(num_cpus=0, resources={whose: 0.001}).remote() for _ in range(5)]
            pause(8)
            assert silence_between(world.head.pid, world.victim.pid)
            pause(8)
        assert weft.get([actor.add.remote() for actor in actors], timeout=60) == [1] * 5
        world.goes_on()
        world.only()
        assert world.status()["epoch"] == 1

    return harm


def fill_disk_of_head(world: Machines) -> None:
    pids = [world.head.pid, world.child(world.head, "weft-control").pid]
    with limited(pids, resource.RLIMIT_FSIZE, lambda pid: 0):
        rpc.request("kv_put", key=b"key", value=b"v" * 100_000)
        world.goes_on()
        pause(8)
        world.goes_on()
    assert rpc.request("kv_get", key=b"key") == b"v" * 100_000
    world.goes_on()
    world.only()
    assert world.status()["epoch"] == 1


def flap(world: Machines) -> None:
    """The victim's cable is out and in again, each 3 s."""
    place = world.places[world.victim]
    for _ in range(4):
        place.cut()
        pause(3)
        place.mend()
        pause(3)
    world.goes_on()
    world.only(world.victim)
    assert world.status()["epoch"] == 1


def stop_two_daemons(world: Machines) -> None:
    two = [node for node in world.places if node is not world.head][:2]
    for node in two:
        os.kill(node.pid, signal.SIGSTOP)
    try:
        pause(15)
    finally:
        for node in two:
            os.kill(node.pid, signal.SIGCONT)
    world.goes_on()
    pause(8)
    world.goes_on()
    world.only(*two)
    assert world.status()["epoch"] == 1


def kill_head_and_next(world: Machines) -> None:
    """Who would take over dies with the head."""
    two = [world.head, world.victim]
    for node in two:
        os.kill(node.pid, signal.SIGKILL)
    world.goes_on()
    world.only(*two)


def stop_child(name: str) -> Callable[[Machines], None]:
    """The zygote or the store's server of one node stands still; the node's work goes on or waits for it."""

    def harm(world: Machines) -> None:
        pid = world.child(world.victim, name).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            pause(12)
        finally:
            os.kill(pid, signal.SIGCONT)
        world.goes_on()
        world.only(world.victim)
        assert world.status()["epoch"] == 1

    return harm


def kill_child(name: str) -> Callable[[Machines], None]:
    def harm(world: Machines) -> None:
        world.child(world.victim, name).kill()
        world.goes_on()
        world.only(world.victim)
        assert world.status()["epoch"] == 1

    return harm


def harm_worker(sign: int) -> Callable[[Machines], None]:
    """Of an actor that may be restarted: its calls are answered in the end."""

    def harm(world: Machines) -> None:
        actor = Counter.options(max_restarts=-1, max_task_retries=-1, **ON_VICTIM).remote()
        assert weft.get(actor.add.remote(), timeout=60) == 1
        zygotes = [world.child(node, "weft-zygote") for node in world.places]
        for worker in [one for zygote in zygotes for one in zygote.children()]:
            worker.send_signal(sign)
        if sign == signal.SIGSTOP:
            pause(12)
            for worker in [one for zygote in zygotes for one in zygote.children()]:
                worker.send_signal(signal.SIGCONT)
        assert weft.get(actor.add.remote(), timeout=60) >= 1
        world.goes_on()
        world.only()

    return harm


def calls_in(actor: Any, seconds: float) -> float:
    """Calls in a second, one after another."""
    count, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        weft.get(actor.add.remote(), timeout=60)
        count += 1
    return count / (time.monotonic() - began)


def measure_healthy_side(world: Machines) -> None:
    """What two nodes that are not cut do with each other, before and while a third one is: in short turns, for a
    machine has other things to do now and then, and in cuts that are long enough for the third to be given up."""
    world.end_program()
    actor = Counter.options(num_cpus=0, resources={"head": 0.001}).remote()
    weft.get(actor.add.remote(), timeout=60)
    shares = []
    for _ in range(21):
        rate = calls_in(actor, 1)
        world.places[world.victim].cut()
        shares.append(calls_in(actor, 1) / rate)
        world.places[world.victim].mend()
    shares.sort()
    print(f"   during a cut {shares[10]:.0%} of before at the median, half of all {shares[5]:.0%} to {shares[15]:.0%}")
    gone = [node for node in world.places if node is not world.head][:2]
    for node in gone:
        seconds = []
        for is_cut in (False, True, False):
            if is_cut:
                world.places[node].cut()
            seconds.append([calls_in(actor, 1) for _ in range(15)])
            world.places[node].mend()
        before, during, after = map(statistics.median, seconds)
        share, slowest = 2 * during / (before + after), 2 * min(seconds[1]) / (before + after)
        around = [min(one) * 2 / (before + after) for one in (seconds[0], seconds[2])]
        print(
            f"   in a cut of 15 s {share:.0%} of before and after at the median, {slowest:.0%} in its slowest second "
            f"(before and after: {around[0]:.0%} and {around[1]:.0%}), load {os.getloadavg()[0]:.0f}",
            flush=True,
        )
    world.only(*gone)


WORLDS: dict[str, Callable[[Machines], None]] = {
    **{f"cut-node-{seconds:g}s": cut_victim(seconds) for seconds in (2, 4, 6, 6.5, 7, 8, 10, 12, 20, 60)},
    **{f"mute-node-{seconds:g}s": mute_victim(seconds) for seconds in (4, 6, 8, 9, 10, 12, 20)},
    **{f"cut-head-{seconds:g}s": lose_head(seconds) for seconds in (2, 6, 7, 10, 20)},
    **{f"stop-head-{seconds:g}s": stop_head(seconds) for seconds in (3, 6, 6.5, 7, 8, 10, 20)},
    "kill-head": kill_head,
    "kill-zygote-of-head": kill_zygote_of_head,
    "kill-store-of-head": kill_store_of_head,
    "stop-daemon": stop_daemon_of_victim,
    "drop-large": drop_large_packets,
    "silence-store-lines-of-head": silence_store_lines_of_head,
    "silence-links-of-head": silence_links_of_head,
    "stop-store-of-head": stop_store_of_head,
    **{f"lose-{share:.0%}": lose_some(share) for share in (0.01, 0.05, 0.1, 0.2)},
    **{f"mute-head-{seconds:g}s": lose_head(seconds, only_its_words=True) for seconds in (4, 8, 20)},
    "flap": flap,
    "stop-two-daemons": stop_two_daemons,
    "kill-head-and-next": kill_head_and_next,
    "stop-zygote": stop_child("weft-zygote"),
    "stop-store": stop_child("weft-control"),
    "stop-workers": harm_worker(signal.SIGSTOP),
    "kill-zygote": kill_child("weft-zygote"),
    "kill-store": kill_child("weft-control"),
    "kill-workers": harm_worker(signal.SIGKILL),
    **{f"mute-head-to-node-{seconds:g}s": lose_one_way(seconds, is_heads=True) for seconds in (8, 25)},
    **{f"mute-node-to-head-{seconds:g}s": lose_one_way(seconds, is_heads=False) for seconds in (8, 25)},
    **{f"cut-head-and-node-{seconds:g}s": cut_head_and_node(seconds) for seconds in (8, 15)},
    "kill-two-stores": harm_two_stores(signal.SIGKILL),
    "stop-two-stores": harm_two_stores(signal.SIGSTOP),
    **{f"no-descriptors-{whose}": no_descriptors(whose) for whose in ("head", "victim")},
    "disk-full-head": fill_disk_of_head,
    "measure-healthy-side": measure_healthy_side,
    **{f"cut-two-{seconds:g}s": cut_two(seconds) for seconds in (5, 6.8, 9, 20)},
    **worlds_at_once.WORLDS,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", action="append", help="one of " + ", ".join(WORLDS))
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    failed = 0
    for name in (given.world or list(WORLDS)) * given.rounds:
        began = time.monotonic()
        with machines() as world:
            try:
                WORLDS[name](world)
                said = "well"
            except BaseException as error:
                failed += 1
                said = f"FAILED: {type(error).__name__}: {error}"
                for node in world.nodes:
                    print(f"   {node} {'lives' if node.is_alive() else 'is dead'}: {node.log()[-700:]}")
            gone = [str(node) for node in world.nodes if not node.is_alive()]
            told = world.told
        print(
            f"{name}: {said}; {told.rounds} rounds, longest {told.longest_s:.2f} s, gone {gone}, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
