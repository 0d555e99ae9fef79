"""What a trial scheduler is: which trials go on, pause, stop or change, and which runs next.

>>> class StopBad(TrialScheduler):
...     def on_result(self, trial, result):
...         return STOP if result["loss"] > 10 else CONTINUE

A scheduler has no I/O and no clock, and its randomness is seeded, so that the same events in the same order lead to the
same state: an experiment is restored by replaying them (see `weft.tune.ledger`).

A trial may run ahead of the scheduler: its process sends results without waiting until one reaches the trial's
*milestone*, and waits there for the decision. `milestone` says where that is. The default waits at every result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.library.checks import above, one_of
from weft.library.lookup import value_at
from weft.tune.errors import TuneError
from weft.tune.trial import PAUSED, PENDING, Trial, TrialTable

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = [
    "ALWAYS",
    "CONTINUE",
    "NEVER",
    "PAUSE",
    "SAVE",
    "STOP",
    "Decision",
    "Exploit",
    "FIFOScheduler",
    "Milestone",
    "Restart",
    "TimeSharingScheduler",
    "TrialScheduler",
]

CONTINUE: Final = "CONTINUE"
PAUSE: Final = "PAUSE"
"""Save a checkpoint and give the resources back; `choose_trial_to_run` says when it goes on."""
STOP: Final = "STOP"
SAVE: Final = "SAVE"
"""Save a checkpoint and go on."""


@dataclass(frozen=True, slots=True)
class Exploit:
    """Go on from another trial's last checkpoint, with another configuration."""

    donor: Trial
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restart:
    """Save, then go on from there with another configuration or other resources, as soon as they are free."""

    config: dict[str, Any] | None = None
    resources: Any = None


Decision = str | Exploit | Restart


@dataclass(frozen=True, slots=True)
class Milestone:
    """The first result whose `attribute` is at least `value` waits for a decision."""

    attribute: str
    value: float


ALWAYS: Final = Milestone("training_iteration", 0)
NEVER: Final = None


