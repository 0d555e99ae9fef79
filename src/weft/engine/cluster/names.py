"""Which name here stands for which process of another node.

Runs in the daemon's thread. A proxy is made when its process is first named; its node is asked to tell of the death.
The native core keeps the same names, and those of dead proxies for a while, to translate records.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import _native
from weft.engine.state.events import Process
from weft.engine.wire.link_messages import GlobalProcess


class Names:
    """The proxies of this node."""

    def __init__(self, port: _native.NodePort, number: int, on_made: Callable[[GlobalProcess], None]) -> None:
        self._port = port
        self.number = number
        self._on_made = on_made
        self.proxies: dict[GlobalProcess, Process] = {}

    def joined(self, number: int) -> None:
        """This node has its number."""
        self.number = number
        self._port.set_node(number)

    def to_global(self, process: Process) -> GlobalProcess:
        return self._port.far_name(*process)

    def to_local(self, name: GlobalProcess) -> Process:
        """RuntimeError when every name is in use."""
        if name[0] == self.number:
            return name[1:]
        process = self.proxies.get(name)
        if process is None:
            process = self.proxies[name] = self._port.add_proxy(*name)
            self._on_made(name)
        return process

    def is_proxy(self, process: Process) -> bool:
        return self._port.is_proxy(process[0]) and self.proxies.get(self._port.far_name(*process)) == process

    def of_node(self, node: int) -> list[Process]:
        """The proxies of that node's processes."""
        return [process for name, process in self.proxies.items() if name[0] == node]

    def gone(self, name: GlobalProcess) -> Process | None:
        """That process is dead; its proxy, if there was one."""
        return self.proxies.pop(name, None)
