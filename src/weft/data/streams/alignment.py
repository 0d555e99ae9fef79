"""Barriers of a checkpoint, aligned: the snapshot has what came before the barrier on every input, nothing after. Pure.

ALI-1 After a barrier on one input, what follows on it waits until the barrier has come on all inputs that go on.
ALI-2 A snapshot is taken once a barrier, between the last item before it and the first after it of every input.
ALI-3 Items of one input keep their order, and none is lost or given twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Process:
    channel: str
    item: Any


@dataclass(frozen=True)
class Snapshot:
    number: int


@dataclass(frozen=True)
class Ended:
    """Every input has ended."""


@dataclass(frozen=True)
class Barrier:
    number: int


@dataclass(frozen=True)
class End:
    """The last item of an input."""


@dataclass
class Alignment:
    """The inputs of one operator."""

    open: set[str]
    blocked: set[str] = field(default_factory=set)
    waiting: dict[str, deque[Any]] = field(default_factory=dict)
    number: int | None = None
    """Of the barrier that some inputs have reached and others have not."""

    @classmethod
    def of(cls, channels: list[str]) -> Alignment:
        return cls(set(channels))

    def held(self, channel: str) -> int:
        """How many items of an input wait for the barrier to come on the others."""
        return len(self.waiting.get(channel, ()))

    def arrived(self, channel: str, item: Any) -> Iterator[Process | Snapshot | Ended]:
        """What is to be done, in order, now that an item has come."""
        if channel in self.blocked:
            self.waiting.setdefault(channel, deque()).append(item)
            return
        if isinstance(item, Barrier):
            if self.number is not None and item.number != self.number:
                raise ValueError(f"input {channel} sent barrier {item.number} while {self.number} is being aligned")
            self.number = item.number
            self.blocked.add(channel)
        elif isinstance(item, End):
            self.open.discard(channel)
        else:
            yield Process(channel, item)
            return
        yield from self._settled()

    def _settled(self) -> Iterator[Process | Snapshot | Ended]:
        if self.number is not None and self.blocked >= self.open:
            number, self.number = self.number, None
            yield Snapshot(number)
            released, self.waiting = self.waiting, {}
            self.blocked = set()
            for channel, items in released.items():
                for item in items:
                    yield from self.arrived(channel, item)
        elif not self.open and self.number is None:
            yield Ended()
