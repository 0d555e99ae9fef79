"""A network of its own for the nodes of a test: a bridge, and a namespace with one cable to it for each node.

What crosses between two nodes then really crosses a network, encrypted, and a cable can be cut or slowed down. Needs
root and iproute2; ask `is_available` first.

>>> with Network() as network:
...     cluster = Cluster(initialize_head=True, head_node_args={"host": network.address})
...     place = network.add_place()
...     node = cluster.add_node(place=place)
...     place.cut()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

NOBODY = "02:00:00:00:00:01"
"""No card's address: the bridge passes on what is sent there, and all throw it away."""
_SUBNETS = 200
"""Of 10.201.0.0/16, each with room for as many places."""


def is_available() -> bool:
    """Whether this process can make namespaces and bridges.

    It tries: do not ask while a module is imported, for workers of nodes in namespaces import it as well."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        Network().close()
    except OSError:
        return False
    return True


class Place:
    """Where a node can run: a namespace with an address of its own."""

    def __init__(self, network: Network, name: str, address: str, cable: str) -> None:
        self._network = network
        self.name = name
        self.address = address
        self._cable = cable
        self._is_mute = False
        self.command_prefix = ["ip", "netns", "exec", name]

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        """All passes again."""
        _ip("link", "set", self._cable, "up", "mtu", "1500")
        if self._is_mute:
            self._is_mute = False
            _ip("-n", self.name, "neigh", "flush", "dev", "eth0", "nud", "permanent")

    def lose(self, other: Place) -> None:
        """Nothing passes between the two any more; both are reached by the others."""
        self.lose_address(other.address)
        other.lose_address(self.address)

    def find(self, other: Place) -> None:
        """After `lose`."""
        self.find_address(other.address)
        other.find_address(self.address)

    def lose_address(self, address: str) -> None:
        """Nothing of this node reaches that address any more."""
        _ip("-n", self.name, "route", "add", "blackhole", f"{address}/32")

    def find_address(self, address: str) -> None:
        _ip("-n", self.name, "route", "del", "blackhole", f"{address}/32")

    def mute(self) -> None:
        """What the node sends is lost, and it hears all that is sent to it; until `mend`."""
        others = [place.address for place in self._network.places if place is not self]
        for address in (self._network.address, *others):
            _ip("-n", self.name, "neigh", "replace", address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        self._is_mute = True

    def drop_large(self, mtu: int = 600) -> None:
        """Packets to and from the node that are larger vanish, and nobody is told; until `mend`."""
        for device in (["dev", self._cable], ["-n", self.name, "dev", "eth0"]):
            place, name = device[:-2], device[-1]
            _ip(*place, "link", "set", name, "gso_max_size", "1500", "gso_max_segs", "1")
        _ip("link", "set", self._cable, "mtu", str(mtu))

    def lose_packets(self, share: float) -> None:
        """Of what goes to the node and comes from it, each packet by itself; until it is 0. Needs iptables."""
        for chain in ("INPUT", "OUTPUT"):
            _run(*self.command_prefix, "iptables", "-F", chain)
            if share:
                chance = ["-m", "statistic", "--mode", "random", "--probability", f"{share:g}"]
                _run(*self.command_prefix, "iptables", "-A", chain, *chance, "-j", "DROP")

    def unplug(self) -> None:
        """For good."""
        _ip("link", "del", self._cable)

    def slow_down(self, bits_per_s: int) -> None:
        """So much passes to the node at most."""
        limit = ["rate", f"{bits_per_s}bit", "burst", "128kb", "latency", "50ms"]
        _run("tc", "qdisc", "replace", "dev", self._cable, "root", "tbf", *limit)

    def delay(self, delay_ms: float) -> bool:
        """Whatever goes to the node comes so much later. False when this kernel has no such queue."""
        try:
            _run("tc", "qdisc", "replace", "dev", self._cable, "root", "netem", "delay", f"{delay_ms:g}ms")
        except OSError:
            return False
        return True


class Network:
    """A bridge on this machine, at `address`, and the places on it."""

    def __init__(self) -> None:
        """OSError when it cannot be made."""
        self.places: list[Place] = []
        for number in range(_SUBNETS):
            self._bridge = f"weftbr{number}"
            with contextlib.suppress(FileExistsError):
                self._make_bridge()
                self._subnet = f"10.201.{number}"
                break
        else:
            raise OSError("no name for a bridge is free")
        self.address = f"{self._subnet}.1"
        try:
            _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
        except OSError:
            self.close()
            raise

    def _make_bridge(self) -> None:
        if os.path.exists(f"/sys/class/net/{self._bridge}"):
            raise FileExistsError(self._bridge)
        _ip("link", "add", self._bridge, "type", "bridge")

    def add_place(self) -> Place:
        """One more host on the network."""
        number = len(self.places) + 2
        name, cable = f"{self._bridge}-{number}", f"{self._bridge}p{number}"
        place = Place(self, name, f"{self._subnet}.{number}", cable)
        _ip("netns", "add", name)
        self.places.append(place)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", cable, "master", self._bridge, "up")
        for command in (
            f"addr add {place.address}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
            f"route add default via {self.address}",
        ):
            _ip("-n", name, *command.split())
        return place

    def close(self) -> None:
        """Take all of it away. End the nodes first."""
        for place in self.places:
            with contextlib.suppress(OSError):
                place.unplug()
            with contextlib.suppress(OSError):
                _ip("netns", "del", place.name)
        self.places.clear()
        with contextlib.suppress(OSError):
            _ip("link", "del", self._bridge)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
