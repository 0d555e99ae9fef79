"""The reader's end: what a value names of a device's memory, opened where it lies, or brought here.

1. READ-1: what was opened stays open, and the holding's mark referred to, until the last tensor over it is gone and the
   device has done what this process asked of it.
2. READ-2: `_native.DeviceLost` is raised when the holder has ended, so that the engine makes the value again.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import threading
from typing import Any, cast

import msgspec
import numpy as np

from weft._native import DeviceLost
from weft.devices import driver as drivers
from weft.devices import hooks, machine_id, mappings, staging
from weft.devices.blocks import Block, here
from weft.devices.spilled import allocate

NO_SHARING = "WEFT_DEVICE_IPC"
"""Set to 0, blocks go through the host, as between machines. For those whose container forbids it, and for tests."""
GONE = (
    "the process that held this value in memory of a device has ended, or has left its session: its bytes are gone. "
    "What a task returned is made again; what was put is not."
)
_CHANGED = (
    "a tensor that a task or a method returned was written to afterwards, by who returned it. A returned tensor stays "
    "on its device without a copy, for those who read it: return tensor.clone(), or weft.put(tensor), which copies it "
    "there, and write to your own."
)


class Named:
    """Stands for a block in the pickle."""

    def __init__(self, holding: Any, number: int) -> None:
        self._holding, self._number = holding, number

    def __reduce__(self) -> Any:
        return block_of, (self._holding, self._number)


def open_holding(address: str, machine: str, node: str, token: Any, mark: Any) -> Any:
    """Called by the unpickler, once for a value."""
    token = bytes(token)
    if here.seeks:
        whereabouts = importlib.import_module("weft.devices.whereabouts")
        raise whereabouts.Whereabouts(address, machine, node, token)
    own = hooks.server
    if own is not None and own.address == address and own.pid == os.getpid():
        return _Own(own, token)
    if machine != machine_id.of():
        far = importlib.import_module(hooks.FAR)
        return _Brought(_to_own_device(far.fetch(node, address, token, mark)))
    opened = _Opened(address, token, mark)
    if opened.can_share():
        return opened
    return _Brought(bring(address, token, [_own_block(*entry) for entry in opened.places()]))


def block_of(opened: Any, number: int) -> Block:
    block = cast(Block, opened.block(number))
    if not here.copies or not block.device or not block.size:
        return block
    allocation = allocate(block.driver, block.device, block.size)
    drivers.find(block.driver).copy(block.device, allocation.address, block.address, block.size)
    return Block(block.driver, block.device, allocation.address, block.size, allocation)


class _Own:
    """This process is the holder."""

    def __init__(self, server: Any, token: bytes) -> None:
        holding = server.find(token)
        if holding is None:
            raise DeviceLost(GONE)
        if holding.was_changed():
            raise ValueError(_CHANGED)
        self._blocks: list[Block] = holding.restore()

    def block(self, number: int) -> Block:
        return self._blocks[number]


class _Brought:
    """Copies of this process's own."""

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks

    def block(self, number: int) -> Block:
        return self._blocks[number]


class _Connection:
    """To one holder. Requests and answers in turn; closing needs no answer, and may come at any moment."""

    def __init__(self, address: str) -> None:
        self.pid = os.getpid()
        self.socket = connect(address)
        self.lock = threading.Lock()
        self.is_broken = False

    def request(self, word: str, token: bytes) -> list[tuple[str, str, bytes, int, int]]:
        with self.lock:
            try:
                self.socket.send(msgspec.msgpack.encode((word, token)))
                return entries_of(self.socket)
            except OSError as error:
                self.is_broken = True
                raise DeviceLost(GONE) from error

    def close_holding(self, token: bytes) -> None:
        if self.pid == os.getpid():
            with contextlib.suppress(OSError):  # the holder has ended, and knows of no reader any more
                self.socket.send(msgspec.msgpack.encode(("close", token)))


