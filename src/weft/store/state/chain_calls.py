"""What callers ask of a client of the control store, what it tells them, and what it keeps of each call. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from weft.store.state.chain_events import Event, Instruction
from weft.store.state.chain_messages import ReadRequest, WriteRequest
from weft.store.state.chain_rows import Key, Write

LONGEST_RETRIES = 8
SLOWEST_BYTES_S = 16 << 20
"""What is large may take so much longer."""


class WriteAsked(Event, frozen=True):
    """Completed with True, or False when a row that must be absent is there."""

    ticket: int
    batch: Sequence[Write]
    now: float
    deadline: float


class ReadAsked(Event, frozen=True):
    """Completed with the values, None where there is no row."""

    ticket: int
    keys: Sequence[Key]
    now: float
    deadline: float


class ScanAsked(Event, frozen=True):
    """Completed with the rows, in the order of their keys."""

    ticket: int
    table: str
    prefix: bytes
    now: float
    deadline: float


class SubscribeAsked(Event, frozen=True):
    """Completed with None once every change from then on will be told (`TellChanges`)."""

    ticket: int
    table: str
    prefix: bytes
    now: float
    deadline: float


class SubscriptionEnded(Event, frozen=True):
    ticket: int


class Complete(Instruction, frozen=True):
    ticket: int
    result: object


class Fail(Instruction, frozen=True):
    ticket: int
    reason: str


class TellChanges(Instruction, frozen=True):
    """To whoever subscribed with this ticket: (key, new value or None)."""

    ticket: int
    changes: list[tuple[bytes, bytes | None]]


class Call:
    """What a caller waits for, in parts by shard."""

    __slots__ = ("deadline", "parts", "result", "ticket")

    def __init__(self, ticket: int, parts: int, result: list[object], deadline: float) -> None:
        self.ticket = ticket
        self.parts = parts
        self.result = result
        self.deadline = deadline


class Request:
    """One message that awaits its answer."""

    __slots__ = ("_bytes", "_retries", "calls", "message", "sent_at", "sent_to")

    def __init__(self, message: WriteRequest | ReadRequest, calls: list[tuple[Call, list[int]]], size: int = 0) -> None:
        self.message = message
        self._bytes = size
        self._retries = 1
        self.calls = calls
        """Each with the places in its result that its part of the answer belongs to."""
        self.sent_to = ""
        self.sent_at = 0.0

    def is_late(self, now: float, retry_s: float) -> bool:
        return bool(self.sent_to) and now - self.sent_at >= self._retries * retry_s + self._bytes / SLOWEST_BYTES_S

    def repeat(self) -> None:
        self.sent_to = ""
        self._retries = min(2 * self._retries, LONGEST_RETRIES)


class ShardCalls:
    """What goes to one shard."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: deque[tuple[Call, Sequence[Write]]] = deque()
        self.writing: Request | None = None
        self.to_read: list[tuple[Call, list[int], list[Key]]] = []
        self.reading: dict[int, Request] = {}
