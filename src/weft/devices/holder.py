"""The holder's end: a process keeps the blocks that its values name until the last ref to each value is gone.

A value's holding has a mark, an object of the engine that this process owns and the value refers to. So the engine
counts who may still read it, over values in values, other nodes and deaths, and says when nobody can. Who reads the
blocks asks for them at a socket of this process; for as long as the socket is connected and the reader has not closed
the holding, the blocks stay on the device.

1. HOLD-1: a block is let go when the mark is freed, and not before, unless it is spilled.
2. HOLD-2: a block that somebody has open is not spilled.
3. HOLD-3: who asks must know the holding's token, and be of the same user.

One thread, started by the first holding, answers; copies to the host have a thread each. The socket has no name in the
file system.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import selectors
import socket
import struct
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

import msgspec

from weft import _native
from weft.devices import driver as drivers
from weft.devices import hooks, machine_id, staging
from weft.devices.blocks import Block
from weft.devices.reader import Named, open_holding
from weft.devices.spilled import SpilledBlock

PACKET_ENTRIES = 500
BUDGET_VARIABLE = "WEFT_DEVICE_MEMORY"
_BUDGET_SHARE = 0.5
"""Of a device's memory, that one process holds for objects before it spills the one that was read longest ago."""


class Holding:
    """The blocks of one value."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.token = secrets.token_bytes(16)
        self.blocks: list[Block | SpilledBlock] = []
        self.watched: list[Callable[[], bool]] = []
        self.mark: Any = _native.mark()
        self.name = self.mark.hex()
        _native.on_freed(self.mark, functools.partial(server.forget, self.token))
        self.lock = threading.Lock()

    def add(self, driver: str, address: int, size: int, keeper: Any) -> Any:
        found = drivers.find(driver)
        device = found.device_of(address) if size else found.devices()[0]
        self.blocks.append(Block(driver, device, address, size, keeper))
        return Named(self, len(self.blocks) - 1)

    def seal(self, watched: list[Callable[[], bool]]) -> None:
        self.watched = watched
        self._server.seal(self)

    def __reduce__(self) -> Any:
        return open_holding, (
            self._server.address,
            machine_id.of(),
            hooks.node_id(),
            PickleBuffer(self.token),
            self.mark,
        )

    def bytes_on(self) -> Counter[tuple[str, str]]:
        total: Counter[tuple[str, str]] = Counter()
        for block in self.blocks:
            if isinstance(block, Block):
                total[block.driver, block.device] += block.size
        return total

    def was_changed(self) -> bool:
        return any(changed() for changed in self.watched)

    def spill(self) -> None:
        with self.lock:
            if self.was_changed():
                return  # who reads it is told
            self.blocks = [SpilledBlock.of(block) if isinstance(block, Block) else block for block in self.blocks]
            self.watched.clear()

    def restore(self) -> list[Block]:
        with self.lock:
            blocks = [block if isinstance(block, Block) else block.restore() for block in self.blocks]
            self.blocks = list(blocks)
            return blocks


class _Exports:
    """Of one answer: frameworks lay many tensors into one allocation, and asking the driver takes time."""

    def __init__(self) -> None:
        self._known: list[tuple[str, int, int, bytes]] = []

    def entry(self, block: Block) -> tuple[str, str, bytes, int, int]:
        """(driver, device, handle, where in the allocation, size); no handle where the memory cannot be shared."""
        handle, base = self._export(block) if block.size else (b"", block.address)
        return block.driver, block.device, handle, block.address - base, block.size

    def _export(self, block: Block) -> tuple[bytes, int]:
        for driver, base, size, handle in reversed(self._known):
            if driver == block.driver and base <= block.address < base + size:
                return handle, base
        try:
            handle, base, size = drivers.find(block.driver).export(block.address)
        except OSError:  # memory of a kind that goes through the host
            return b"", block.address
        self._known.append((block.driver, base, size, handle))
        return handle, base


class Server:
    """All holdings of this process, and the thread that answers who reads them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.address = f"\0weft-blocks-{self.pid}-{secrets.token_hex(8)}"
        self._lock = threading.RLock()
        self._holdings: OrderedDict[bytes, Holding] = OrderedDict()
        """That read longest ago first."""
        self._readers: dict[socket.socket, Counter[bytes]] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.address)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._copies: set[threading.Thread] = set()
        self.spilled = 0
        self._thread = threading.Thread(target=self._run, name="weft-blocks", daemon=True)
        self._thread.start()

    # ---- what is held ----

    def hold(self) -> Holding:
        return Holding(self)

    def seal(self, holding: Holding) -> None:
        """All blocks of the value are known. What they are to hold is there: the device has done what it was asked."""
        for name, device in holding.bytes_on():
            drivers.find(name).synchronize(device)
        with self._lock:
            self._holdings[holding.token] = holding
        holding.mark = None  # from now on those count who have the value
        self._make_room()

    def forget(self, token: bytes) -> None:
        with self._lock:
            holding = self._holdings.pop(token, None)
        del holding  # its blocks go here, outside of the lock

    def find(self, token: bytes) -> Holding | None:
        with self._lock:
            holding = self._holdings.get(token)
            if holding is not None:
                self._holdings.move_to_end(token)
            return holding

    def rows(self) -> list[dict[str, Any]]:
        """One a holding, for people."""
        with self._lock:
            opened = self._opened()
            return [self._row(holding, opened[token]) for token, holding in self._holdings.items()]

    def _row(self, holding: Holding, readers: int) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "mark": holding.name,
            "blocks": len(holding.blocks),
            "drivers": sorted({block.driver for block in holding.blocks}),
            "devices": sorted({block.device for block in holding.blocks}),
            "device_bytes": holding.bytes_on().total(),
            "spilled_bytes": sum(block.size for block in holding.blocks if isinstance(block, SpilledBlock)),
            "readers": readers,
        }

    def _told(self, token: bytes) -> dict[str, Any]:
        """Its row, or nothing when it is gone. To be told of is not to be read."""
        with self._lock:
            holding = self._holdings.get(token)
            return {} if holding is None else self._row(holding, self._opened()[token])

    def _opened(self) -> Counter[bytes]:
        total: Counter[bytes] = Counter()
        for tokens in self._readers.values():
            total.update(tokens)
        return total

    def _make_room(self) -> None:
        kept: set[bytes] = set()
        while (holding := self._to_spill(kept)) is not None:
            holding.spill()
            kept.add(holding.token)
            self.spilled += 1

    def _to_spill(self, but: set[bytes]) -> Holding | None:
        with self._lock:
            held: Counter[tuple[str, str]] = Counter()
            for holding in self._holdings.values():
                held.update(holding.bytes_on())
            full = {key for key, size in held.items() if size > budget(*key)}
            opened = self._opened()
            for token, holding in list(self._holdings.items())[:-1]:  # the newest one has its turn
                if token not in but and not opened[token] and full & set(holding.bytes_on()):
                    return holding
            return None

    # ---- who reads ----

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._answer(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        reader, _ = self._listener.accept()
        credentials = reader.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            reader.close()
            return
        self._selector.register(reader, selectors.EVENT_READ)
        with self._lock:
            self._readers[reader] = Counter()

    def _answer(self, reader: socket.socket) -> None:
        try:
            packet, files, _, _ = socket.recv_fds(reader, hooks.PACKET_BYTES, 1)
        except OSError:
            packet, files = b"", []
        if not packet:
            self._selector.unregister(reader)
            with self._lock:
                del self._readers[reader]
            reader.close()
            return
        word, token = _request(packet)
        try:
            if word == "close":
                with self._lock:
                    self._readers[reader][token] -= 1
                    self._readers[reader] += Counter()
                return
            if word == "tell":
                reader.send(msgspec.msgpack.encode(self._told(token)))
                return
            holding = self.find(token)
            if holding is None:
                reader.send(msgspec.msgpack.encode(("gone", 0, [])))
            elif holding.was_changed():
                reader.send(msgspec.msgpack.encode(("changed", 0, [])))
            elif word == "open":
                self._open(reader, holding)
            elif word == "copy":
                self._begin_copies(reader, token, files.pop())
        except OSError:  # the reader is gone: its end of file comes next
            pass
        finally:
            for file in files:
                os.close(file)

    def _open(self, reader: socket.socket, holding: Holding) -> None:
        with self._lock:
            self._readers[reader][holding.token] += 1
        exports = _Exports()
        entries = [exports.entry(block) for block in holding.restore()]
        for first in range(0, max(1, len(entries)), PACKET_ENTRIES):
            reader.send(msgspec.msgpack.encode(("held", len(entries), entries[first : first + PACKET_ENTRIES])))
        self._make_room()

    def _begin_copies(self, reader: socket.socket, token: bytes, ring: int) -> None:
        """From now on the connection is for copies, on a thread of its own, until the reader closes it."""
        self._selector.unregister(reader)

        def copy() -> None:
            try:
                with contextlib.suppress(OSError):  # the reader is gone
                    self._copy(reader, token, ring)
            finally:
                os.close(ring)
                with self._lock:
                    self._readers.pop(reader, None)
                    self._copies.discard(threading.current_thread())
                reader.close()

        thread = threading.Thread(target=copy, name="weft-blocks-copy", daemon=True)
        with self._lock:
            self._copies.add(thread)
        thread.start()

    def _copy(self, reader: socket.socket, token: bytes, file: int) -> None:
        with staging.Ring(file) as ring:
            while (holding := self.find(token)) is not None:
                with self._lock:
                    self._readers[reader] = Counter({token: 1})
                staging.send(reader, ring, holding.restore())
                with self._lock:
                    self._readers[reader] = Counter()
                holding = None
                packet = reader.recv(hooks.PACKET_BYTES)
                if not packet:
                    return
                _, token = _request(packet)

    def close(self) -> None:
        """The session is over: who reads later is told that the blocks are gone."""
        with self._lock:
            copies, readers = list(self._copies), list(self._readers)
        self._wake.send(b"x")
        self._thread.join()
        for reader in readers:
            with contextlib.suppress(OSError):
                reader.shutdown(socket.SHUT_RDWR)
        for thread in copies:
            thread.join()
        for reader in readers:
            reader.close()
        for one in (self._listener, self._wake, self._woken):
            one.close()
        self._selector.close()
        with self._lock:
            self._holdings.clear()


def _request(packet: bytes) -> tuple[str, bytes]:
    """(word, token)."""
    return msgspec.msgpack.decode(packet, type=tuple[str, bytes])


def budget(driver: str, device: str) -> int:
    """Bytes of the device that this process holds for objects before it spills."""
    given = os.environ.get(BUDGET_VARIABLE, "")
    if given:
        if not given.isdecimal():
            raise ValueError(f"{BUDGET_VARIABLE} must be a number of bytes, but is {given!r}")
        return int(given)
    return int(drivers.find(driver).total_bytes(device) * _BUDGET_SHARE)


_lock = threading.Lock()


def server() -> Server:
    """This process's; made at the first need."""
    with _lock:
        found = running()
        if found is None:
            found = hooks.server = Server()
        return found


def running() -> Server | None:
    found: Server | None = hooks.server
    return found if found is not None and found.pid == os.getpid() else None


def end() -> None:
    with _lock:
        ended, hooks.server = running(), None
    if ended is not None:
        ended.close()
