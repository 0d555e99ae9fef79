"""Chaos on machines: each node has an address and a cable of its own (a namespace), and links are encrypted. What
`harm` does to processes goes on; beside it cables are out, one way or both, packets are lost or too large, and
processes of each kind stand still, for longer than silence is borne.

One machine is in such trouble at a time, for of five nodes most must be well; meanwhile no other node is killed. Needs
root, iproute2 and iptables.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Callable

import psutil
from harm import ARENA_BYTES, KINDS, Chaos

from weft.testing import Cluster
from weft.testing.cluster import ClusterNode
from weft.testing.network import Network, Place

TROUBLES = ("cable", "mute", "one_way", "packets", "narrow", "stop", "descriptors")
AT_PEACE = ("node", "head", "zygote", "store", "stall")
"""What is done to no node while another is in trouble."""
SETTLES_S = 5.0
SHORT_S, LONG_S = (2.0, 6.0), (6.0, 20.0)
"""Troubles that a node outlives, mostly, and those in which the others may go on without it."""


class CableChaos(Chaos):
    """As `Chaos`, on machines."""

    kinds = (*KINDS, *TROUBLES)

    def _begin(self) -> None:
        self._network = Network()
        self._places: dict[ClusterNode, Place] = {}
        self._free: list[Place] = []
        self._trouble: threading.Timer | None = None
        self._troubled: set[ClusterNode] = set()
        """Nodes that have been in trouble: the others may have gone on without them."""
        self._cluster = Cluster()
        self._add_node()

    def _add_drivers_node(self) -> ClusterNode:
        return self._cluster.add_node(num_cpus=0, host=self._network.address, storage=self._storage)

    def _end(self) -> None:
        if self._trouble is not None:
            self._trouble.join()
        if hasattr(self, "_cluster"):
            self._cluster.shutdown()
        self._network.close()

    def _add_node(self) -> None:
        """On a machine that is new, or whose node has ended."""
        is_head = not self._places
        place = self._free.pop() if self._free and self._rng.random() < 0.5 else self._network.add_place()
        given = {} if is_head else {"resources": {"worker": 1}, "object_store_memory": ARENA_BYTES}
        node = self._cluster.add_node(num_cpus=0 if is_head else 2, place=place, storage=self._storage, **given)
        self._places[node] = place

    def _is_in_trouble(self) -> bool:
        return self._trouble is not None and self._trouble.is_alive()

    def _look_after_nodes(self) -> None:
        if self._is_in_trouble():
            return
        for node in [one for one in self._cluster.list_all_nodes() if not one.is_alive()]:
            if node in self._troubled:
                self._forget(node)
                self._add_node()
        super()._look_after_nodes()
        self._free += [place for node, place in self._places.items() if not node.is_alive() and place not in self._free]
        self._places = {node: place for node, place in self._places.items() if node.is_alive()}

    def _forget(self, node: ClusterNode) -> None:
        if node is self._cluster.head_node:
            self._cluster.head_node = None
        self._cluster.worker_nodes.pop(node, None)

    def _can_harm(self, kind: str) -> bool:
        return not self._is_in_trouble() if kind in (*AT_PEACE, *TROUBLES) else True

    def _victim(self) -> ClusterNode:
        """Any node but the drivers', the head as well."""
        return self._rng.choice([node for node in self._places if node.is_alive()])

    def _last(self, node: ClusterNode, end: Callable[[], None]) -> bool:
        """The trouble of that node has begun; it lasts for a while."""
        self._troubled.add(node)
        seconds = self._rng.uniform(*self._rng.choice((SHORT_S, LONG_S)))
        self._trouble = threading.Timer(seconds, _end_and_settle, (end,))
        self._trouble.start()
        return True

    def _harm_cable(self, _: ClusterNode) -> bool:
        place = self._places[node := self._victim()]
        place.cut()
        return self._last(node, place.mend)

    def _harm_mute(self, _: ClusterNode) -> bool:
        """What it sends is lost, and it hears all."""
        place = self._places[node := self._victim()]
        place.mute()
        return self._last(node, place.mend)

    def _harm_one_way(self, _: ClusterNode) -> bool:
        """What one machine sends to one other is lost."""
        place = self._places[node := self._victim()]
        other = self._rng.choice([one for one in self._places if one is not node])
        self._troubled.add(other)
        address = self._places[other].address
        place.lose_address(address)
        return self._last(node, lambda: place.find_address(address))

    def _harm_packets(self, _: ClusterNode) -> bool:
        """Single packets to and from it are lost."""
        place = self._places[node := self._victim()]
        try:
            place.lose_packets(self._rng.uniform(0.01, 0.2))
        except OSError:  # no iptables
            return False
        return self._last(node, lambda: place.lose_packets(0))

    def _harm_narrow(self, _: ClusterNode) -> bool:
        """Large packets to and from it vanish."""
        place = self._places[node := self._victim()]
        place.drop_large()
        return self._last(node, place.mend)

    def _harm_stop(self, _: ClusterNode) -> bool:
        """One process of any kind stands still."""
        node = self._victim()
        with contextlib.suppress(psutil.Error):
            daemon = psutil.Process(node.pid)
            kinds: dict[str, list[psutil.Process]] = {"daemon": [daemon]}
            for child in daemon.children(recursive=True):
                kinds.setdefault(child.name(), []).append(child)
            victim = self._rng.choice(kinds[self._rng.choice(sorted(kinds))])
            victim.suspend()
            return self._last(node, lambda: _go_on(victim))
        return False

    def _harm_descriptors(self, _: ClusterNode) -> bool:
        """Its daemon and its server of the store can open nothing."""
        node = self._victim()
        with contextlib.suppress(psutil.Error, OSError):
            pids = [node.pid, *(one.pid for one in psutil.Process(node.pid).children() if one.name() != "weft-zygote")]
            before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}
            for pid, (_, most) in before.items():
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), most))
            return self._last(node, lambda: _give_descriptors(before))
        return False


def _end_and_settle(end: Callable[[], None]) -> None:
    """Until a node that the others have gone on without has heard so and ended: nobody joins at one that ends."""
    end()
    threading.Event().wait(SETTLES_S)


def _go_on(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.resume()


def _give_descriptors(before: dict[int, tuple[int, int]]) -> None:
    for pid, limits in before.items():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
