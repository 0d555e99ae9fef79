"""Allocations of other processes that this one has opened. CUDA opens each once, and several tensors lie in one."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from weft.devices import driver as drivers

_Key = tuple[str, str, bytes]


@dataclass
class _Mapping:
    base: int
    readers: int
    pid: int


_lock = threading.RLock()  # a value may be collected, and closed, while this thread opens another
_open: dict[_Key, _Mapping] = {}


def take(driver: str, device: str, handle: bytes) -> int:
    """Where the allocation begins here, until `give_back`."""
    key = driver, device, handle
    with _lock:
        mapping = _open.get(key)
        if mapping is None or mapping.pid != os.getpid():
            mapping = _open[key] = _Mapping(drivers.find(driver).open(device, handle), 0, os.getpid())
        mapping.readers += 1
        return mapping.base


def give_back(driver: str, device: str, handle: bytes) -> None:
    key = driver, device, handle
    with _lock:
        mapping = _open.get(key)
        if mapping is None or mapping.pid != os.getpid():  # a fork has its parent's values, and not its device
            return
        mapping.readers -= 1
        if not mapping.readers:
            del _open[key]
            drivers.find(driver).close(device, mapping.base)


def count() -> int:
    with _lock:
        return len(_open)
