"""A NodePort without a segment: records are put in and looked at by the test."""

from __future__ import annotations

import contextlib
import os


class FakePort:
    """Knows slots, not rings; `peers` says who shares one with whom."""

    def __init__(self, slots: int = 50) -> None:
        self.segment_fd = os.memfd_create("fake-segment")
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.sent: list[tuple[tuple[int, int], int, bytes]] = []
        self.dead: list[tuple[int, int]] = []
        self.released: list[tuple[int, int]] = []
        self.peers: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.linked: set[tuple[int, int]] = set()
        """The dead whose slots a living peer still holds."""
        self.late: list[tuple[int, int, int, bytes]] = []
        """What mark_dead finds in the ring of the dead."""
        self.spillable = 0
        self.is_read = False
        self.largest_owner = 1
        self.gone: set[int] = set()
        """Entries of objects that were removed."""
        self.spill_error: OSError | None = None
        self.free_entries = 1
        self.is_disk_busy = False
        """Nothing that is asked of the disk is done."""
        self._tickets = 0
        self._spilled: list[tuple[int, str, int, int, str]] = []
        self._left = slots
        self._last_slot = 0
        self._inbox: list[tuple[int, int, int, bytes]] = []

    def publish(self, process: tuple[int, int], kind: int, payload: bytes = b"") -> None:
        self._inbox.append((*process, kind, payload))
        os.eventfd_write(self.event_fd, 1)

    def reserve_slot(self) -> tuple[int, int]:
        if not self._left:
            raise RuntimeError("this node has no room for another process")
        self._left -= 1
        self._last_slot += 1
        return (self._last_slot, 1)

    def linger(self, limit_ns: int) -> bool:
        return bool(self._inbox)

    def drain(self) -> list[tuple[int, int, int, bytes]]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.event_fd)
        inbox, self._inbox = self._inbox, []
        return inbox

    def send(self, slot: int, generation: int, kind: int, payload: bytes) -> bool:
        if (slot, generation) in self.dead:
            return False
        self.sent.append(((slot, generation), kind, payload))
        return True

    def take_objects(self, slot: int, generation: int) -> list[tuple[int, int]]:
        return []

    def take_ledger(self, slot: int, generation: int) -> list[object]:
        return []

    def mark_dead(self, slot: int, generation: int) -> list[tuple[int, int]]:
        self.dead.append((slot, generation))
        self._inbox += self.late
        self.late = []
        return self.peers.get((slot, generation), [])

    def release_slot(self, slot: int, generation: int) -> bool:
        if (slot, generation) in self.linked:
            return False
        self.released.append((slot, generation))
        self._left += 1
        return True

    def statistics(self) -> dict[str, int]:
        return {"arena_bytes": 1 << 30, "used_bytes": 1 << 29, "objects": 2, "slots_used": 3, "ring_blocks_used": 4}

    def begin_recording(self, folders: list[str], limit: int) -> None:
        """Nobody asks for the past."""

    def end_recording(self) -> None:
        pass

    def begin_spilling(self, folders: list[str], limit: int) -> None:
        assert folders and limit > 0
        self.spill_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def end_spilling(self) -> None:
        os.close(self.spill_fd)

    def ask_room(self, bytes: int) -> int:
        freed = 0 if self.spill_error is not None else min(self.spillable, max(bytes, 4096))
        self.spillable -= freed
        if self.spill_error is not None:
            return self._spill_done("disk_failed", 0, self.spill_error.errno or 0)
        return self._spill_done("done" if freed else "nothing", freed)

    def ask_restore(self, entry: int, generation: int) -> int:
        if entry in self.gone:
            return self._spill_done("gone", 0)
        fits = self.spillable == 0 and entry < 100
        return self._spill_done("done" if fits else "no_room", 4096)

    def take_spilled(self) -> list[tuple[int, str, int, int, str]]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.spill_fd)
        if self.is_disk_busy:
            return []
        done, self._spilled = self._spilled, []
        return done

    def _spill_done(self, code: str, size: int, error: int = 0) -> int:
        self._tickets += 1
        self._spilled.append((self._tickets, code, size, error, "/somewhere"))
        os.eventfd_write(self.spill_fd, 1)
        return self._tickets

    def has_entry(self) -> bool:
        return self.free_entries > 0

    def room_may_come(self, slot: int) -> bool:
        return self.is_read

    def largest_objects(self, count: int) -> list[tuple[int, int, int]]:
        return [(300 << 20, self.largest_owner, 2), (5 << 10, 40, 0)][:count]

    def close(self) -> None:
        os.close(self.segment_fd)
        os.close(self.event_fd)
