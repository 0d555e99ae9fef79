"""What one side of a link must know to go on over another connection when the one that it had breaks.

Pure: no I/O, no clock. Each side counts the frames that it has received and says so now and then; what it has sent is
kept until the other side has confirmed it, and is sent again over the next connection as far as it did not arrive.

Invariants:
    RES-1  each counted frame is delivered once, in order, over however many connections.
    RES-2  no more is kept than is on its way, or was received since the last confirmation.
"""

from __future__ import annotations

import collections
from typing import TypeAlias

NAME_BYTES = 16
CONFIRMED_FRAMES = 64
CONFIRMED_BYTES = 256 << 10
"""So much is received before it is confirmed."""
Frame: TypeAlias = tuple[bytes | memoryview, ...]


class Resumption:
    """One side of a link that can be resumed."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        """Of the link, which both sides know; nobody else does."""
        self.received = 0
        """Frames, over all connections."""
        self._confirmed = 0
        """Of these, what the other side was told of."""
        self._unconfirmed_bytes = 0
        self._sent: collections.deque[Frame] = collections.deque()
        """Frames that the other side has not confirmed."""
        self._before = 0
        """Frames that were sent before those."""

    def sent(self, frame: Frame) -> None:
        self._sent.append(frame)

    def came(self, size: int) -> bool:
        """One more frame; whether it is time to confirm."""
        self.received += 1
        self._unconfirmed_bytes += size
        unconfirmed = self.received - self._confirmed
        return unconfirmed >= CONFIRMED_FRAMES or self._unconfirmed_bytes >= CONFIRMED_BYTES

    def confirm(self) -> int:
        """What to tell the other side: so many frames have come."""
        self._confirmed = self.received
        self._unconfirmed_bytes = 0
        return self.received

    def confirmed(self, count: int) -> None:
        """So many have arrived there. ValueError when that cannot be."""
        arrived = count - self._before
        if not 0 <= arrived <= len(self._sent):
            raise ValueError(
                f"{count} frames are said to have come, of {self._before + len(self._sent)} that were sent"
            )
        for _ in range(arrived):
            self._sent.popleft()
        self._before = count

    def unconfirmed(self) -> list[Frame]:
        """To be sent again, once the other side has said what has come."""
        return list(self._sent)
