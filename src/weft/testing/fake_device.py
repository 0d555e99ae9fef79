"""A stand-in for a device, in shared memory, with the calls and the manners of CUDA's: what a process has exported is
gone with it, an allocation is opened once, and memory has a limit. For tests of who holds what, where there is no GPU.

`FakeArray` is what a program passes around: an array that lies on it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.devices import driver as drivers
from weft.devices.blocks import Block, here

NAME = "weft.testing.fake_device"
HIDDEN = "WEFT_TEST_FAKE_DEVICES"
"""How many devices a process sees: 1 unless it is set."""
TOTAL_BYTES = 1 << 30


@dataclass
class _Memory:
    file: int
    memory: Any
    size: int


def _address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class FakeDriver:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.allocated: dict[int, _Memory] = {}
        self.opened: dict[int, Any] = {}
        self._handles: dict[int, bytes] = {}

    def devices(self) -> list[str]:
        return [f"fake-{number}" for number in range(int(os.environ.get(HIDDEN, "1")))]

    def device_of(self, address: int) -> str:
        return "fake-0"

    def total_bytes(self, device: str) -> int:
        return TOTAL_BYTES

    def used_bytes(self) -> int:
        return sum(memory.size for memory in self.allocated.values())

    def export(self, address: int) -> tuple[bytes, int, int]:
        for base, memory in self.allocated.items():
            if base <= address < base + memory.size:
                return f"{os.getpid()}:{memory.file}:{memory.size}".encode(), base, memory.size
        raise OSError(f"{address:#x} is in no allocation")

    def open(self, device: str, handle: bytes) -> int:
        pid, file, size = map(int, handle.split(b":"))
        if pid == os.getpid():
            raise OSError("an allocation of this process itself cannot be opened")
        if handle in self._handles.values():
            raise OSError("the allocation is open already")
        found = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
        try:
            memory = mmap.mmap(found, size)
        finally:
            os.close(found)
        base = _address(memory)
        self.opened[base], self._handles[base] = memory, handle
        return base

    def close(self, device: str, base: int) -> None:
        del self.opened[base], self._handles[base]

    def allocate(self, device: str, size: int) -> int:
        if self.used_bytes() + size > TOTAL_BYTES:
            raise MemoryError(f"device {device} has no room for {size} bytes")
        file = os.memfd_create("weft-fake-device", os.MFD_CLOEXEC)
        os.ftruncate(file, size)
        memory = mmap.mmap(file, size)
        self.allocated[_address(memory)] = _Memory(file, memory, size)
        return _address(memory)

    def free(self, device: str, address: int) -> None:
        os.close(self.allocated.pop(address).file)

    def copy(self, device: str, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def read(self, device: str, host: int, source: int, size: int, lane: int) -> None:
        ctypes.memmove(host, source, size)

    def write(self, device: str, to: int, host: int, size: int, lane: int) -> None:
        ctypes.memmove(to, host, size)

    def wait(self, device: str, lane: int) -> None:
        """Nothing is under way: copies are done at once."""

    synchronize = pin = unpin = lambda self, *_: None


_drivers: dict[int, FakeDriver] = {}


def driver() -> Any:
    return _drivers.setdefault(os.getpid(), FakeDriver())


class FakeArray:
    """Bytes on the device. What `array()` gives is the device's own memory."""

    def __init__(self, block: Block) -> None:
        self.block = block

    @classmethod
    def of(cls, values: Any) -> FakeArray:
        from weft.devices.allocation import Allocation

        data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        allocation = Allocation(NAME, "fake-0", data.nbytes)
        made = cls(Block(NAME, "fake-0", allocation.address, data.nbytes, allocation))
        made.array()[:] = data
        return made

    @classmethod
    def in_host_memory(cls, data: Any) -> FakeArray:
        """What a process that sees no device has read."""
        return cls(Block(NAME, "", data.ctypes.data, data.nbytes, data))

    def array(self) -> Any:
        memory: Any = (ctypes.c_ubyte * self.block.size).from_address(self.block.address)
        found = np.frombuffer(memory, np.uint8)
        memory.keeper = self.block
        return found

    @property
    def is_on_device(self) -> bool:
        return bool(self.block.device)

    def __reduce__(self) -> Any:
        collection = here.collection
        if collection is None:
            return FakeArray.of, (self.array().copy(),)
        block = self.block
        if not block.device:
            return FakeArray.in_host_memory, (self.array().copy(),)
        if not collection.takes_over:
            block = FakeArray.of(self.array()).block
        return FakeArray, (collection.add(NAME, block.address, block.size, block.keeper),)


def used_bytes() -> int:
    return int(driver().used_bytes())


def open_count() -> int:
    return len(drivers.find(NAME).opened)  # type: ignore[attr-defined]
