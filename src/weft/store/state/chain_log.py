"""The last entries of a replica, without gaps: what a successor, a joining replica or a subscriber may still ask for.

Pure. All that the tail has not acknowledged is kept, and of what it has a bounded number of entries and bytes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from weft.store.state.chain_messages import Entry

KEPT_ENTRIES = 4096
KEPT_BYTES = 16 << 20
CHANGE_BYTES = 160
"""What a change takes in memory besides its key and value: most rows are smaller than that."""
TICK_BYTES = 1 << 20
"""What a slow network takes along between two ticks: after so many more what was sent is taken for lost."""
LONGEST_WAIT = 64


class EntryLog:
    """Entries `first` to `last`."""

    def __init__(self, last: int, kept_entries: int = KEPT_ENTRIES, kept_bytes: int = KEPT_BYTES) -> None:
        self._entries: deque[Entry] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._kept_entries = kept_entries
        self._kept_bytes = kept_bytes
        self.last = last

    @property
    def first(self) -> int:
        """The oldest that is here; one after the last when there is none."""
        return self.last - len(self._entries) + 1

    def append(self, entry: Entry) -> None:
        assert entry.seq == self.last + 1, f"entry {entry.seq} after {self.last}"
        size = size_of(entry)
        self._entries.append(entry)
        self._sizes.append(size)
        self._bytes += size + CHANGE_BYTES * len(entry.changes)
        self.last = entry.seq

    def bytes_after(self, seq: int) -> int:
        """Of all entries after that one."""
        return sum(itertools.islice(reversed(self._sizes), max(0, self.last - seq)))

    def reset(self, last: int) -> None:
        self._entries.clear()
        self._sizes.clear()
        self._bytes = 0
        self.last = last

    def has_after(self, seq: int) -> bool:
        """Whether every entry after that one is here."""
        return seq >= self.first - 1

    def after(self, seq: int) -> list[Entry]:
        """All entries after that one; `has_after` it."""
        return list(itertools.islice(reversed(self._entries), max(0, self.last - seq)))[::-1]

    def trim(self, through: int) -> None:
        """Entries up to that one need not be kept any longer than the limits say."""
        while (
            self._entries
            and self._entries[0].seq <= through
            and (len(self._entries) > self._kept_entries or self._bytes > self._kept_bytes)
        ):
            self._bytes -= self._sizes.popleft() + CHANGE_BYTES * len(self._entries.popleft().changes)


def size_of(entry: Entry) -> int:
    return sum(len(key) + len(value or b"") for _, key, value in entry.changes)


def split(entries: Sequence[Entry], most: int, most_bytes: int) -> list[list[Entry]]:
    """In pieces of at most so many, and so many bytes where it is not one alone.

    >>> [len(piece) for piece in split([Entry(seq, [("kv", b"", bytes(40))]) for seq in range(7)], 3, 100)]
    [2, 2, 2, 1]
    """
    pieces: list[list[Entry]] = []
    room = 0
    for entry in entries:
        size = size_of(entry)
        if not pieces or len(pieces[-1]) == most or size > room:
            pieces.append([])
            room = most_bytes
        pieces[-1].append(entry)
        room -= size
    return pieces


class Repeating:
    """Whether what was sent is to be sent again: it may be lost, or only slow. Each time it waits twice as long, as all
    that is sent again is in the way of what was sent before."""

    def __init__(self) -> None:
        self._progress: object = None
        self._ticks = 0
        self._wait = 0

    def is_due(self, progress: object, wait: int) -> bool:
        """At a tick. `wait`: so many ticks without progress are nothing unusual."""
        if progress != self._progress:
            self._progress, self._ticks, self._wait = progress, 0, wait
            return False
        self._ticks += 1
        if self._ticks < max(self._wait, wait):
            return False
        self._ticks, self._wait = 0, min(2 * max(self._wait, wait), LONGEST_WAIT)
        return True