def connect(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.connect(address)
    except OSError as error:
        made.close()
        raise DeviceLost(GONE) from error
    return made


def entries_of(answers: socket.socket) -> list[tuple[str, str, bytes, int, int]]:
    entries: list[tuple[str, str, bytes, int, int]] = []
    while True:
        packet = answers.recv(hooks.PACKET_BYTES)
        if not packet:
            raise ConnectionResetError("the holder has ended")
        what, count, some = msgspec.msgpack.decode(packet, type=tuple[str, int, list[tuple[str, str, bytes, int, int]]])
        if what == "gone":
            raise DeviceLost(GONE)
        if what == "changed":
            raise ValueError(_CHANGED)
        entries += some
        if len(entries) >= count:
            return entries


_connections: dict[str, _Connection] = {}
_lock = threading.Lock()


def _connection(address: str) -> _Connection:
    with _lock:
        known = _connections.get(address)
        if known is None or known.pid != os.getpid():
            known = _connections[address] = _Connection(address)
        return known


def _forget(address: str) -> None:
    with _lock:
        known, copier = _connections.pop(address, None), _copiers.pop(address, None)
    if known is not None and known.pid == os.getpid():
        known.socket.close()
    if copier is not None and copier.pid == os.getpid():
        copier.close()


class _Opened:
    """A holding of another process of this machine."""

    def __init__(self, address: str, token: bytes, mark: Any) -> None:
        self._mark = mark
        self._token = token
        self._taken: list[tuple[str, str, bytes]] = []
        self._connection: _Connection | None = None
        connection = _connection(address)
        try:
            self.entries = connection.request("open", token)
        except DeviceLost:
            if connection.is_broken:
                _forget(address)
            raise
        self._connection = connection

    def places(self) -> list[tuple[str, str, int]]:
        return [(driver, device, size) for driver, device, _, _, size in self.entries]

    def can_share(self) -> bool:
        """Opens all of it, or nothing."""
        if os.environ.get(NO_SHARING) == "0":
            return False
        for driver, device, handle, _, size in self.entries:
            if size and (not handle or device not in drivers.find(driver).devices()):
                return False
        bases: dict[tuple[str, str, bytes], int] = {}
        for driver, device, handle, _, size in self.entries:
            key = (driver, device, handle)
            if size and key not in bases:
                try:
                    bases[key] = mappings.take(*key)
                except OSError:  # a container that forbids it, say
                    return False
                self._taken.append(key)
        self._bases = bases
        return True

    def block(self, number: int) -> Block:
        driver, device, handle, offset, size = self.entries[number]
        if not size:
            return Block(driver, device, 0, 0, None)
        return Block(driver, device, self._bases[driver, device, handle] + offset, size, self)

    def __del__(self) -> None:
        connection = self._connection
        if connection is None or sys.is_finalizing() or connection.pid != os.getpid():
            return
        for driver, device in {key[:2] for key in self._taken}:
            drivers.find(driver).synchronize(device)
        for key in self._taken:
            mappings.give_back(*key)
        connection.close_holding(self._token)


def bring_to_host(address: str, token: bytes) -> list[Block]:
    """Of a holder on this machine, to memory of the host."""
    opened = _Opened(address, token, None)
    return bring(address, token, [_host_block(driver, size) for driver, _, size in opened.places()])


def bring(address: str, token: bytes, blocks: list[Block]) -> list[Block]:
    """Through the host, into these blocks of this process's own."""
    copier = _copier(address)
    try:
        copier.copy(token, blocks)
    except OSError as error:
        _forget(address)
        raise DeviceLost(GONE) from error
    return blocks


class _Copier:
    """A connection for copies from one holder, and the ring that they go through: to pin memory takes longer than to
    copy it, so both are kept."""

    def __init__(self, address: str) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.socket = connect(address)
        self._file = staging.new_ring()
        self._ring = staging.Ring(self._file)
        self._is_known = False

    def copy(self, token: bytes, blocks: list[Block]) -> None:
        with self.lock:
            packet = msgspec.msgpack.encode(("copy", token))
            if self._is_known:
                self.socket.send(packet)
            else:
                socket.send_fds(self.socket, [packet], [self._file])
                self._is_known = True
            staging.receive(self.socket, self._ring, blocks)

    def close(self) -> None:
        self.socket.close()
        os.close(self._file)
        self._ring.close()


_copiers: dict[str, _Copier] = {}


def _copier(address: str) -> _Copier:
    with _lock:
        known = _copiers.get(address)
        if known is None or known.pid != os.getpid():
            known = _copiers[address] = _Copier(address)
        return known


def _own_block(driver: str, device: str, size: int) -> Block:
    """On this process's device, or in memory of the host where it sees none."""
    seen = drivers.find(driver).devices()
    if seen and size:
        where = device if device in seen else seen[0]
        allocation = allocate(driver, where, size)
        return Block(driver, where, allocation.address, size, allocation)
    return _host_block(driver, size)


def _host_block(driver: str, size: int) -> Block:
    memory = np.empty(size, np.uint8)
    return Block(driver, "", memory.ctypes.data, size, memory)


def _to_own_device(blocks: list[Block]) -> list[Block]:
    """From memory of the host."""
    own = []
    for block in blocks:
        to = _own_block(block.driver, "", block.size)
        if to.device:
            driver = drivers.find(to.driver)
            driver.write(to.device, to.address, block.address, block.size, 0)
            driver.wait(to.device, 0)
        own.append(to if to.device else block)
    return own


def end() -> None:
    """The session is over. What is open stays so; its holders learn of it when this process closes it, or ends."""
    with _lock:
        addresses = {*_connections, *_copiers}
    for address in addresses:
        _forget(address)
