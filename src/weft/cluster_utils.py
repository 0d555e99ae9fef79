"""A cluster of real nodes on this machine, for tests: each has its own daemon, memory and workers.

They are linked over loopback.

>>> cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
>>> node = cluster.add_node(num_cpus=2)
>>> context = weft.init(address=cluster.address)
>>> cluster.remove_node(node)
>>> cluster.shutdown()
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Mapping
from typing import Any

from weft.engine.cluster import launch
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.net.auth import Refused
from weft.store.server_config import SHARDS

__all__ = ["Cluster", "ClusterNode"]

_KNOWN = frozenset(("num_cpus", "num_gpus", "resources", "object_store_memory", "labels", "storage"))


class ClusterNode:
    """One node that a Cluster has started."""

    def __init__(self, running: launch.RunningNode, is_head: bool) -> None:
        self._running = running
        self.head = is_head
        self.node_id = running.up.node_id
        self.unique_id = running.up.node_id
        self.address = running.up.cluster
        self.fingerprint = running.up.fingerprint
        """Of its certificate; empty on loopback."""
        self.node_address = running.up.address
        """Where it listens for other nodes."""
        self.local_address = running.up.local_address
        """For `weft.init(address=...)`: attaches to this very node."""
        self.node_ip_address = running.up.address.rpartition(":")[0]

    @property
    def pid(self) -> int:
        """Of its daemon."""
        return self._running.process.pid

    def is_alive(self) -> bool:
        """Whether its daemon runs."""
        return self._running.process.poll() is None

    def any_processes_alive(self) -> bool:
        """Whether its daemon runs; its workers end with it."""
        return self.is_alive()

    def remaining_processes_alive(self) -> bool:
        """Whether its daemon runs; the zygote and the workers never outlive it."""
        return self.is_alive()

    def log(self) -> str:
        """The end of what its daemon has written."""
        return self._running.log()

    def kill(self, allow_graceful: bool = False) -> None:
        """With SIGKILL; when `allow_graceful`, it is asked to end."""
        self._running.end(gracefully=allow_graceful)

    def __repr__(self) -> str:
        return f"ClusterNode({self.node_id[:8]}{', head' if self.head else ''})"


class Cluster:
    """Nodes that come and go; they end with this process at the latest."""

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: Mapping[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        self.head_node: ClusterNode | None = None
        """The node that began the cluster, while it is there; another may act as head after its death."""
        self._name = ""
        self.worker_nodes: dict[ClusterNode, None] = {}
        self._token = launch.new_token()
        self._finalizer = weakref.finalize(self, _end_all, self.worker_nodes)
        if initialize_head:
            self.add_node(**dict(head_node_args or {}))
            if connect:
                self.connect()
        elif connect:
            raise RuntimeError("Cannot connect to a cluster without a head: pass initialize_head=True.")

    @property
    def address(self) -> str:
        """host:port, for `weft.init(address=...)`; empty while there is no node. A cluster keeps it for its life."""
        return self._name if self.list_all_nodes() else ""

    def _entry(self) -> ClusterNode | None:
        """A living node, the head where that lives."""
        return next((node for node in self.list_all_nodes() if node.is_alive()), None)

    def add_node(self, wait: bool = True, **given: Any) -> ClusterNode:
        """Start a node and wait until it is in the cluster; the first one is the head.

        Takes num_cpus (1 by default), num_gpus, resources, labels, object_store_memory and storage; Ray's other
        options have no effect. `host` is the address to listen on (loopback by default); `place`, of
        `weft.testing.Network`, lets it run in a network namespace and listen there. `store`, of the head, is the
        redis://… for the control store's rows, and `shards` of how many it is made."""
        place = given.pop("place", None)
        host = given.pop("host", "127.0.0.1") if place is None else place.address
        wanted = {name: value for name, value in given.items() if name in _KNOWN and value is not None}
        memory = wanted.get("object_store_memory")
        config = NodeConfig(
            num_cpus=float(wanted.get("num_cpus", 1)),
            num_gpus=float(wanted.get("num_gpus", 0)),
            resources={name: float(amount) for name, amount in (wanted.get("resources") or {}).items()},
            object_store_bytes=None if memory is None else int(memory),
            labels=dict(wanted.get("labels") or {}),
            storage=str(wanted.get("storage", "")),
        )
        entry = self._entry()
        is_head = entry is None
        cluster = ClusterConfig(
            launcher_fd=-1,
            head="" if entry is None else entry.node_address,
            host=host,
            is_leashed=True,
            fingerprint="" if entry is None else entry.fingerprint,
            name="" if entry is None else self._name,
            shards=int(given.get("shards", SHARDS)),
        )
        prefix = [] if place is None else place.command_prefix
        running = launch.start(config, self._token, cluster, prefix=prefix, store=given.get("store", ""))
        node = ClusterNode(running, is_head)
        if is_head:
            self.head_node, self._name = node, node.address
            self._finalizer.detach()
            self._finalizer = weakref.finalize(self, _end_all, self.worker_nodes, node)
        else:
            self.worker_nodes[node] = None
        return node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """End a node, and wait until the others know. Not `allow_graceful`: kill it, as if its machine had failed."""
        node.kill(allow_graceful)
        if node is self.head_node:
            self.head_node = None
        else:
            self.worker_nodes.pop(node, None)
            if self._entry() is not None:
                self._wait(lambda alive: node.node_id not in alive, 30, f"{node} is still taken for alive")

    def list_all_nodes(self) -> list[ClusterNode]:
        """The head first."""
        return [*([] if self.head_node is None else [self.head_node]), *self.worker_nodes]

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Until the cluster's table holds exactly the nodes that were added. TimeoutError after `timeout` seconds."""
        wanted = {node.node_id for node in self.list_all_nodes()}
        self._wait(lambda alive: alive == wanted, timeout, f"the nodes {sorted(wanted)} are not all alive")

    def _wait(self, condition: Any, timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition(self._alive()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} after {timeout:g} s")
            time.sleep(0.02)

    def _alive(self) -> set[str]:
        entry = self._entry()
        with contextlib.suppress(OSError, Refused):
            answer = launch.ask_nodes("" if entry is None else entry.node_address, self._token)
            return {member.node_id for member in answer.members if member.is_alive}
        return set()

    def connect(self, namespace: str | None = None) -> Any:
        """Attach this process to the head node, as a driver."""
        from weft.engine.process.session.session import init

        given = {} if namespace is None else {"namespace": namespace}
        return init(address=self.address, ignore_reinit_error=True, **given)

    def shutdown(self) -> None:
        """End every node."""
        _end_all(self.worker_nodes, self.head_node)
        self.head_node = None

    def remaining_processes_alive(self) -> bool:
        """Whether every node's daemon runs."""
        return all(node.is_alive() for node in self.list_all_nodes())


def _end_all(workers: dict[ClusterNode, None], head: ClusterNode | None = None) -> None:
    for node in workers:
        node._running.ask_to_end()
    for node in list(workers):
        with contextlib.suppress(OSError):
            node.kill(allow_graceful=True)
    workers.clear()
    if head is not None:
        with contextlib.suppress(OSError):
            head.kill(allow_graceful=True)
