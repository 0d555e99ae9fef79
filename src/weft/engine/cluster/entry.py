"""How a node daemon comes into its cluster: the token from its launcher, a port, the head; then it says that it is up.

Runs in the daemon. The launcher's socket stays open where the node is to end with its launcher.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.engine.cluster.transport import SocketTransport, listen
from weft.engine.node.config import ClusterConfig, NodeConfig, NodeOffer
from weft.engine.state.instructions import Ending
from weft.engine.wire.link_messages import Member
from weft.net.tls import is_loopback

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon
    from weft.net.loop import Loop
    from weft.store.head_folder import HeadFolder, Tables

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
    store: str = ""
    """Of a head: the folder in which it keeps what it must know."""
    restored: str = ""
    """Of a head that was started again: what it found there."""


class Entry:
    """From the start to the first sign of life."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._launcher = socket.socket(fileno=config.launcher_fd)
        self._launcher.set_inheritable(False)
        self.token, _, store = self._launcher.recv(LARGEST).partition(b"\0")
        self._store = store.decode()
        if not self.token:
            raise RuntimeError("the launcher gave no token")
        self._endpoint = listen(config.host, config.port)
        self._address = self._endpoint.address
        self.host = self._address.rpartition(":")[0]
        """What other machines know this one by."""
        self._fingerprint = "" if is_loopback(self.host) else self._endpoint.certificate.fingerprint
        mark = (NODE if config.head else HEAD) + (LEASHED if config.is_leashed else "")
        self.name = config.name or config.head or self._address
        self.suffix = f"+{self.name}+{mark}"
        """Of the node's local address, so that drivers of this machine find the cluster's nodes."""
        self._restored = ""
        self._shell: ClusterShell | None = None
        self._has_joined = False

    def join(self, daemon: NodeDaemon, config: NodeConfig, offer: NodeOffer) -> None:
        """Begin; the node is up, and the launcher told, once it has a number and its links."""
        from weft.engine.cluster.restoring import describe, next_number
        from weft.engine.cluster.shell import ClusterShell
        from weft.store.served_store import ServedStore

        labels, hostname = config.labels, socket.gethostname()
        folder = self._folder(daemon.loop)
        tables: Tables = {}
        if folder is not None and not self._config.head:
            folder.open()
            tables = folder.read()
        own = Member(
            next_number(tables), daemon.node_id, self._address, daemon.address, offer.total, labels, hostname=hostname
        )
        fingerprints = {self._config.head: self._config.fingerprint}
        transport = SocketTransport(daemon.loop, self._endpoint, self.token, fingerprints)
        store = ServedStore(
            daemon.loop, self.token, self.host, lambda: shell.heading.store_lost(), self._store, self._config.shards
        )
        can_follow = self._config.head or self._config.has_successor
        shell = ClusterShell(daemon, transport, self._config.head, own, store if can_follow else None)
        shell.cluster_address = self.name
        shell.folder = self._config.folder
        if folder is not None:
            shell.heading.memory.folder, shell.heading.memory.tables = folder, tables
            shell.jobs_folder = "" if self._config.head else str(folder.path / "jobs")
            self._restored = describe(tables)
        daemon.join(shell)
        self._shell = shell
        shell.on_joined = lambda: self._say_up(daemon, shell.cluster_address)
        daemon.loop.watch(self._launcher.fileno(), lambda: self._launcher_left(daemon))
        shell.start()

    def comes_back(self, daemon: NodeDaemon) -> bool:
        """Whether this node, which has ended, joins its cluster again as a new one."""
        if self._config.is_leashed or not daemon.error:
            return False
        was_left_behind = daemon.ending is Ending.LEFT_BEHIND
        return was_left_behind or (self._config.returns_until_s > 0 and not self._has_joined)

    @property
    def known(self) -> list[str]:
        """Where other nodes of the cluster listen, the one at which this node would join first."""
        found = [] if self._shell is None else [member.address for member in self._shell.members.alive()]
        known = dict.fromkeys([self._config.head, *self._config.known, *found])
        return [address for address in known if address not in ("", self._address)]

    def _folder(self, loop: Loop) -> HeadFolder | None:
        from weft.store.head_folder import HeadFolder, forget, path_of

        config = self._config
        if config.store_folder:
            path = Path(config.store_folder)
        elif config.state_folder:
            path = path_of(config.state_folder, self.name)
            if not config.head and config.port == 0:  # of another cluster, which had this port by chance
                forget(path)
        else:
            return None
        return HeadFolder(loop, path, self.token, config.fsync)

    def _say_up(self, daemon: NodeDaemon, cluster: str) -> None:
        self._has_joined = True
        folder = None if self._config.head or self._shell is None else self._shell.heading.memory.folder
        store = "" if folder is None else str(folder.path)
        fields = (daemon.node_id, self._address, cluster, daemon.address, self._fingerprint)
        up = NodeUp(*fields, store, self._restored)
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
