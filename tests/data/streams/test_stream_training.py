"""Training on a stream: every event is learned from once, and versions are published."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from stream_events import slowly

from waiting import wait_until
from weft import data

pytestmark = pytest.mark.usefixtures("shared_weft_session")


class Summing:
    """Learns the sum of all times, in which a lost or doubled event would show."""

    def __init__(self) -> None:
        self.total = 0.0

    def update(self, events: list[Any]) -> dict[str, float]:
        self.total += sum(time for time, _ in events)
        return {"size": len(events)}

    def state(self) -> float:
        return self.total

    def load(self, state: float) -> None:
        self.total = state


def test_versions_are_published_and_the_last_has_all_events(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    published: list[data.ModelVersion] = []
    stream = data.stream_from(slowly(1050, 1000, gate))
    with stream.train(
        Summing(), batch_size=100, publish_every=2, publish=published.append, checkpoint_every_s=0.05
    ) as job:
        early = job.wait_for_version(5, timeout_s=60)
        assert (early.updates, early.events) == (10, 1000)
        gate.touch()
        assert job.wait(60)
        assert job.latest is not None
        assert (job.latest.events, job.latest.state) == (1050, sum(range(1050)))
    numbers = [version.number for version in published]
    assert numbers == sorted(set(numbers)) and numbers[-1] == job.latest.number


def test_a_killed_learner_forgets_nothing_and_learns_nothing_twice(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    stream = data.stream_from(slowly(20_000, 15_000, gate)).filter(lambda event: True)
    with stream.train(Summing(), batch_size=64, publish_every=10, checkpoint_every_s=0.05) as training:
        for kill in range(2):
            before = training.job.checkpoints_completed
            wait_until(lambda before=before: training.job.checkpoints_completed > before)
            os.kill(training.job.pids()[-1], signal.SIGKILL)
            wait_until(lambda kill=kill: training.job.restarts > kill)
        gate.touch()
        assert training.wait(60)
        assert training.latest is not None
        assert (training.latest.events, training.latest.state) == (20_000, sum(range(20_000)))


def test_what_can_not_come_is_told() -> None:
    stream = data.stream_from(lambda: [(1.0, "a")])
    with stream.train(Summing()) as training, pytest.raises(RuntimeError, match="ended before version 7"):
        training.wait_for_version(7, timeout_s=60)
    with pytest.raises(ValueError, match="batch_size must be at least 1, but got 0"):
        stream.train(Summing(), batch_size=0)
