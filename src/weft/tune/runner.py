"""The shell around the experiment's state machine: starts hosts, pulls batches, writes the ledger. Runs in the driver.

RUN-1  Every event goes to the ledger before its consequences leave the driver: a command to a host follows the flush of
       the entries that led to it.
RUN-2  Each busy host has exactly one call outstanding.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.library.storage import LocalStorage, Storage, new_folder, unpack
from weft.tune.audience import Audience
from weft.tune.bundles import Bundles
from weft.tune.callback import Callback
from weft.tune.config import ExperimentSpec
from weft.tune.host import (
    ENDED,
    FAILED,
    SAVED,
    WAITING,
    Batch,
    Bundle,
    End,
    Go,
    HostSettings,
    Start,
    StartAll,
    journal_of,
    journals_of,
)
from weft.tune.host import RUNNING as RUNNING_PHASE
from weft.tune.ledger import Ledger, read_entries
from weft.tune.pool import Host, HostPool
from weft.tune.resources import PlacementGroupFactory
from weft.tune.retention import CheckpointKeeper
from weft.tune.schedulers.scheduler import CONTINUE, SAVE, Decision, Exploit
from weft.tune.state import ExperimentState
from weft.tune.status import StatusTable
from weft.tune.trial import RUNNING, SavedCheckpoint, Trial

__all__ = ["Runner"]

FLUSH_S = 0.5
SYNC_S = 5.0
URL_FLUSH_S = 1.0
IDLE_WAIT_S = 0.5
END_TIMEOUT_S = 5.0
"""How long a trial that was stopped may go on before its process is killed."""


@dataclass(eq=False, slots=True)
class Slot:
    """A trial in a host."""

    host: Host
    trial: Trial
    heard_at: float
    ending_since: float | None = None
    """When it was told to end."""
    bundle: list[Trial] = field(default_factory=list)
    """Trials that were started as one; then `trial` is the first."""


class Runner:
    def __init__(
        self,
        spec: ExperimentSpec,
        state: ExperimentState,
        storage: Storage,
        ledger: Ledger,
        callbacks: Sequence[Callback],
        thresholds: Mapping[str, float],
        status: StatusTable,
    ) -> None:
        self._spec, self._state, self._storage, self._ledger = spec, state, storage, ledger
        self._audience = Audience(callbacks)
        self._bundles = Bundles(spec, state)
        self._status = status
        self._keeper = CheckpointKeeper(spec.run.checkpoint_config)
        self._slots: dict[Any, Slot] = {}
        """ref of the outstanding pull -> slot"""
        self._asked_to_save: set[str] = set()
        self._last_shape: PlacementGroupFactory | None = None
        self._doomed: list[str] = []
        """Checkpoints to delete once the ledger is written."""
        self._flushed_at = self._ledger_at = self._synced_at = self._began = time.monotonic()
        checkpoints = spec.run.checkpoint_config
        self._settings = HostSettings(
            trainable=spec.trainable,
            storage=storage,
            experiment=spec.name,
            experiment_id=spec.experiment_id,
            thresholds=thresholds,
            checkpoint_frequency=checkpoints.checkpoint_frequency,
            checkpoint_at_end=checkpoints.checkpoint_at_end,
        )
        self._pool = self._make_pool()
        self._journals = journals_of(storage, spec.experiment_id)

    def _make_pool(self) -> HostPool:
        return HostPool(weft.put(self._settings))

    # ---- the loop ----

    def run(self) -> None:
        """Until every trial has finished. Whatever is raised, the ledger is written and the hosts are ended."""
        try:
            while True:
                self._start_trials()
                if self._state.is_finished and not self._slots:
                    break
                self._handle_ready()
                self._keep_house()
                if self._state.is_finished:
                    break
        finally:
            self._close()

    def _start_trials(self) -> None:
        while True:
            has_room = self._last_shape is None or self._pool.could_take(self._last_shape)
            trial, is_news = self._next(may_ask=has_room)
            if trial is None:
                if self._slots or is_news or not self._state.is_stalled:
                    return
                self._stalled()
                continue
            host = self._pool.take(trial.resources)
            if host is None:
                if not self._slots:
                    self._pool.check_possible(trial.resources)
                return
            self._last_shape = trial.resources
            self._start_in(host, trial)

    def _start_in(self, host: Host, first: Trial) -> None:
        """The trial, and those that its host is given with it."""
        trials = [first]
        size = 1 if first.incarnation else self._bundles.size(self._pool.size)
        self._note_started(first)
        while len(trials) < size:
            trial, _ = self._next(may_ask=True)
            if trial is None or trial.incarnation or trial.resources != first.resources:
                break
            self._note_started(trial)
            trials.append(trial)
        bundle = trials if len(trials) > 1 else []
        for trial in trials:
            self._audience.started(trial, in_bundle=bool(bundle))
        starts = tuple(map(self._start_command, trials))
        self._pull(Slot(host, first, time.monotonic(), bundle=bundle), StartAll(starts) if bundle else starts[0])

    def _note_started(self, trial: Trial) -> None:
        self._ledger.add("started", trial.trial_id)
        self._state.started(trial)

    def _next(self, may_ask: bool) -> tuple[Trial | None, bool]:
        """The trial that should run now, and whether one was made for that."""
        had_ended = self._state.search_ended
        trial, made = self._state.next_trial(may_ask)
        if made is not None:
            self._ledger.add("added", made.trial_id, made.config)
        if self._state.search_ended and not had_ended:
            self._ledger.add("search ended", "")
        return trial, made is not None

    def _stalled(self) -> None:
        self._ledger.add("stalled", "")
        self._state.stalled()

    def _start_command(self, trial: Trial) -> Start:
        return Start(
            trial.trial_id,
            str(trial),
            self._audience.folder(trial),
            trial.config,
            trial.incarnation,
            trial.checkpoint,
            self._pool.packed(self._storage, trial.checkpoint),
            self._state.milestone(trial),
            trial.resources,
        )

    def _pull(self, slot: Slot, command: Any = None) -> None:
        if command is not None:
            self._flush_ledger()
        self._slots[slot.host.actor.pull.remote(command)] = slot

    def _handle_ready(self) -> None:
        refs = list(self._slots)
        if not refs:
            time.sleep(0.01)  # nothing runs and nothing fits yet: the cluster may grow
            return
        ready, waiting = weft.wait(refs, num_returns=1, timeout=IDLE_WAIT_S)
        if ready and waiting:
            more, _ = weft.wait(waiting, num_returns=len(waiting), timeout=0)
            ready += more
        for ref in ready:
            self._handle(self._slots.pop(ref), ref)
        self._finish_interrupted()
        if self._spec.run.failure_config.hang_timeout_s is not None:
            self._end_hung_trials(self._spec.run.failure_config.hang_timeout_s)

    def _finish_interrupted(self, besides: Trial | None = None) -> None:
        for trial in self._state.interrupts:
            if trial is not besides:
                self._audience.finished(trial)
        self._state.interrupts.clear()

    # ---- one batch ----

    def _handle(self, slot: Slot, ref: Any) -> None:
        try:
            batch: Batch | Bundle = weft.get(ref)
        except weft.exceptions.WeftError as error:
            self._take(slot.trial, _left_behind(self._journals, slot.trial))
            self._lost(slot, f"its process ended: {error}", crashed=True)
            return
        trial = slot.trial
        slot.host.answered = True
        if isinstance(batch, Bundle):
            self._handle_bundle(slot, batch)
            return
        if batch.items:
            slot.heard_at = time.monotonic()
        decision = self._take(trial, batch.items)
        if trial.is_finished:
            self._release(slot, batch.phase)
        elif batch.phase == FAILED:
            message, details = batch.error or ("it failed", "")
            self._lost(slot, message, crashed=False, details=details)
        elif batch.phase == ENDED:
            self._ended(trial)
            if trial.last_result:
                self._bundles.took(trial.last_result["time_total_s"], 1)
            self._release(slot, batch.phase)
        elif batch.phase == SAVED:
            self._paused(slot)
        else:
            self._command(slot, decision, batch.phase)

    def _handle_bundle(self, slot: Slot, bundle: Bundle) -> None:
        trials = {trial.trial_id: trial for trial in slot.bundle}
        slot.bundle = []
        for trial_id, batch in bundle.done:
            self._take(trials[trial_id], batch.items)
            self._conclude(trials[trial_id], batch.phase, batch.error)
        self._bundles.took(bundle.elapsed_s, len(bundle.done))
        self._return([trials[trial_id] for trial_id in bundle.unstarted], ran=False)
        if bundle.left is None:
            self._release(slot, ENDED)
            return
        slot.trial, slot.heard_at = trials[bundle.left], time.monotonic()
        if slot.trial.is_finished:
            self._release(slot, RUNNING_PHASE)
            return
        self._audience.left_bundle(slot.trial)
        self._pull(slot)

    def _return(self, trials: list[Trial], ran: bool) -> None:
        """To those that wait."""
        for trial in reversed(trials):
            if not trial.is_finished:
                self._ledger.add("returned", trial.trial_id, ran)
                self._state.returned(trial, ran)
                self._audience.returned(trial)

    def _conclude(self, trial: Trial, phase: str, error: tuple[str, str] | None) -> None:
        """Its run is over, unless it was so before."""
        if trial.is_finished:
            return
        if phase == FAILED:
            message, details = error or ("it failed", "")
            self._failed(trial, message, crashed=False, details=details)
        elif phase == ENDED:
            self._ended(trial)
        else:
            self._note_paused(trial)

    def _take(self, trial: Trial, items: Sequence[tuple[Any, ...]]) -> Decision:
        """Hear what a trial said; what was decided, after which it is heard no further."""
        decision: Decision = CONTINUE
        decided_at = -1
        for item in items:
            if item[0] == "reported" and decision == CONTINUE and not trial.is_finished:
                decided_at = item[1]["training_iteration"]
                decision = self._reported(trial, item[1])
            elif item[0] == "saved" and _counts(item[2], decision, decided_at):
                self._saved(trial, *item[1:])
        return decision

    def _command(self, slot: Slot, decision: Decision, phase: str) -> None:
        trial = slot.trial
        if isinstance(decision, Exploit):
            slot.heard_at = time.monotonic()
            self._pull(slot, self._start_command(trial))
        elif decision in (CONTINUE, SAVE):
            waits = phase == WAITING
            if decision == SAVE:
                self._note_wish_to_save(trial)
            self._pull(slot, Go(self._state.milestone(trial), decision == SAVE) if waits else None)
        elif phase == WAITING:
            self._pull(slot, End(save=True))
        else:  # a pause that was decided behind the trial's back: it goes on from its last checkpoint later
            self._paused(slot)

    def _note_wish_to_save(self, trial: Trial) -> None:
        if trial.trial_id in self._asked_to_save and trial.checkpoint is None:
            self._status.warn_once(
                "save",
                f"{type(self._state.scheduler).__name__} lets trials go on from the checkpoints of others, but "
                f"{self._spec.trainable_name} saves none, so none will: report one with tune.report(…, checkpoint=…), "
                f"or use a class with save_checkpoint and load_checkpoint",
            )
        self._asked_to_save.add(trial.trial_id)

    def _reported(self, trial: Trial, result: dict[str, Any]) -> Decision:
        is_new = result["training_iteration"] > trial.seen_iteration
        if is_new:
            self._ledger.add("reported", trial.trial_id, result)
            trial.pid, trial.node = result["pid"], result["hostname"]
        decision = self._state.reported(trial, result)
        if is_new:
            self._audience.reported(trial, result)
        if trial.is_finished:
            self._audience.finished(trial)
        return decision

    def _saved(
        self, trial: Trial, path: str, iteration: int, time_total_s: float, totals: Any, packed: dict[str, bytes] | None
    ) -> None:
        if packed is not None:
            folder = new_folder(self._storage)
            unpack(packed, folder)
            self._storage.put_folder(folder, path)
        checkpoint = SavedCheckpoint(path, iteration, time_total_s, totals)
        self._ledger.add("saved", trial.trial_id, path, iteration, time_total_s, totals)
        self._state.saved(trial, checkpoint)
        self._doomed += self._keeper.saved(trial, checkpoint, trial.last_result, self._state.trials.live)
        self._audience.saved(trial, checkpoint)

    def _ended(self, trial: Trial) -> None:
        self._ledger.add("ended", trial.trial_id)
        self._state.ended(trial)
        self._audience.finished(trial)

    def _paused(self, slot: Slot) -> None:
        self._note_paused(slot.trial)
        self._release(slot, SAVED)

    def _note_paused(self, trial: Trial) -> None:
        if trial.checkpoint is None and not trial.failures:
            self._status.warn_once(
                "pause",
                f"{type(self._state.scheduler).__name__} pauses trials, but {self._spec.trainable_name} saves no "
                f"checkpoints: each trial that goes on starts from scratch and repeats what it did",
            )
        self._ledger.add("paused", trial.trial_id)
        self._state.paused(trial)

    def _lost(self, slot: Slot, message: str, crashed: bool, details: str = "") -> None:
        self._pool.discard(slot.host)
        if slot.bundle:
            self._bundles.lost()
            self._return(slot.bundle, ran=True)
        elif not slot.trial.is_finished:
            self._failed(slot.trial, message, crashed, details)

    def _failed(self, trial: Trial, message: str, crashed: bool, details: str = "") -> None:
        self._ledger.add("failed", trial.trial_id, message, crashed)
        again = self._state.failed(trial, message, crashed)
        self._status.trial_failed(trial, message, details, again)
        if details:
            self._storage.append(f"{self._audience.folder(trial)}/error.txt", details.encode())
        if not again:
            self._audience.finished(trial)
            if self._spec.run.failure_config.fail_fast:
                self._state.stop_everything()

    def _release(self, slot: Slot, phase: str) -> None:
        """Free the host for another trial. A trial that may still compute is told to end, and killed if it does not."""
        now = time.monotonic()
        if phase in (ENDED, SAVED):
            if self._spec.tune.reuse_actors:
                self._pool.give_back(slot.host)
            else:
                self._pool.discard(slot.host)
        elif slot.ending_since is None:
            slot.ending_since = now
            self._pull(slot, End())
        elif phase == RUNNING_PHASE and now - slot.ending_since < END_TIMEOUT_S:
            self._pull(slot)
        else:
            self._pool.discard(slot.host)

    def _end_hung_trials(self, limit_s: float) -> None:
        now = time.monotonic()
        for ref, slot in list(self._slots.items()):
            if not slot.host.is_placed:
                slot.heard_at = now  # it waits for resources, or for its process to start
            elif now - slot.heard_at > limit_s and slot.trial.status == RUNNING:
                del self._slots[ref]
                self._lost(slot, f"it reported nothing for {limit_s:g} s (hang_timeout_s)", crashed=True)

    # ---- small things ----

    def _keep_house(self) -> None:
        now = time.monotonic()
        if isinstance(self._storage, LocalStorage) or now - self._ledger_at > URL_FLUSH_S:
            self._flush_ledger()
        self._pool.make_way()
        for name, text in self._state.scheduler.take_files().items():
            self._storage.write(name, text.encode())
        if now - self._flushed_at > FLUSH_S:
            self._flushed_at = now
            self._audience.flush()
        if now - self._synced_at > SYNC_S:
            self._synced_at = now
            self._ledger.sync()
        budget_s = self._spec.tune.time_budget_s
        if budget_s is not None and now - self._began > budget_s and not self._state.stopping:
            self._status.say(f"the time budget of {budget_s:g} s is used up: trials are stopped")
            self._state.stop_everything()
        self._status.update(self._state, self._pool)

    def _flush_ledger(self) -> None:
        self._ledger.flush()
        self._ledger_at = time.monotonic()
        for path in self._doomed:
            self._storage.delete_folder(path)
        self._doomed.clear()

    def _close(self) -> None:
        failing = sys.exc_info()[0] is not None
        for trial in self._state.interrupts:
            self._audience.finished(trial)
        self._pool.close()
        with (
            contextlib.suppress(Exception) if failing else contextlib.nullcontext()
        ):  # the first error is the one to see
            self._ledger.sync()
            self._audience.experiment_ended(list(self._state.trials))
            self._status.finish(self._state, self._pool)
        self._storage.delete_folder(".staging")
        if not isinstance(self._storage, LocalStorage):
            self._journals.delete_folder("")


def default_storage_path() -> str:
    return os.environ.get("WEFT_TUNE_RESULTS", os.path.expanduser("~/weft_results"))


def _left_behind(journals: LocalStorage, trial: Trial) -> list[tuple[Any, ...]]:
    """What a trial's process that died had said, and nobody had heard; see `weft.tune.host`."""
    if trial.is_finished:
        return []
    name = journal_of(trial.trial_id, trial.incarnation)
    saved = trial.checkpoint.iteration if trial.checkpoint is not None else -1
    said = list(read_entries(journals, name))
    journals.delete_log(name)
    return [
        item
        for item in said
        if (item[1]["training_iteration"] > trial.seen_iteration if item[0] == "reported" else item[2] > saved)
    ]


def _counts(iteration: int, decision: Decision, decided_at: int) -> bool:
    """Whether a checkpoint of the batch is the trial's: not one after a decision, nor of a trial that was replaced."""
    return decision == CONTINUE or (iteration == decided_at and not isinstance(decision, Exploit))
