"""What an execution did: of each stage the tasks, rows, bytes and seconds, and what was skipped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from weft.data.running import Report


@dataclass
class StageFigures:
    tasks: int = 0
    rows: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    steps: dict[str, list[float]] = field(default_factory=dict)
    """Of each step: seconds, rows."""
    first_at: float = 0.0
    last_at: float = 0.0

    @property
    def rows_per_s(self) -> float:
        return self.rows / max(self.seconds, 1e-9)


@dataclass
class Statistics:
    """Grows while the execution runs; `str()` of it is the report."""

    stages: dict[str, StageFigures] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    """How many rows or files were left out, by what left them out."""
    most_held_bytes: int = 0
    """The most that was finished and not yet taken at a time."""
    held_bytes: int = 0
    running: int = 0
    begun: float = field(default_factory=time.perf_counter)
    ended: float | None = None

    def add(self, name: str, report: Report) -> None:
        stage = self.stages.setdefault(name, StageFigures(first_at=time.perf_counter()))
        stage.tasks += 1
        stage.rows += report.rows
        stage.size_bytes += report.size_bytes
        stage.seconds += report.seconds
        stage.last_at = time.perf_counter()
        for step, seconds, rows in report.steps:
            sums = stage.steps.setdefault(step, [0.0, 0])
            sums[0] += seconds
            sums[1] += rows
        self.skip(report.skipped)

    def skip(self, counts: dict[str, int]) -> None:
        for what, count in counts.items():
            self.skipped[what] = self.skipped.get(what, 0) + count

    def held(self, size_bytes: int, running: int) -> None:
        self.held_bytes, self.running = size_bytes, running
        self.most_held_bytes = max(self.most_held_bytes, size_bytes)

    def finish(self) -> None:
        self.ended = time.perf_counter()

    def __str__(self) -> str:
        lines = []
        for name, stage in self.stages.items():
            lines.append(
                f"{name}: {stage.tasks} tasks, {stage.rows:,} rows, {stage.size_bytes / 2**20:.1f} MiB, "
                f"{stage.seconds:.3f} s of work, {stage.rows_per_s:,.0f} rows/s a CPU"
            )
            if len(stage.steps) > 1:
                lines += [f"    {step}: {sums[0]:.3f} s, {int(sums[1]):,} rows" for step, sums in stage.steps.items()]
        lines += [f"skipped by {what}: {count}" for what, count in self.skipped.items()]
        took = (self.ended or time.perf_counter()) - self.begun
        lines.append(f"{took:.3f} s in all; at most {self.most_held_bytes / 2**20:.1f} MiB waited to be taken")
        return "\n".join(lines)
