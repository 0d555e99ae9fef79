"""One trial: a configuration, where it stands and what it reported last. Data only; `TrialTable` moves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weft.tune.errors import TuneError

__all__ = ["ERROR", "PAUSED", "PENDING", "RUNNING", "TERMINATED", "SavedCheckpoint", "Trial", "TrialTable"]

PENDING: Final = "PENDING"
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
TERMINATED: Final = "TERMINATED"
ERROR: Final = "ERROR"

_MOVES = {
    PENDING: {RUNNING, TERMINATED},
    RUNNING: {PENDING, PAUSED, TERMINATED, ERROR},
    PAUSED: {RUNNING, TERMINATED},
    TERMINATED: set(),
    ERROR: {PENDING},
}


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that lies in the experiment's storage."""

    path: str
    """Relative to the experiment's folder."""
    iteration: int
    time_total_s: float
    totals: Mapping[str, float] = field(default_factory=dict)
    """Sums that the trial's process carries on, such as timesteps_total."""


@dataclass(slots=True, eq=False)
class Trial:
    """What schedulers and callbacks see. `config` is replaced as a whole when a scheduler changes it."""

    trial_id: str
    number: int
    trainable_name: str
    config: dict[str, Any]
    tag: str = ""
    """The searched part of the configuration, for people: `alpha=0.2,beta=1`."""
    status: str = PENDING
    resources: Any = None
    last_result: dict[str, Any] = field(default_factory=dict)
    best_value: float | None = None
    """The best value of the experiment's metric so far."""
    results_seen: int = 0
    checkpoint: SavedCheckpoint | None = None
    seen_iteration: int = 0
    """Results up to this one were handled; a restarted trial repeats those after its checkpoint."""
    owed: Any = None
    """A decision that the trial's process has not carried out yet."""
    incarnation: int = 0
    """How often it was started."""
    failures: int = 0
    crashes: int = 0
    error: str | None = None
    pid: int | None = None
    node: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status in (TERMINATED, ERROR)

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.number}" + (f"_{self.tag}" if self.tag else "")

    def __repr__(self) -> str:
        return f"Trial({self.trial_id}, {self.status}, {self.tag})"


class TrialTable:
    """All trials, and for each status those that are in it, oldest first. A move that makes no sense raises."""

    def __init__(self) -> None:
        self._trials: dict[str, Trial] = {}
        self._by_status: dict[str, dict[str, Trial]] = {status: {} for status in _MOVES}
        self.more_expected = True
        """Whether the search may still make trials."""

    def add(self, trial: Trial) -> None:
        if trial.trial_id in self._trials:
            raise TuneError(f"there is a trial {trial.trial_id} already")
        self._trials[trial.trial_id] = trial
        self._by_status[trial.status][trial.trial_id] = trial

    def move(self, trial: Trial, status: str) -> None:
        if status not in _MOVES[trial.status]:
            raise TuneError(f"trial {trial.trial_id} cannot go from {trial.status} to {status}")
        del self._by_status[trial.status][trial.trial_id]
        trial.status = status
        self._by_status[status][trial.trial_id] = trial

    def requeue_first(self, trial: Trial) -> None:
        """Back to PENDING, before all others: it has waited already."""
        self.move(trial, PENDING)
        waiting = self._by_status[PENDING]
        others = [(key, value) for key, value in waiting.items() if value is not trial]
        waiting.clear()
        waiting[trial.trial_id] = trial
        waiting.update(others)

    def __getitem__(self, trial_id: str) -> Trial:
        return self._trials[trial_id]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def __len__(self) -> int:
        return len(self._trials)

    def count(self, status: str) -> int:
        return len(self._by_status[status])

    def counts(self) -> dict[str, int]:
        return {status: len(trials) for status, trials in self._by_status.items() if trials}

    def of(self, status: str) -> Iterator[Trial]:
        """Those in a status, the one that has been in it longest first."""
        return iter(self._by_status[status].values())

    def first(self, status: str) -> Trial | None:
        return next(self.of(status), None)

    @property
    def someone_waits(self) -> bool:
        """Whether free resources would be used."""
        return self.more_expected or bool(self._by_status[PENDING]) or bool(self._by_status[PAUSED])

    @property
    def pending(self) -> Iterator[Trial]:
        return self.of(PENDING)

    @property
    def paused(self) -> Iterator[Trial]:
        return self.of(PAUSED)

    @property
    def running(self) -> Iterator[Trial]:
        return self.of(RUNNING)

    @property
    def live(self) -> Iterator[Trial]:
        """Those that have not finished."""
        for status in (RUNNING, PAUSED, PENDING):
            yield from self.of(status)
