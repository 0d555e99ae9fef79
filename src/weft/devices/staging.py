"""Blocks through memory of the host, for who cannot open them: chunk by chunk through a ring of shared memory.

The reader makes the ring and hands it over. Both ends have their device write and read it directly. While one chunk is
read off the holder's device, the one before it is written to the reader's.

The holder sends the number of each slot that it has filled, the reader sends it back when the slot is free again.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

from weft.devices import driver as drivers
from weft.devices.blocks import Block

SLOTS = 4
SLOT_BYTES = 16 << 20
_NUMBER = 2


class Ring:
    """Mapped; `pinned` for each device that reads or writes it."""

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, SLOTS * SLOT_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._pins: set[tuple[str, str]] = set()

    def slot(self, number: int) -> int:
        return self.address + number * SLOT_BYTES

    def pin(self, driver: str, device: str) -> None:
        if (driver, device) not in self._pins and not self._pins:
            drivers.find(driver).pin(device, self.address, SLOTS * SLOT_BYTES)
            self._pins.add((driver, device))

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for driver, device in self._pins:
            drivers.find(driver).unpin(device, self.address)
        self._pins.clear()


def new_ring() -> int:
    """A file descriptor."""
    file = os.memfd_create("weft-ring", os.MFD_CLOEXEC)
    os.ftruncate(file, SLOTS * SLOT_BYTES)
    return file


def _chunks(blocks: list[Any]) -> Iterator[tuple[int, int, int]]:
    """(number of the block, where in it, how many bytes); the same at both ends."""
    for number, block in enumerate(blocks):
        for at in range(0, block.size, SLOT_BYTES):
            yield number, at, min(SLOT_BYTES, block.size - at)


def send(reader: socket.socket, ring: Ring, blocks: list[Block]) -> None:
    """The holder's end; returns when the reader has taken all. OSError when it is gone."""
    free = deque(range(SLOTS))
    filling: deque[tuple[int, Block]] = deque()
    try:
        for number, at, size in _chunks(blocks):
            block = blocks[number]
            while not free:
                if filling:
                    _hand_over(reader, filling)
                if not free and (not filling or _has_answer(reader)):
                    free.append(_take(reader))
            slot = free.popleft()
            ring.pin(block.driver, block.device)
            drivers.find(block.driver).read(block.device, ring.slot(slot), block.address + at, size, slot)
            filling.append((slot, block))
            if len(filling) == SLOTS // 2:
                _hand_over(reader, filling)
        while filling:
            _hand_over(reader, filling)
        while len(free) < SLOTS:
            free.append(_take(reader))
    finally:
        for slot, block in filling:
            drivers.find(block.driver).wait(block.device, slot)


def _hand_over(reader: socket.socket, filling: deque[tuple[int, Block]]) -> None:
    slot, block = filling[0]
    drivers.find(block.driver).wait(block.device, slot)
    filling.popleft()
    reader.send(slot.to_bytes(_NUMBER, "little"))


def _has_answer(reader: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(reader.recv(_NUMBER, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


def _take(connection: socket.socket) -> int:
    packet = connection.recv(_NUMBER)
    if not packet:
        raise ConnectionResetError("the other end of a copy is gone")
    return int.from_bytes(packet, "little")


def receive(holder: socket.socket, ring: Ring, blocks: list[Block]) -> None:
    """The reader's end: fills its own blocks. ConnectionResetError when the holder is gone."""
    emptying: deque[tuple[int, Block]] = deque()
    try:
        for number, at, size in _chunks(blocks):
            block = blocks[number]
            slot = _take(holder)
            if not block.device:
                ctypes.memmove(block.address + at, ring.slot(slot), size)
                holder.send(slot.to_bytes(_NUMBER, "little"))
                continue
            ring.pin(block.driver, block.device)
            drivers.find(block.driver).write(block.device, block.address + at, ring.slot(slot), size, slot)
            emptying.append((slot, block))
            if len(emptying) == SLOTS // 2:
                _give_back(holder, emptying)
        while emptying:
            _give_back(holder, emptying)
    finally:
        for slot, block in emptying:
            drivers.find(block.driver).wait(block.device, slot)


def _give_back(holder: socket.socket, emptying: deque[tuple[int, Block]]) -> None:
    slot, block = emptying[0]
    drivers.find(block.driver).wait(block.device, slot)
    emptying.popleft()
    holder.send(slot.to_bytes(_NUMBER, "little"))
