"""Blocks: what a value names of a device's memory, as who stores it and who reads it see them.

A value that is stored has one holding for all blocks in it (`holder.py`); the pickle names the holding once, and each
block by its number. Who reads the value opens the holding (`reader.py`) and takes the blocks.

1. BLOCK-1: what a task returns is taken over as it is; everything else is copied within the device, so that who stored
   it may go on writing.
2. BLOCK-2: blocks are for the engine's own pickler alone. Any other finds no collection and copies to the host.

Runs in drivers and workers, on the thread that stores or reads the value.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

FEWEST_BYTES = 256 * 1024
"""What is smaller travels in the value, through the host."""


@dataclass(frozen=True)
class Block:
    """So many bytes at an address; `device` is "" for memory of the host. `keeper` is what keeps them, or, where this
    process holds them itself, the very object that was stored."""

    driver: str
    device: str
    address: int
    size: int
    keeper: Any


class Collection:
    """The blocks of one value that is being stored."""

    def __init__(self, takes_over: bool, device: str | None, hold: Callable[[], Any]) -> None:
        self.takes_over = takes_over
        self.device = device
        """Where `put(device=...)` wants all of it; None leaves it where it is."""
        self.holding: Any = None
        self._hold = hold
        self._watched: list[Callable[[], bool]] = []

    def add(self, driver: str, address: int, size: int, keeper: Any) -> Any:
        """What stands in the pickle for the block; its `__reduce__` gives a Block to who reads it."""
        if self.holding is None:
            self.holding = self._hold()
        return self.holding.add(driver, address, size, keeper)

    def watch(self, changed: Callable[[], bool]) -> None:
        """Who stored a block that was taken over must not write to it any more; this tells whether they did."""
        self._watched.append(changed)

    def seal(self) -> bool:
        """Whether there is a holding. All blocks are known, and the pickle is made."""
        if self.holding is None:
            return False
        self.holding.seal(self._watched)
        return True


class _Thread(threading.local):
    collection: Collection | None = None
    copies = False
    """Whether who reads a value wants blocks of its own, to write to."""
    seeks = False
    """Whether who reads a value only wants to know where its blocks lie (`whereabouts.py`)."""
    device: str | None = None


here = _Thread()


@contextlib.contextmanager
def placing(device: str) -> Iterator[None]:
    """Of values that this thread stores meanwhile."""
    before, here.device = here.device, device
    try:
        yield
    finally:
        here.device = before
