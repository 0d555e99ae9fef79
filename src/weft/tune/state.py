"""The experiment as a state machine: events in, decisions out. No I/O, no clock, no randomness of its own.

It joins the trial table, the search algorithm, the scheduler and the stop conditions. The runner tells it what happened
and does what it decides; the ledger keeps what it was told, and telling it the same again leads to the same state.

STATE-1  Every trial is in one status; `TrialTable.move` refuses what makes no sense.
STATE-2  A decision takes effect here when it is made (STOP, Exploit), or is *owed* by the trial until its process
         has carried it out (PAUSE, SAVE, Restart).
STATE-3  A result whose iteration was seen before is a repetition after a restart: nobody sees it twice. If it is the
         one whose decision is owed, that decision is given again.
STATE-4  The search algorithm is told exactly once how a trial ended; of a trial that failed and was revived, once more
         if it takes it (`Searcher.revive`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.library.lookup import value_at
from weft.tune.errors import TuneError
from weft.tune.schedulers.scheduler import (
    ALWAYS,
    CONTINUE,
    PAUSE,
    SAVE,
    STOP,
    Decision,
    Exploit,
    Restart,
    TrialScheduler,
    missing_key,
)
from weft.tune.search.searcher import Finished, Searcher
from weft.tune.stopping import Stopper
from weft.tune.trial import ERROR, PAUSED, PENDING, RUNNING, TERMINATED, SavedCheckpoint, Trial, TrialTable

__all__ = ["ExperimentState", "Limits"]

_DECISIONS = (CONTINUE, PAUSE, STOP, SAVE)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much, and how much may go wrong."""

    num_trials: int | None = None
    """None: until the search algorithm has no more."""
    max_concurrent: int | None = None
    max_failures: int = 0
    """How often a trial that raises is tried again; -1 is without end."""
    max_crashes: int = 3
    """How often a trial whose process or node died is tried again; -1 is without end."""


