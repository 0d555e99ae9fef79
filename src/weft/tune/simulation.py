"""An experiment in virtual time, in this process: to test a scheduler or a search algorithm, or to compare some.

The state machine is the real one; hosts, storage and clocks are not there. A step of a trial takes as long as its
result's `cost` says (1 if it says nothing), so an experiment of hours takes milliseconds, and the same seed gives the
same run.

>>> from weft import tune
>>> from weft.tune.schedulers import ASHAScheduler
>>> class Curve(tune.Trainable):
...     def step(self):
...         return {"loss": self.config["x"]}
>>> asha = ASHAScheduler(max_t=27)
>>> space = {"x": tune.uniform(0, 1)}
>>> outcome = simulate(Curve, space, scheduler=asha, metric="loss", mode="min", budget=500)
>>> outcome.best_value < 0.1
True
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.tune.ledger import replay
from weft.tune.naming import tag_of, varied_keys
from weft.tune.resources import PlacementGroupFactory
from weft.tune.schedulers.scheduler import (
    CONTINUE,
    PAUSE,
    SAVE,
    Decision,
    Exploit,
    FIFOScheduler,
    Restart,
    TrialScheduler,
)
from weft.tune.search.basic import GridRandomSearch
from weft.tune.search.searcher import Mode, Searcher
from weft.tune.state import ExperimentState, Limits, trial_id_of
from weft.tune.stopping import Stopper
from weft.tune.trial import SavedCheckpoint, Trial

__all__ = ["Outcome", "Simulation", "simulate"]


@dataclass
class Outcome:
    """`trace` has (virtual time, best value so far) at each improvement."""

    state: ExperimentState
    entries: list[tuple[Any, ...]]
    """What a ledger would have."""
    trace: list[tuple[float, float]]
    elapsed: float
    spent: float
    """The sum of all steps' costs."""
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """trial -> (virtual time, value)"""

    @property
    def best_value(self) -> float:
        return self.trace[-1][1] if self.trace else math.nan


