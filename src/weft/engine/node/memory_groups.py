"""Holds workers to the memory that their work declares, by control groups of their own, where the machine grants them.

Runs in the daemon's thread; `state.memory_groups` says where, and what is too much. For a task or an actor with
`memory=` its worker is put into a group when it is first given such work, and stays there; work that declares
nothing costs nothing. All groups of a node lie in one of its own, made at the first need:

    PARENT/weft-NODE/SLOT-GENERATION

The daemon holds a lock on that folder for as long as it lives; whoever finds one that nobody holds removes it. With the
variable WEFT_MEMORY_GROUPS=0 nothing of this is done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
from collections.abc import Callable, Iterator

from weft.engine.node.config import read_text
from weft.engine.state.events import Process
from weft.engine.state.memory_groups import PREFIX, Grant, Limit, Reading, Refusal, decide, reading
from weft.engine.state.memory_pressure import StoppedForMemory
from weft.net.loop import Loop

VARIABLE = "WEFT_MEMORY_GROUPS"


def limits_granted() -> Grant | Refusal:
    """To this process, or why not."""
    if os.environ.get(VARIABLE) == "0":
        return Refusal(f"{VARIABLE} is 0")
    return decide(read_text, lambda path: os.access(path, os.W_OK))


class Group:
    """One worker's."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        _make(folder)
        self.events_fd = os.open(f"{folder}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
        self.limit: Limit | None = None
        self.pid = 0

    def read(self) -> Reading:
        """Takes note of the events: the descriptor is not ready again until there is another."""
        events = os.pread(self.events_fd, 4096, 0).decode()
        current, peak, stat = (read_text(f"{self.folder}/memory.{name}") for name in ("current", "peak", "stat"))
        return reading(current, peak, stat, events)

    def hold_to(self, declared_bytes: int, arena_bytes: int) -> None:
        now = self.read()
        self.limit = Limit(declared_bytes, now.private_bytes) if declared_bytes else None
        _write(f"{self.folder}/memory.max", self.limit.max_bytes(arena_bytes) if self.limit else "max")
        _write(f"{self.folder}/memory.high", self.limit.high_bytes(now) if self.limit else "max")

    def take_in(self, pid: int) -> None:
        self.pid = pid
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            _write(f"{self.folder}/cgroup.procs", pid)


class MemoryGroups:
    """One daemon's."""

    def __init__(
        self,
        loop: Loop,
        granted: Grant | Refusal,
        node_id: str,
        arena_bytes: int,
        stop: Callable[[Process, StoppedForMemory], None],
    ) -> None:
        self._loop = loop
        self._grant = granted if isinstance(granted, Grant) else None
        self._has_failed = False
        self._name = f"{PREFIX}{node_id[:16]}"
        self._arena_bytes = arena_bytes
        self._stop = stop
        self._groups: dict[Process, Group] = {}
        self._emptied: list[str] = []
        """Groups whose workers have ended, but not what those had started."""
        self._lock_fd = -1
        """Of the node's own group, once it is made."""
        if self._grant is not None:
            with self._carefully(), _alone_in(self._grant.parent):
                remove_dead(self._grant.parent)

    def limit(self, process: Process, pid: int, declared_bytes: int) -> None:
        """From now on. `pid` is 0 for a worker that is on its way."""
        group = self._groups.get(process)
        if self._grant is None or self._has_failed or (group is None and not declared_bytes):
            return
        with self._carefully():
            if group is None:
                group = self._groups[process] = Group(f"{self._own_folder(self._grant)}/{process[0]}-{process[1]}")
                self._loop.watch(group.events_fd, lambda: self._look(process), select.EPOLLPRI)
                for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                    with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                        _write(f"{group.folder}/{name}", value)
            group.hold_to(declared_bytes, self._arena_bytes)
            if pid and not group.pid:
                group.take_in(pid)

    def forked(self, process: Process, pid: int) -> None:
        if (group := self._groups.get(process)) is not None and not group.pid:
            with self._carefully():
                group.take_in(pid)

    def exited(self, process: Process, pid: int) -> StoppedForMemory | None:
        """Why, when the kernel killed it for its memory; its group is removed."""
        if (group := self._groups.pop(process, None)) is None:
            return None
        why = None
        with self._carefully():
            now = group.read()
            if now.kills and group.limit is not None:
                why = group.limit.reason(pid, now)
        self._loop.unwatch(group.events_fd)
        os.close(group.events_fd)
        self._emptied = [folder for folder in (*self._emptied, group.folder) if not _remove(folder)]
        return why

    def close(self) -> None:
        """When no worker lives any more. What one has left running keeps its group, until the next node's start."""
        for process, group in list(self._groups.items()):
            self.exited(process, group.pid)
        if self._lock_fd < 0 or self._grant is None:
            return
        with contextlib.suppress(OSError), _alone_in(self._grant.parent):
            os.close(self._lock_fd)
            remove_dead(self._grant.parent)
            if self._grant.enables_memory and not _nodes_in(self._grant.parent):
                _write(f"{self._grant.parent}/cgroup.subtree_control", "-memory")
        self._lock_fd = -1

    def _look(self, process: Process) -> None:
        """The kernel tells that the group is at its limit."""
        group = self._groups[process]
        with self._carefully():
            now = group.read()
            if group.limit is None or now.kills:
                return
            if group.limit.is_exceeded(now):
                self._stop(process, group.limit.reason(group.pid, now))
            else:
                _write(f"{group.folder}/memory.high", group.limit.high_bytes(now))

    def _own_folder(self, grant: Grant) -> str:
        folder = f"{grant.parent}/{self._name}"
        if self._lock_fd < 0:
            with _alone_in(grant.parent):
                if grant.enables_memory:
                    _write(f"{grant.parent}/cgroup.subtree_control", "+memory")
                _make(folder)
                self._lock_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
                _write(f"{folder}/cgroup.subtree_control", "+memory")
                with contextlib.suppress(FileNotFoundError):  # processes are not counted here
                    _write(f"{folder}/pids.max", grant.most_processes)
        return folder

    @contextlib.contextmanager
    def _carefully(self) -> Iterator[None]:
        """What the machine granted can be taken away: then there are no limits any more, and it is said once."""
        try:
            yield
        except OSError as error:
            if not self._has_failed:
                print(f"weft: workers get no memory limits of their own any more: {error}", file=sys.stderr, flush=True)
            self._has_failed = True


def remove_dead(parent: str) -> None:
    """The groups of nodes that have ended. With the lock on `parent`."""
    for folder in _nodes_in(parent):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):  # it lives
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with os.scandir(folder) as entries:
                workers = [entry.path for entry in entries if entry.is_dir()]
            for one in workers:
                _remove(one)
            _remove(folder)
        os.close(fd)


def _nodes_in(parent: str) -> list[str]:
    with os.scandir(parent) as entries:
        return [entry.path for entry in entries if entry.name.startswith(PREFIX) and entry.is_dir()]


@contextlib.contextmanager
def _alone_in(parent: str) -> Iterator[None]:
    """No other node makes or removes groups there meanwhile."""
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _make(folder: str) -> None:
    """The kernel puts its files there."""
    os.mkdir(folder)


def _remove(folder: str) -> bool:
    """False while a process is in it."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(path: str, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never O_CREAT: what is missing shall be said to be missing
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