class ExperimentState:
    """`make_trial(number, config)` gives the trial its names and resources."""

    def __init__(
        self,
        searcher: Searcher,
        scheduler: TrialScheduler,
        stopper: Stopper,
        make_trial: Callable[[int, dict[str, Any]], Trial],
        limits: Limits,
        required_keys: Mapping[str, str],
    ) -> None:
        self.trials = TrialTable()
        self.searcher = searcher
        self.scheduler = scheduler
        self.stopper = stopper
        self.limits = limits
        self.search_ended = False
        self.stopping = False
        """No trial is started any more."""
        self.interrupts: list[Trial] = []
        """Running trials that were stopped by something else than their own result; the runner takes them from here."""
        self._make_trial = make_trial
        self._required_keys = required_keys
        """key -> what it is needed for"""
        self._asked: dict[str, dict[str, Any]] = {}
        """What the search algorithm gave; schedulers change a trial's own configuration."""
        self._untold: set[str] = set()
        """Revived trials that the search algorithm does not want to hear of again."""

    @property
    def is_finished(self) -> bool:
        return not self.trials.count(RUNNING) and (self.stopping or self._nothing_waits())

    @property
    def trials_to_come(self) -> int:
        """How many are not made yet, as far as that is known."""
        if self.search_ended or self.stopping or self.limits.num_trials is None:
            return 0
        return max(self.limits.num_trials - len(self.trials), 0)

    def _nothing_waits(self) -> bool:
        return self.search_ended and not self.trials.count(PENDING) and not self.trials.count(PAUSED)

    # ---- which trial runs ----

    def next_trial(self, may_ask: bool = True) -> tuple[Trial | None, Trial | None]:
        """(the trial that should get the free resources, the trial that was made for it); each may be None. Without
        `may_ask` no trial is made: a search algorithm is asked as late as possible, when it knows most."""
        if self.stopping:
            return None, None
        limit = self.limits.max_concurrent
        if limit is not None and self.trials.count(RUNNING) >= limit:
            return None, None
        made = self._ask() if may_ask and self.trials.first(PENDING) is None else None
        self._carry_out_stops()
        chosen = self.scheduler.choose_trial_to_run()
        self._carry_out_stops()
        if chosen is not None and chosen.status not in (PENDING, PAUSED):
            raise TuneError(f"{type(self.scheduler).__name__} chose trial {chosen.trial_id}, which is {chosen.status}")
        return chosen, made

    @property
    def is_stalled(self) -> bool:
        """Whether nothing runs although something waits; asked when `next_trial` gave nothing."""
        return not self.stopping and not self.trials.count(RUNNING) and not self._nothing_waits()

    def stalled(self) -> None:
        """Nothing will happen by itself: the scheduler must choose or stop something now, or that is an error."""
        waiting = self.trials.count(PENDING) + self.trials.count(PAUSED)
        if not waiting and not self.search_ended:
            raise TuneError(
                f"{type(self.searcher).__name__} has no configuration now, and no trial runs that could change "
                f"its mind: "
                f"return FINISHED from ask() at the end"
            )
        self.scheduler.on_stall()
        self._carry_out_stops()
        if not self.search_ended and self.trials.count(PENDING) + self.trials.count(PAUSED) < waiting:
            return  # what was stopped may have held up the search algorithm: it is asked again
        if not self._nothing_waits() and self.scheduler.choose_trial_to_run() is None:
            raise TuneError(
                f"{type(self.scheduler).__name__} runs none of the {waiting} trials that wait, and nothing runs "
                f"that could "
                f"change its mind: choose_trial_to_run() returned None, and on_stall() did not help"
            )

    def _ask(self) -> Trial | None:
        if self.search_ended:
            return None
        limit = self.limits.num_trials
        if limit is not None and len(self.trials) >= limit:
            self._end_search()
            return None
        number = len(self.trials)
        trial_id = trial_id_of(number)
        config = self.searcher.ask(trial_id)
        if isinstance(config, Finished):
            self._end_search()
            return None
        if config is None:
            return None
        return self._add(number, config)

    def _end_search(self) -> None:
        self.search_ended = True
        self.trials.more_expected = False
        self.scheduler.on_search_ended()

    def _add(self, number: int, config: dict[str, Any]) -> Trial:
        trial = self._make_trial(number, config)
        self._asked[trial.trial_id] = config
        self.trials.add(trial)
        self.scheduler.on_trial_add(trial)
        if self.limits.num_trials is not None and len(self.trials) >= self.limits.num_trials:
            self._end_search()
        return trial

    def milestone(self, trial: Trial) -> tuple[str, float] | None:
        """Where the trial waits for a decision: a result's attribute and its value."""
        if self.stopper.needs_every_result:
            return ALWAYS.attribute, ALWAYS.value
        milestone = self.scheduler.milestone(trial)
        if trial.owed is not None:  # decided before a restart: wait there, and do it then
            return "training_iteration", trial.seen_iteration
        return None if milestone is None else (milestone.attribute, milestone.value)

    # ---- events ----

    def started(self, trial: Trial) -> None:
        trial.incarnation += 1
        self.trials.move(trial, RUNNING)

    def reported(self, trial: Trial, result: dict[str, Any]) -> Decision:
        iteration = result["training_iteration"]
        if iteration <= trial.seen_iteration:
            return trial.owed if trial.owed is not None and iteration == trial.seen_iteration else CONTINUE
        self._check_keys(trial, result)
        trial.seen_iteration = iteration
        trial.last_result = result
        trial.results_seen += 1
        self._note_best(trial, result)
        if trial.trial_id not in self._untold:
            self.searcher.observe(trial.trial_id, result)
        if result.get("done"):
            return CONTINUE  # `ended` follows
        if self.stopper(trial.trial_id, result):
            self.ended(trial)
            decision: Decision = STOP
        else:
            decision = self._applied(trial, self.scheduler.on_result(trial, result))
        if self.stopper.stop_all():
            self.stop_everything()
        self._carry_out_stops(besides=trial)
        return decision

    def _applied(self, trial: Trial, decision: Decision) -> Decision:
        if isinstance(decision, Exploit):
            self._exploit(trial, decision)
            return decision
        if decision == STOP:
            self._finish(trial, TERMINATED, stopped_early=True)
            self.scheduler.on_trial_complete(trial, trial.last_result)
            return decision
        if not isinstance(decision, Restart) and decision not in _DECISIONS:
            raise TuneError(
                f"{type(self.scheduler).__name__}.on_result returned {decision!r}; it must be one of "
                f"{', '.join(_DECISIONS)}, an Exploit or a Restart"
            )
        trial.owed = None if decision == CONTINUE else decision
        return decision

    def saved(self, trial: Trial, checkpoint: SavedCheckpoint) -> None:
        trial.checkpoint = checkpoint
        if trial.owed == SAVE:
            trial.owed = None

    def paused(self, trial: Trial) -> None:
        change = trial.owed
        trial.owed = None
        self.trials.move(trial, PAUSED)
        if isinstance(change, Restart):
            trial.config = change.config if change.config is not None else trial.config
            trial.resources = change.resources if change.resources is not None else trial.resources
        self.scheduler.on_trial_pause(trial)
        self._carry_out_stops()

    def ended(self, trial: Trial) -> None:
        """By itself, or by a stop condition."""
        if not trial.last_result and "metric" in self._required_keys.values():
            raise TuneError(
                f"trial {trial.trial_id} ended without reporting anything; the experiment needs: "
                f"{', '.join(f'{role} {key!r}' for key, role in self._required_keys.items())}"
            )
        self._finish(trial, TERMINATED)
        self.scheduler.on_trial_complete(trial, trial.last_result)
        self._carry_out_stops()

    def failed(self, trial: Trial, error: str, crashed: bool) -> bool:
        """Whether it is tried again. `crashed`: its process or node died, rather than that it raised."""
        if crashed:
            trial.crashes += 1
            again = self.limits.max_crashes < 0 or trial.crashes <= self.limits.max_crashes
        else:
            trial.failures += 1
            again = self.limits.max_failures < 0 or trial.failures <= self.limits.max_failures
        trial.error = error
        if again and not self.stopping:
            self.trials.requeue_first(trial)
            return True
        self._finish(trial, ERROR)
        self.scheduler.on_trial_error(trial)
        self._carry_out_stops()
        return False

    def returned(self, trial: Trial, ran: bool) -> None:
        """Its process gave it back, or died with it and others: it waits again. `ran`: perhaps it had begun."""
        trial.incarnation -= not ran
        self.trials.requeue_first(trial)

    def revived(self, trial: Trial) -> None:
        """A trial that failed for good gets another chance, in a restored experiment."""
        trial.failures = trial.crashes = 0
        trial.error = None
        self.trials.move(trial, PENDING)
        self.scheduler.on_trial_revive(trial)
        takes_it = self.searcher.revive(trial.trial_id, self._asked[trial.trial_id])
        (self._untold.discard if takes_it else self._untold.add)(trial.trial_id)
        self._carry_out_stops()

    def stop_everything(self) -> None:
        """Start nothing any more, and stop what runs."""
        self.stopping = True
        for trial in list(self.trials.of(RUNNING)):
            self._stop(trial)

    def interrupted(self) -> None:
        """The driver is new: nothing of what ran is running. Who had only to say that it was saved, is paused."""
        for trial in reversed(list(self.trials.of(RUNNING))):
            is_saved = trial.checkpoint is not None and trial.checkpoint.iteration == trial.seen_iteration
            if is_saved and (trial.owed == PAUSE or isinstance(trial.owed, Restart)):
                self.paused(trial)
            else:
                self.trials.requeue_first(trial)
        self.interrupts.clear()

    # ---- inside ----

    def _exploit(self, trial: Trial, exploit: Exploit) -> None:
        source = exploit.donor.checkpoint
        if source is None:
            raise TuneError(
                f"{type(self.scheduler).__name__} lets trial {trial.trial_id} go on from trial "
                f"{exploit.donor.trial_id}, which has saved no checkpoint: report one with tune.report(…, "
                f"checkpoint=…), or use a class with save_checkpoint and load_checkpoint"
            )
        trial.config = exploit.config
        trial.checkpoint = source
        trial.seen_iteration = source.iteration
        trial.owed = None
        trial.incarnation += 1

    def _carry_out_stops(self, besides: Trial | None = None) -> None:
        for trial, exploit in self.scheduler.take_changes():
            self._exploit(trial, exploit)
        for trial in self.scheduler.take_stops():
            if trial is not besides and not trial.is_finished:
                self._stop(trial)

    def _stop(self, trial: Trial) -> None:
        if trial.status == RUNNING:
            self.interrupts.append(trial)
        self._finish(trial, TERMINATED, stopped_early=True)
        self.scheduler.on_trial_remove(trial)

    def _finish(self, trial: Trial, status: str, stopped_early: bool = False) -> None:
        self.trials.move(trial, status)
        trial.owed = None
        failed = status == ERROR or not trial.last_result
        result = {**trial.last_result, "stopped_early": True} if stopped_early else trial.last_result
        if trial.trial_id not in self._untold:
            self.searcher.tell(trial.trial_id, None if failed else result)
        self.stopper.forget(trial.trial_id)

    def _check_keys(self, trial: Trial, result: Mapping[str, Any]) -> None:
        if trial.results_seen:
            return
        for key, role in self._required_keys.items():
            value = value_at(result, key)
            if value is None:
                raise TuneError(f"trial {trial.trial_id}: {missing_key(role, key, result)}")
            if not isinstance(value, int | float):
                raise TuneError(f"trial {trial.trial_id}: {role} {key!r} must be a number, but it reported {value!r}")

    def _note_best(self, trial: Trial, result: Mapping[str, Any]) -> None:
        value = value_at(result, self.searcher.metric)
        if not isinstance(value, int | float) or math.isnan(value):
            return
        better = max if self.searcher.mode == "max" else min
        trial.best_value = value if trial.best_value is None else better(trial.best_value, value)

    # ---- the same again, from the ledger ----

    def replay_added(self, trial_id: str, config: dict[str, Any]) -> None:
        number = len(self.trials)
        if trial_id != trial_id_of(number):
            raise TuneError(f"the ledger names trial {trial_id} where {trial_id_of(number)} should be")
        self.searcher.replay(trial_id, config)
        self._add(number, config)

    def replay_search_ended(self) -> None:
        if not self.search_ended:
            self._end_search()


def trial_id_of(number: int) -> str:
    return f"{number:05d}"