class Simulation:
    """`model` is a class like Trainable whose `save_checkpoint` returns a dictionary.

    Its `iteration` is kept as `Trainable.train` would keep it: the steps that are done."""

    def __init__(
        self,
        model: Any,
        space: Mapping[str, Any],
        searcher: Searcher,
        scheduler: TrialScheduler,
        metric: str,
        mode: Mode,
        checkpoint_frequency: int = 0,
    ) -> None:
        """`checkpoint_frequency`: in steps; 0: a trial saves when its scheduler wants it to."""
        self._model, self._space = model, space
        self._checkpoint_frequency = checkpoint_frequency
        self._searcher, self._scheduler = searcher, scheduler
        self._metric, self._mode = metric, mode
        self._entries: list[tuple[Any, ...]] = []
        self._models: dict[str, Any] = {}
        self._used: dict[str, float] = {}
        self._saved: dict[str, Any] = {}

    def state(self, num_samples: int, seed: int) -> ExperimentState:
        keys = varied_keys(self._space)
        self._searcher.set_up(self._space, self._metric, self._mode, seed, num_samples)

        def make_trial(number: int, config: dict[str, Any]) -> Trial:
            resources = PlacementGroupFactory([{"CPU": 1}])
            return Trial(trial_id_of(number), number, "model", config, tag_of(keys, config), resources=resources)

        samples = self._searcher.samples
        limits = Limits(samples if samples is not None else num_samples if num_samples >= 0 else None)
        state = ExperimentState(
            self._searcher, self._scheduler, Stopper(), make_trial, limits, {self._metric: "metric"}
        )
        self._scheduler.set_up(state.trials, self._metric, self._mode, seed)
        return state

    def run(self, slots: int, num_samples: int, budget: float, max_steps: int | None, seed: int) -> Outcome:
        """Until all trials have finished or `budget` of virtual time is over."""
        return self._run(self.state(num_samples, seed), slots, budget, max_steps)

    def resume(self, entries: list[tuple[Any, ...]], slots: int, samples: int, max_steps: int, seed: int) -> Outcome:
        """Go on from what a ledger says, as a new driver would. Checkpoints of the run before must be in this one."""
        state = self.state(samples, seed)
        replay(state, iter(entries))
        state.interrupted()
        self._entries = [*entries, ("interrupted", "")]
        return self._run(state, slots, math.inf, max_steps)

    def _run(self, state: ExperimentState, slots: int, budget: float, max_steps: int | None) -> Outcome:
        outcome = Outcome(state, self._entries, [], 0.0, 0.0)
        agenda: list[tuple[float, int, Trial]] = []
        order = 0
        now = 0.0
        while True:
            while len(agenda) < slots and (trial := self._next(state)) is not None:
                order += 1
                heapq.heappush(agenda, (now + self._start(state, trial), order, trial))
            if not agenda:
                break
            now, _, trial = heapq.heappop(agenda)
            if now > budget:
                break
            decision = self._step(state, trial, now, outcome, max_steps)
            agenda = [entry for entry in agenda if not entry[2].is_finished]
            heapq.heapify(agenda)
            if decision is not None:
                order += 1
                heapq.heappush(agenda, (now + self._cost(trial), order, trial))
        outcome.elapsed = min(now, budget)
        return outcome

    def _add(self, *entry: Any) -> None:
        self._entries.append(entry)

    def _next(self, state: ExperimentState) -> Trial | None:
        while True:
            had_ended = state.search_ended
            chosen, made = state.next_trial()
            if made is not None:
                self._add("added", made.trial_id, made.config)
            if state.search_ended and not had_ended:
                self._add("search ended", "")
            if chosen is not None or made is not None or not state.is_stalled:
                return chosen
            self._add("stalled", "")
            state.stalled()

    def _start(self, state: ExperimentState, trial: Trial) -> float:
        self._add("started", trial.trial_id)
        state.started(trial)
        self._load(trial)
        return self._cost(trial)

    def _load(self, trial: Trial) -> None:
        model = self._model(trial.config)
        model.iteration, self._used[trial.trial_id] = 0, 0.0
        if trial.checkpoint is not None:
            model.load_checkpoint(copy.deepcopy(self._saved[trial.checkpoint.path]))
            model.iteration = trial.checkpoint.iteration
            self._used[trial.trial_id] = trial.checkpoint.time_total_s
        self._models[trial.trial_id] = model

    def _cost(self, trial: Trial) -> float:
        return float(getattr(self._models[trial.trial_id], "cost", 1.0))

    def _step(
        self, state: ExperimentState, trial: Trial, now: float, outcome: Outcome, max_steps: int | None
    ) -> Decision | None:
        """None when the trial does not go on now."""
        model = self._models[trial.trial_id]
        outcome.spent += self._cost(trial)
        self._used[trial.trial_id] += self._cost(trial)
        metrics = model.step()
        model.iteration += 1
        iteration = model.iteration
        done = max_steps is not None and iteration >= max_steps
        result = {**metrics, "training_iteration": iteration, "done": done}
        result["time_total_s"] = self._used[trial.trial_id]
        is_new = iteration > trial.seen_iteration
        if is_new:
            self._add("reported", trial.trial_id, result)
            self._note(outcome, trial, now, result[self._metric])
        decision = state.reported(trial, result)
        state.interrupts.clear()
        if trial.is_finished:
            return None
        if done:
            self._add("ended", trial.trial_id)
            state.ended(trial)
            return None
        if decision == PAUSE or isinstance(decision, Restart):
            self._save(state, trial)
            self._add("paused", trial.trial_id)
            state.paused(trial)
            return None
        if isinstance(decision, Exploit):
            self._load(trial)
        elif decision == SAVE or (self._checkpoint_frequency and iteration % self._checkpoint_frequency == 0):
            self._save(state, trial)
        return CONTINUE

    def _save(self, state: ExperimentState, trial: Trial) -> None:
        iteration = self._models[trial.trial_id].iteration
        path = f"{trial.trial_id}/{iteration}/{trial.incarnation}"
        self._saved[path] = copy.deepcopy(self._models[trial.trial_id].save_checkpoint(""))
        used = self._used[trial.trial_id]
        self._add("saved", trial.trial_id, path, iteration, used, {})
        state.saved(trial, SavedCheckpoint(path, iteration, used))

    def _note(self, outcome: Outcome, trial: Trial, now: float, value: float) -> None:
        outcome.curves.setdefault(trial.trial_id, []).append((now, value))
        better = value < outcome.best_value if self._mode == "min" else value > outcome.best_value
        if not math.isnan(value) and (not outcome.trace or better):
            outcome.trace.append((now, value))


def simulate(
    model: Any,
    space: Mapping[str, Any],
    *,
    metric: str,
    mode: Mode,
    searcher: Searcher | None = None,
    scheduler: TrialScheduler | None = None,
    slots: int = 4,
    num_samples: int = -1,
    budget: float = math.inf,
    max_steps: int | None = None,
    seed: int = 0,
    checkpoint_frequency: int = 0,
) -> Outcome:
    """Run it. Give `num_samples` or `budget`, or it never ends."""
    if num_samples < 0 and budget == math.inf:
        raise ValueError("give num_samples or budget: the simulation would have no end")
    searcher = searcher if searcher is not None else GridRandomSearch()
    scheduler = scheduler if scheduler is not None else FIFOScheduler()
    simulation = Simulation(model, space, searcher, scheduler, metric, mode, checkpoint_frequency)
    return simulation.run(slots, num_samples, budget, max_steps, seed)