class TrialScheduler:
    """Runs in the driver. `metric` and `mode` may be given here or to the experiment."""

    CONTINUE = CONTINUE
    PAUSE = PAUSE
    STOP = STOP

    needs_metric = True

    def __init__(
        self, metric: str | None = None, mode: Mode | None = None, time_attr: str = "training_iteration"
    ) -> None:
        if mode is not None:
            one_of("mode", mode, ("min", "max"))
        self.metric = metric
        self.mode = mode
        self.time_attr = time_attr
        self.trials = TrialTable()
        self._stops: list[Trial] = []
        self._changes: list[tuple[Trial, Exploit]] = []
        self._files: dict[str, str] = {}

    def set_up(self, trials: TrialTable, metric: str | None, mode: Mode | None, seed: int) -> None:
        """Called once, before the first trial. Raises TuneError when the metric is missing or said twice."""
        self.trials = trials
        for name, value in (("metric", metric), ("mode", mode)):
            mine = getattr(self, name)
            if mine is not None and value is not None and mine != value:
                raise TuneError(f"{name} is {value!r} for the experiment, but {mine!r} for {type(self).__name__}")
            setattr(self, name, mine if mine is not None else value)
        if self.needs_metric and (self.metric is None or self.mode is None):
            raise TuneError(
                f"{type(self).__name__} compares trials by a metric: give metric= and mode='min' or 'max', to it or to "
                f"the experiment"
            )

    # ---- events ----

    def on_trial_add(self, trial: Trial) -> None:
        """A new trial is pending."""

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        """A running trial reported; what shall become of it?"""
        return CONTINUE

    def on_trial_complete(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """It ended by itself or by a stop condition, with this last result (empty if it reported nothing)."""

    def on_trial_error(self, trial: Trial) -> None:
        """It failed for good."""

    def on_trial_revive(self, trial: Trial) -> None:
        """It failed for good, and gets another chance in a restored experiment: to most it is as if it were new."""
        self.on_trial_add(trial)

    def on_trial_remove(self, trial: Trial) -> None:
        """It was stopped while it was pending or paused, or from outside."""

    def on_trial_pause(self, trial: Trial) -> None:
        """It was saved, and has given its resources back."""

    def on_search_ended(self) -> None:
        """There will be no more new trials."""

    def on_stall(self) -> None:
        """Nothing runs, nothing new can come, and nothing was chosen: choose something now, or stop what waits."""

    # ---- questions ----

    def choose_trial_to_run(self) -> Trial | None:
        """Which pending or paused trial gets the free resources; None for none now. Changes nothing."""
        return self.trials.first(PENDING) or self.trials.first(PAUSED)

    def milestone(self, trial: Trial) -> Milestone | None:
        """Where the trial must wait for a decision; None for nowhere."""
        return ALWAYS

    def describe(self) -> str:
        """One line for the status table."""
        return f"Using {type(self).__name__} scheduling algorithm."

    # ---- for subclasses ----

    def stop(self, trial: Trial) -> None:
        """Stop another trial, whatever its state."""
        self._stops.append(trial)

    def change(self, trial: Trial, exploit: Exploit) -> None:
        """Let a paused trial go on from another one's checkpoint."""
        self._changes.append((trial, exploit))

    def keep_file(self, name: str, text: str) -> None:
        """A file for the experiment's folder; written by the runner."""
        self._files[name] = text

    def take_stops(self) -> list[Trial]:
        """The trials to be stopped since the last time it was asked."""
        stops, self._stops = self._stops, []
        return stops

    def take_changes(self) -> list[tuple[Trial, Exploit]]:
        """The trials that shall go on with another's state and configuration."""
        changes, self._changes = self._changes, []
        return changes

    def take_files(self) -> dict[str, str]:
        """Files to be written beside the experiment, by name."""
        files, self._files = self._files, {}
        return files

    def score(self, result: Mapping[str, Any]) -> float:
        """What is compared, the higher the better; minus infinity for NaN."""
        value = value_at(result, self.metric)
        if value is None:
            raise TuneError(missing_key("metric", str(self.metric), result))
        return -math.inf if math.isnan(value) else float(value) if self.mode == "max" else -float(value)

    def time(self, result: Mapping[str, Any]) -> float:
        """How far a trial is, by `time_attr`."""
        value = value_at(result, self.time_attr)
        if value is None:
            raise TuneError(missing_key("time_attr", self.time_attr, result))
        return float(value)


def missing_key(role: str, key: str, result: Mapping[str, Any]) -> str:
    """The message for a key that was counted on and not reported."""
    if key in result:
        return f"{role} {key!r} must be a number, but the trial reported {result[key]!r}"
    if "_metric" in result:
        return f"{role} {key!r} has no name in the trial, which returned a bare number: return {{{key!r}: number}}"
    reported = ", ".join(sorted(key for key in result if key not in FILLED_IN)) or "nothing"
    return (
        f"{role} {key!r} is not in the result of the trial, which reported: {reported} "
        f"(beside {', '.join(sorted(FILLED_IN))}). Report it with every result (NaN where it is not known), or "
        f"name another"
    )


FILLED_IN = frozenset(
    "done date hostname pid time_this_iter_s time_total_s timestamp training_iteration trial_id".split()
)
"""What every result has, beside what the trial reported."""


class FIFOScheduler(TrialScheduler):
    """Every trial runs to its end, in the order of their making."""

    needs_metric = False

    def __init__(self) -> None:
        super().__init__()

    def milestone(self, trial: Trial) -> Milestone | None:
        return NEVER

    def describe(self) -> str:
        return "Using FIFO scheduling algorithm."


class TimeSharingScheduler(TrialScheduler):
    """More trials than slots, all going forward: after `slice_s` of running a trial pauses if another one waits."""

    needs_metric = False

    def __init__(self, slice_s: float = 60.0) -> None:
        above("slice_s", slice_s)
        super().__init__(time_attr="time_total_s")
        self.slice_s = slice_s
        self._used_s: dict[str, float] = {}
        """When it was paused last."""

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        used_s = self.time(result)
        if used_s - self._used_s.get(trial.trial_id, 0.0) < self.slice_s:
            return CONTINUE
        self._used_s[trial.trial_id] = used_s
        return PAUSE if self.trials.someone_waits else CONTINUE

    def milestone(self, trial: Trial) -> Milestone | None:
        return Milestone("time_total_s", self._used_s.get(trial.trial_id, 0.0) + self.slice_s)
