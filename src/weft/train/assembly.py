"""Makes whole reports of what the ranks of one generation report: rank 0's, with all ranks' parts of its checkpoint.
Pure.

The n-th reports of all ranks belong together. A loop may report in rank 0 alone, so nobody is waited for that has never
reported, but for a moment.

1. ASM-1: reports come out in rank 0's order, each once.
2. ASM-2: one with a checkpoint comes out when every rank has given its part, or is known to give none: it reported
   without one, its loop has ended, or it has not reported at all while rank 0 went on to its next checkpoint or a
   moment has passed. Should such a part come after all, it comes out as late.
3. ASM-3: when the generation ends early, one with a part that is missing never comes out: half a checkpoint is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.train.worker import Report

__all__ = ["Assembly", "Whole"]

SILENT_S = 5.0
"""How long a rank that has not reported yet is waited for."""


@dataclass(frozen=True)
class Whole:
    """A report of rank 0, with the others' parts of its checkpoint by rank."""

    report: Report
    parts: Mapping[int, Report]
    is_late: bool = False
    """The report came out before: these parts came after all."""


@dataclass
class _Rank:
    reported: int = 0
    """How many reports it has begun."""
    coming: set[int] = field(default_factory=set)
    """Those of them whose part of the checkpoint is not here yet."""
    parts: dict[int, Report] = field(default_factory=dict)
    has_ended: bool = False
    is_lost: bool = False


class Assembly:
    def __init__(self, size: int) -> None:
        self._others = {rank: _Rank() for rank in range(1, size)}
        self._waiting: deque[tuple[Report, float]] = deque()
        """Of rank 0, with when they came."""
        self._out: dict[int, Report] = {}
        """Those with a checkpoint that have come out, by number."""
        self._late: list[Whole] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def took(self, rank: int, report: Report, now_s: float) -> None:
        if rank == 0:
            self._waiting.append((report, now_s))
            return
        other = self._others[rank]
        other.reported = max(other.reported, report.number + 1)
        if report.is_coming:
            other.coming.add(report.number)
        elif report.checkpoint is not None or report.packed is not None:
            other.coming.discard(report.number)
            if report.number in self._out:
                self._late.append(Whole(self._out[report.number], {rank: report}, is_late=True))
            else:
                other.parts[report.number] = report

    def ended(self, rank: int, is_lost: bool = False) -> None:
        """Its loop is over, and all that it has reported was taken."""
        if rank:
            self._others[rank].has_ended, self._others[rank].is_lost = True, is_lost

    def whole(self, now_s: float) -> list[Whole]:
        """Those that have become so."""
        found, self._late = self._late, []
        while self._waiting and all(self._is_settled(other, now_s) for other in self._others.values()):
            report, _ = self._waiting.popleft()
            if report.checkpoint is not None:
                self._out[report.number] = report
            given = {rank: one.parts.pop(report.number, None) for rank, one in self._others.items()}
            found.append(Whole(report, {rank: part for rank, part in given.items() if part is not None}))
        return found

    def _is_settled(self, other: _Rank, now_s: float) -> bool:
        """Whether the first of the reports that wait has what it needs of that rank."""
        report, came_s = self._waiting[0]
        if report.checkpoint is None:
            return True
        if report.number in other.coming:
            return False
        if other.reported > report.number:
            return True
        if other.has_ended:
            return not other.is_lost
        later = any(one.checkpoint is not None for one, _ in list(self._waiting)[1:])
        return other.reported == 0 and (later or now_s - came_s > SILENT_S)
