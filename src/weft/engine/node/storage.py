"""The cluster's storage folder: values that are put with durable=True live there as files.

Runs in the daemon's thread. All nodes of a cluster use one folder, below the path that a node was started with
(`--storage`), or below TMPDIR. Every daemon that has been asked for it, or told of it by another, holds a shared lock
on it; the last one that ends removes it, and what a killed cluster has left is removed when another one makes its own.
Not so while something that outlives all processes names a value in it (`node.kept_objects`): then the folder says which
head's folder (docs/design/0026-restart.md) it belongs to, and stays as long as that one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations
from weft.engine.node.spilling import temporary_folder
from weft.machine import own_folders

if TYPE_CHECKING:
    from pathlib import Path

_LOCK, _KEEPER = ".lock", ".keeper"


class Storage:
    """One daemon's hold on the folder."""

    def __init__(self, operations: Operations, nodes: Nodes, path: str) -> None:
        self._nodes = nodes
        self._path = path
        self._folder = ""
        self._fd = -1
        self._keeper: Path | None = None
        operations.offer("hold_storage", self.hold_storage)

    def folder(self) -> str:
        """Made and held now; all other nodes hold it, too. OSError when it cannot be made."""
        if not self._folder:
            self._hold()
            for node in self._nodes.others():
                self._nodes.ask_node(node, "hold_storage", {})  # one that cannot says so when it is used
        return self._folder

    def keep_for(self, keeper: Path | None) -> None:
        """A head's folder has rows of values that are here; None: no more."""
        if keeper != self._keeper:
            self._keeper = keeper
            self._write_keeper()

    def keep_only(self, rows: Collection[bytes]) -> None:
        """The cluster is started again: of what is there, only what these rows speak of can be asked for."""
        self.folder()
        for name in os.listdir(self._folder):
            if name.startswith("value-") and not any(name.encode() in row for row in rows):
                os.unlink(os.path.join(self._folder, name))

    def _write_keeper(self) -> None:
        if not self._folder:
            return
        path = os.path.join(self._folder, _KEEPER)
        if self._keeper is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            with open(f"{path}.part", "w") as file:
                file.write(f"{os.uname().nodename}\n{self._keeper}")
            os.rename(f"{path}.part", path)

    def hold_storage(self, params: dict[str, Any]) -> None:
        if not self._folder:
            self._hold()

    def close(self) -> None:
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):  # others hold it
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_kept(self._folder):
                _remove(self._folder)
        os.close(self._fd)
        self._fd, self._folder = -1, ""

    def _hold(self) -> None:
        base = os.path.join(self._path or temporary_folder(), f"weft-storage-{os.getuid()}")
        own_folders.make(base, "start the node with --storage")
        _sweep(base)
        import hashlib  # costs milliseconds, as in _remove, and most nodes store nothing

        name = self._nodes.node_id if self._nodes.cluster is None else self._nodes.address
        folder = os.path.join(base, hashlib.sha256(name.encode()).hexdigest()[:16])
        lock = os.path.join(folder, _LOCK)
        while self._fd < 0:
            own_folders.make_closed(folder)
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.path.exists(lock) and os.path.samestat(os.stat(lock), os.fstat(fd)):
                self._fd = fd
            else:  # it was swept away between the two
                os.close(fd)
        self._folder = folder
        if self._keeper is not None:
            self._write_keeper()


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _is_kept(folder: str) -> bool:
    """Of a head of another machine nobody here can say whether it is still to be started again."""
    try:
        with open(os.path.join(folder, _KEEPER)) as file:
            machine, path = file.read().split("\n")
    except OSError:
        return False
    return machine != os.uname().nodename or os.path.exists(path)


def _sweep(base: str) -> None:
    """Remove what nobody holds."""
    for name in os.listdir(base):
        folder = os.path.join(base, name)
        if _is_kept(folder):
            continue
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(fd)
