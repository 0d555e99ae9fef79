"""What a stream does while it runs, on the dashboard's page of weft.data; those that take a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.data.board import PassingBoard
from weft.library.board import Curve

if TYPE_CHECKING:
    from weft.data.streams.job import StageProgress


class StreamBoard:
    """Of one stream. Its times are seconds since the stream began."""

    def __init__(self) -> None:
        self._board = PassingBoard("stream")
        self._rate = Curve()
        self._last = (0.0, 0)

    def is_due(self) -> bool:
        return self._board.is_due()

    def tell(self, now_s: float, state: str, stages: Sequence[StageProgress], figures: dict[str, Any]) -> None:
        events = stages[0].events_in if stages else 0
        before_s, before = self._last
        self._last = (now_s, events)
        rate = max(0, events - before) / max(now_s - before_s, 1e-9)
        self._rate.add(now_s, rate)
        described = {"state": state, "seconds": now_s, "events_per_s": rate, "rate": self._rate.points, **figures}
        self._board.show({**described, "stages": [_described(stage) for stage in stages]})

    def end(self, now_s: float, state: str, stages: Sequence[StageProgress], figures: dict[str, Any]) -> None:
        if self._board.name:
            self.tell(now_s, state, stages, figures)


def _described(stage: StageProgress) -> dict[str, Any]:
    return {
        "name": stage.name[:200],
        "parallelism": stage.parallelism,
        "events_in": stage.events_in,
        "events_out": stage.events_out,
        "events_per_s": stage.events_per_s,
        "late": stage.late,
        "watermark": stage.watermark,
        "busy_s": stage.busy_s,
    }
