"""The last entries of a replica, without gaps: what a successor, a joining replica or a subscriber may still ask for.

Pure. All that the tail has not acknowledged is kept, and of what it has a bounded number of entries and bytes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from weft.engine.state.chain_messages import Entry

KEPT_ENTRIES = 4096
KEPT_BYTES = 16 << 20


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
        size = sum(len(key) + len(value or b"") for _, key, value in entry.changes)
        self._entries.append(entry)
        self._sizes.append(size)
        self._bytes += size
        self.last = entry.seq

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
            self._entries.popleft()
            self._bytes -= self._sizes.popleft()


def split(entries: Sequence[Entry], most: int) -> list[Sequence[Entry]]:
    """In pieces of at most so many."""
    return [entries[at : at + most] for at in range(0, len(entries), most)]
