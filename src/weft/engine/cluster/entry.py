"""How a node daemon comes into its cluster: the token from its launcher, a port, the head; then it says that it is up.

Runs in the daemon. The launcher's socket stays open where the node is to end with its launcher.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import msgspec

from weft.engine.cluster.transport import TcpTransport, address_of, listen
from weft.engine.node.config import ClusterConfig, NodeConfig, NodeOffer
from weft.engine.wire.link_messages import Member
from weft.engine.wire.tls import Certificate, is_loopback

if TYPE_CHECKING:
    from weft.engine.node.daemon import NodeDaemon

LARGEST = 4096
HEAD, NODE, LEASHED = "h", "n", "l"
"""At the end of a cluster node's local address."""


class NodeUp(msgspec.Struct, frozen=True):
    """What the launcher hears."""

    node_id: str
    address: str
    """Where this node listens for others."""
    cluster: str
    """Where the head does."""
    local_address: str
    fingerprint: str = ""
    """Of its certificate; empty where it can be reached from its own machine only."""


class Entry:
    """From the start to the first sign of life."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._launcher = socket.socket(fileno=config.launcher_fd)
        self._token, _, store = self._launcher.recv(LARGEST).partition(b"\0")
        self._store = store.decode()
        if not self._token:
            raise RuntimeError("the launcher gave no token")
        self._listener = listen(config.host, config.port)
        self._address = address_of(self._listener)
        self.host = self._address.rpartition(":")[0]
        """What other machines know this one by."""
        self._certificate = None if is_loopback(self.host) else Certificate()
        mark = (NODE if config.head else HEAD) + (LEASHED if config.is_leashed else "")
        self._name = config.name or config.head or self._address
        self.suffix = f"+{self._name}+{mark}"
        """Of the node's local address, so that drivers of this machine find the cluster's nodes."""

    def join(self, daemon: NodeDaemon, config: NodeConfig, offer: NodeOffer) -> None:
        """Begin; the node is up, and the launcher told, once it has a number and its links."""
        from weft.engine.cluster.shell import ClusterShell
        from weft.engine.cluster.store import ServedStore

        labels, hostname = config.labels, socket.gethostname()
        own = Member(0, daemon.node_id, self._address, daemon.address, offer.total, labels, hostname=hostname)
        fingerprints = {self._config.head: self._config.fingerprint}
        transport = TcpTransport(daemon.loop, self._listener, self._token, self._certificate, fingerprints)
        store = ServedStore(
            daemon.loop, self._token, self.host, lambda: shell.heading.store_lost(), self._store, self._config.shards
        )
        can_follow = self._config.head or self._config.has_successor
        shell = ClusterShell(daemon, transport, self._config.head, own, store if can_follow else None)
        shell.cluster_address = self._name
        shell.folder = self._config.folder
        daemon.cluster = shell
        shell.on_joined = lambda: self._say_up(daemon, shell.cluster_address)
        daemon.loop.watch(self._launcher.fileno(), lambda: self._launcher_left(daemon))
        shell.start()

    def _say_up(self, daemon: NodeDaemon, cluster: str) -> None:
        fingerprint = "" if self._certificate is None else self._certificate.fingerprint
        up = NodeUp(daemon.node_id, self._address, cluster, daemon.address, fingerprint)
        try:
            self._launcher.send(msgspec.json.encode(up))
        except OSError:
            return self._launcher_left(daemon)

    def _launcher_left(self, daemon: NodeDaemon) -> None:
        if self._launcher.fileno() < 0:
            return
        daemon.loop.unwatch(self._launcher.fileno())
        self._launcher.close()
        if self._config.is_leashed:
            daemon.stop("")
