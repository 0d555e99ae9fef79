"""What Weft needs of a kind of device, and nothing more. `cuda` is one such module; the tests have a stand-in.

A driver is a module with a function `driver()`, and is named by that module's name in what processes tell each other.
Addresses are numbers that mean memory of a device, or of the host, in this process alone. A device is named by its
UUID, since its number depends on which ones a process may see.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast


class Driver(Protocol):
    """OSError when the device refuses; MemoryError from `allocate` when it is full."""

    def devices(self) -> list[str]:
        """Those that this process sees, in the order of their numbers."""

    def device_of(self, address: int) -> str: ...
    def total_bytes(self, device: str) -> int: ...
    def export(self, address: int) -> tuple[bytes, int, int]:
        """What opens the allocation in another process, where it begins here, and its size."""

    def open(self, device: str, handle: bytes) -> int:
        """Where another process's allocation begins in this one. An allocation is opened once; see `mappings`."""

    def close(self, device: str, base: int) -> None: ...
    def allocate(self, device: str, size: int) -> int: ...
    def free(self, device: str, address: int) -> None: ...
    def copy(self, device: str, to: int, source: int, size: int) -> None:
        """Within the device; done on return."""

    def read(self, device: str, host: int, source: int, size: int, lane: int) -> None:
        """Begin to copy to the host. Lanes work side by side, each in its order."""

    def write(self, device: str, to: int, host: int, size: int, lane: int) -> None:
        """Begin to copy from the host."""

    def wait(self, device: str, lane: int) -> None: ...
    def synchronize(self, device: str) -> None:
        """Until all that this process has asked of the device is done."""

    def pin(self, device: str, host: int, size: int) -> None:
        """Have the device read and write this memory of the host at full speed, until `unpin`."""

    def unpin(self, device: str, host: int) -> None: ...


def find(name: str) -> Driver:
    return cast(Driver, importlib.import_module(name).driver())
