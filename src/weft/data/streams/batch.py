"""What travels between the operators of a stream: events in batches, with their times and keys, and a watermark."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.data.streams.watermarks import BEGINNING


class Batch(NamedTuple):
    """Lists of one length. `times` and `keys` are None where the events have none."""

    values: list[Any]
    times: list[float] | None = None
    keys: list[Any] | None = None
    watermark: float = BEGINNING
    idle: bool = False
    """Its sender gives nothing for the time being; then there are no events."""

    def with_values(self, values: list[Any]) -> Batch:
        return Batch(values, self.times, self.keys, self.watermark)

    def at(self, positions: list[int]) -> Batch:
        """Only the events at these positions."""
        values, times, keys = self.values, self.times, self.keys
        return Batch(
            [values[i] for i in positions],
            None if times is None else [times[i] for i in positions],
            None if keys is None else [keys[i] for i in positions],
            self.watermark,
        )
