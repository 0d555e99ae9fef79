"""Trials that grow: another scheduler decides who goes on, and a function gives the live trials what is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from weft.library.checks import above
from weft.tune.resources import PlacementGroupFactory, as_resources
from weft.tune.schedulers.scheduler import (
    CONTINUE,
    Decision,
    Exploit,
    FIFOScheduler,
    Milestone,
    Restart,
    TrialScheduler,
)
from weft.tune.trial import PENDING, Trial, TrialTable

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = ["DistributeResources", "ResourceChangingScheduler"]

Allocation = Callable[[Trial, Mapping[str, Any], TrialTable], Any]


class DistributeResources:
    """Everything the cluster has, shared evenly by the live trials; whole CPUs and GPUs, and never less than at the
    start."""

    def __init__(self, total: Mapping[str, float]) -> None:
        self._total = dict(total)

    def __call__(self, trial: Trial, result: Mapping[str, Any], trials: TrialTable) -> PlacementGroupFactory:
        sharers = max(1, sum(1 for _ in trials.live))
        head = dict(trial.resources.head)
        for name, amount in self._total.items():
            share = int(amount // sharers)
            if name in head and share > head[name]:
                head[name] = float(share)
        return PlacementGroupFactory([head, *(dict(bundle) for bundle in trial.resources.bundles[1:])])


class ResourceChangingScheduler(TrialScheduler):
    """`resources_allocation_function(trial, result, trials)` returns what the trial shall have, or None for no change.
    It is asked every `interval` results, and only while no trial is pending."""

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = None,
        interval: int = 1,
    ) -> None:
        self._base = base_scheduler if base_scheduler is not None else FIFOScheduler()
        super().__init__(self._base.metric, self._base.mode, self._base.time_attr)
        if resources_allocation_function is None:
            raise ValueError("resources_allocation_function must be given, for example DistributeResources({'CPU': 8})")
        above("interval", interval)
        self.needs_metric = self._base.needs_metric
        self._allocate = resources_allocation_function
        self._interval = interval

    def set_up(self, trials: TrialTable, metric: str | None, mode: Mode | None, seed: int) -> None:
        self._base.set_up(trials, metric, mode, seed)
        super().set_up(trials, metric, mode, seed)

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        decision = self._base.on_result(trial, result)
        due = result["training_iteration"] % self._interval == 0
        if decision != CONTINUE or not due or self.trials.more_expected or self.trials.first(PENDING) is not None:
            return decision
        wanted = self._allocate(trial, result, self.trials)
        if wanted is None or as_resources(wanted) == trial.resources:
            return decision
        return Restart(resources=as_resources(wanted))

    def milestone(self, trial: Trial) -> Milestone | None:
        mine = Milestone(
            "training_iteration", trial.seen_iteration - trial.seen_iteration % self._interval + self._interval
        )
        base = self._base.milestone(trial)
        if base is None:
            return mine
        # Two attributes cannot be compared: then every result waits.
        return (
            min(base, mine, key=lambda m: m.value) if base.attribute == mine.attribute else Milestone(mine.attribute, 0)
        )

    def on_trial_add(self, trial: Trial) -> None:
        self._base.on_trial_add(trial)

    def on_trial_revive(self, trial: Trial) -> None:
        self._base.on_trial_revive(trial)

    def on_trial_complete(self, trial: Trial, result: Mapping[str, Any]) -> None:
        self._base.on_trial_complete(trial, result)

    def on_trial_error(self, trial: Trial) -> None:
        self._base.on_trial_error(trial)

    def on_trial_remove(self, trial: Trial) -> None:
        self._base.on_trial_remove(trial)

    def on_trial_pause(self, trial: Trial) -> None:
        self._base.on_trial_pause(trial)

    def on_search_ended(self) -> None:
        self._base.on_search_ended()

    def on_stall(self) -> None:
        self._base.on_stall()

    def choose_trial_to_run(self) -> Trial | None:
        return self._base.choose_trial_to_run()

    def take_stops(self) -> list[Trial]:
        return [*super().take_stops(), *self._base.take_stops()]

    def take_changes(self) -> list[tuple[Trial, Exploit]]:
        return [*super().take_changes(), *self._base.take_changes()]

    def take_files(self) -> dict[str, str]:
        return {**super().take_files(), **self._base.take_files()}

    def describe(self) -> str:
        return f"{self._base.describe()} Resources change with the number of trials."
