"""The cluster's storage folder: values that are put with durable=True live there as files.

Runs in the daemon's thread. All nodes of a cluster use one folder, below the path that a node was started with
(`--storage`), or below TMPDIR. Every daemon that has been asked for it, or told of it by another, holds a shared lock
on it; the last one that ends removes it, and what a killed cluster has left is removed when another one makes its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from typing import TYPE_CHECKING, Any

from weft.engine.node.spilling import temporary_folder

if TYPE_CHECKING:
    from weft.engine.node.daemon import NodeDaemon

_LOCK = ".lock"


class Storage:
    """One daemon's hold on the folder."""

    def __init__(self, daemon: NodeDaemon, path: str) -> None:
        self._daemon = daemon
        self._path = path
        self._folder = ""
        self._fd = -1
        daemon.operations.offer("hold_storage", self.hold_storage)

    def folder(self) -> str:
        """Made and held now; all other nodes hold it, too. OSError when it can not be made."""
        if not self._folder:
            self._hold()
            if self._daemon.cluster is not None:
                for node in list(self._daemon.cluster.members.links):
                    self._daemon.ask_node(node, "hold_storage", {})  # one that can not says so when it is used
        return self._folder

    def hold_storage(self, params: dict[str, Any]) -> None:
        if not self._folder:
            self._hold()

    def close(self) -> None:
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):  # others hold it
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._fd)
        self._fd, self._folder = -1, ""

    def _hold(self) -> None:
        base = os.path.join(self._path or temporary_folder(), f"weft-storage-{os.getuid()}")
        os.makedirs(base, 0o700, exist_ok=True)
        if os.stat(base).st_uid != os.getuid():
            raise PermissionError(f"the storage folder {base} belongs to another user; start the node with --storage")
        _sweep(base)
        cluster = self._daemon.cluster
        name = self._daemon.node_id if cluster is None else cluster.cluster_address
        folder = os.path.join(base, hashlib.sha256(name.encode()).hexdigest()[:16])
        lock = os.path.join(folder, _LOCK)
        while self._fd < 0:
            os.makedirs(folder, 0o700, exist_ok=True)
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.path.exists(lock) and os.path.samestat(os.stat(lock), os.fstat(fd)):
                self._fd = fd
            else:  # it was swept away between the two
                os.close(fd)
        self._folder = folder


def _sweep(base: str) -> None:
    """Remove what nobody holds."""
    for name in os.listdir(base):
        folder = os.path.join(base, name)
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(fd)
