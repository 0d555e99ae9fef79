"""Blocks that were taken off a device to make room: their bytes are objects of the node's object memory, from where
they may go on to its disk."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from weft import _native
from weft.devices import driver as drivers
from weft.devices.allocation import Allocation
from weft.devices.blocks import Block


@dataclass(frozen=True)
class SpilledBlock:
    driver: str
    device: str
    size: int
    bytes: Any
    """The ref."""

    @classmethod
    def of(cls, block: Block) -> SpilledBlock:
        if not block.size:
            return cls(block.driver, block.device, 0, None)
        driver, view = drivers.find(block.driver), memoryview(_native.allocate(block.size))
        driver.read(block.device, _address(view), block.address, block.size, 0)
        driver.wait(block.device, 0)
        return cls(block.driver, block.device, block.size, _native.put(view))

    def restore(self) -> Block:
        if not self.size:
            return Block(self.driver, self.device, 0, 0, None)
        allocation = allocate(self.driver, self.device, self.size)
        driver, view = drivers.find(self.driver), _native.get(self.bytes, -1.0, True)
        driver.write(self.device, allocation.address, _address(view), self.size, 0)
        driver.wait(self.device, 0)
        return Block(self.driver, self.device, allocation.address, self.size, allocation)


def allocate(driver: str, device: str, size: int) -> Allocation:
    """Of a device whose frameworks may have kept memory that they do not use."""
    try:
        return Allocation(driver, device, size)
    except MemoryError:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            raise
        torch.cuda.empty_cache()
        return Allocation(driver, device, size)


def _address(view: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
