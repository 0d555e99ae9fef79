"""Which slot here stands for which process of another node, and records in the words of both.

Runs in the daemon's thread. A proxy is made when its process is first named; its node is asked to tell of the death.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from weft import _native
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire.link_messages import GlobalProcess

NOBODY = -1
"""The node of a process that is not known (slot 0 inside a record)."""
REMEMBERED = 4096
_PROCESS_AT = {kinds.LEASE_GRANT: 12, kinds.ACTOR_UP: 16, kinds.ACTOR_WATCH: 16}
"""Where the daemons' own records name a process; the native core knows the others."""
_NAMES = struct.Struct("<II")


class Names:
    """The proxies of this node."""

    def __init__(self, port: _native.NodePort, number: int, on_made: Callable[[GlobalProcess], None]) -> None:
        self._port = port
        self.number = number
        self._on_made = on_made
        self.proxies: dict[GlobalProcess, Process] = {}
        self._globals: dict[Process, GlobalProcess] = {}
        self._by_slot: dict[int, Process] = {}

    def to_global(self, process: Process) -> GlobalProcess:
        if process[0] == 0:
            return (NOBODY, *process)
        return self._globals.get(process, (self.number, *process))

    def to_local(self, name: GlobalProcess) -> Process:
        """RuntimeError when every slot is in use."""
        if name[0] == NOBODY or name[0] == self.number:
            return name[1:]
        process = self.proxies.get(name)
        if process is None:
            process = self.proxies[name] = self._port.reserve_proxy()
            self._globals[process] = name
            self._by_slot[process[0]] = process
            if len(self._globals) > REMEMBERED + len(self.proxies):
                self._forget_dead()
            self._on_made(name)
        return process

    def of_proxy(self, slot: int) -> GlobalProcess | None:
        """Whom the living proxy in that slot stands for; None when that process is dead."""
        process = self._by_slot.get(slot)
        return self._globals[process] if process is not None else None

    def is_proxy(self, process: Process) -> bool:
        return self._by_slot.get(process[0]) == process

    def gone(self, name: GlobalProcess) -> Process | None:
        """That process is dead; its proxy, if there was one."""
        process = self.proxies.pop(name, None)
        if process is not None:
            del self._by_slot[process[0]]
        return process

    def _forget_dead(self) -> None:
        living = set(self.proxies.values())
        for process in [process for process in self._globals if process not in living][: REMEMBERED // 2]:
            del self._globals[process]


def names_in(kind: int, payload: bytes) -> tuple[list[Process], list[tuple[int, int, int]]]:
    """The processes and the objects (entry, generation, bytes) that a record names."""
    if (at := _PROCESS_AT.get(kind)) is not None:
        slot, generation = _NAMES.unpack_from(payload, at)
        return [(slot, generation)], []
    return _native.names_in(kind, payload)


def rename_in(kind: int, payload: bytes, processes: list[Process], objects: list[tuple[int, int]]) -> bytes:
    """The record with other names in the same places."""
    if (at := _PROCESS_AT.get(kind)) is not None:
        return payload[:at] + _NAMES.pack(*processes[0]) + payload[at + _NAMES.size :]
    return _native.rename_in(kind, payload, processes, objects) if processes or objects else payload
