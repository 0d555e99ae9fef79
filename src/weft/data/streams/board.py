"""What a stream does while it runs, on the dashboard's page of weft.data; those longer than `AFTER_S`."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import weft
from weft.data.board import AFTER_S, PAGE, PUBLISH_S, make_room
from weft.util import board

if TYPE_CHECKING:
    from weft.data.streams.job import StageProgress

_numbers = itertools.count(1)


class StreamBoard:
    """Of one stream. Its times are seconds since the stream began."""

    def __init__(self) -> None:
        self._name = ""
        self._next_s = AFTER_S
        self._rate = board.Curve()
        self._last = (0.0, 0)

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._next_s

    def tell(self, now_s: float, state: str, stages: Sequence[StageProgress], figures: dict[str, Any]) -> None:
        self._next_s = now_s + PUBLISH_S
        events = stages[0].events_in if stages else 0
        before_s, before = self._last
        self._last = (now_s, events)
        rate = max(0, events - before) / max(now_s - before_s, 1e-9)
        self._rate.add(now_s, rate)
        with contextlib.suppress(weft.exceptions.WeftError, ValueError):  # a busy node: the next one comes soon
            if not self._name:
                self._name = f"stream {next(_numbers)} (pid {os.getpid()})"
                make_room(self._name)
            described = {"state": state, "seconds": now_s, "events_per_s": rate, "rate": self._rate.points, **figures}
            board.publish(PAGE, self._name, {**described, "stages": [_described(stage) for stage in stages]})

    def end(self, now_s: float, state: str, stages: Sequence[StageProgress], figures: dict[str, Any]) -> None:
        if self._name and weft.is_initialized():
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
