"""Event time: how far it has come. Pure.

A watermark t says that no event earlier than t is expected any more. A source's follows its latest event at the
distance of the delay that is allowed for; an operator's is the least of its inputs'.

WM-1 A watermark never goes back.
WM-2 An operator's is never ahead of any input that is neither idle nor ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BEGINNING = float("-inf")
END = float("inf")


@dataclass
class SourceWatermark:
    """Of one source, by the times of its events."""

    max_delay_s: float = 0.0
    latest: float = BEGINNING

    def observe(self, latest_of_batch: float) -> float:
        if latest_of_batch > self.latest:
            self.latest = latest_of_batch
        return self.latest - self.max_delay_s


@dataclass
class Watermarks:
    """Of an operator with several inputs."""

    channels: dict[str, float]
    idle: set[str] = field(default_factory=set)
    current: float = BEGINNING

    @classmethod
    def of(cls, channels: list[str]) -> Watermarks:
        return cls(dict.fromkeys(channels, BEGINNING))

    def advanced(self, channel: str, watermark: float) -> float | None:
        """An input has come so far: the operator's new watermark, None if it is what it was."""
        if channel not in self.channels:
            raise KeyError(f"there is no input {channel!r}, only {', '.join(self.channels)}")
        self.idle.discard(channel)
        if watermark > self.channels[channel]:
            self.channels[channel] = watermark
        return self._moved()

    def fell_idle(self, channel: str) -> float | None:
        """An input gives nothing for the time being: the others need not wait for it."""
        self.idle.add(channel)
        return self._moved()

    def _moved(self) -> float | None:
        counted = [mark for channel, mark in self.channels.items() if channel not in self.idle]
        least = min(counted, default=self.current)
        if least <= self.current:
            return None
        self.current = least
        return least
