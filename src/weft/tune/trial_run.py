"""One run of one trial inside its host: the user's code, and an outbox. See `weft.tune.host`."""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from weft.library.checkpoint import Checkpoint
from weft.library.lookup import value_at
from weft.library.storage import LocalStorage, Storage, new_folder, pack, unpack
from weft.tune import session
from weft.tune.host import (
    ENDED,
    FAILED,
    RUNNING,
    SAVED,
    WAITING,
    Batch,
    End,
    Go,
    HostSettings,
    Items,
    Start,
    journal_of,
    local_trial_dir,
)
from weft.tune.ledger import PLAIN, Ledger, plain
from weft.tune.stopping import reaches
from weft.tune.trainable import Trainable

__all__ = ["TrialRun"]

OUTBOX_LIMIT = 10_000
"""A trial that is so many results ahead waits for the runner."""
HOSTNAME = platform.node()
SUMS = (("timesteps_this_iter", "timesteps_total"), ("episodes_this_iter", "episodes_total"))


class TrialRun:
    """`report` and what it calls run in the trial's thread, the rest in those of the runner's calls."""

    def __init__(
        self,
        start: Start,
        settings: HostSettings,
        storage: Storage | None,
        kept: Any,
        journals: LocalStorage | None = None,
    ) -> None:
        self._start, self._settings, self._storage = start, settings, storage
        self.trial_id = start.trial_id
        self._journals = journals
        self._journal = journal_of(start.trial_id, start.incarnation)
        self._written = Ledger(journals, self._journal) if journals is not None else None
        self._kept = kept
        self._trainable: Any = None
        self._change = threading.Condition()
        self._outbox: Items = []
        self._phase = RUNNING
        self._error: tuple[str, str] | None = None
        self.failure: BaseException | None = None
        self._milestone = start.milestone
        self._command: Go | End | None = None
        self._stopping = False
        self._taken_at = 0.0
        self._unpacked: tempfile.TemporaryDirectory[str] | None = None
        saved = start.checkpoint
        self._iteration = saved.iteration if saved else 0
        self._time_before_s = saved.time_total_s if saved else 0.0
        self._totals = dict(saved.totals) if saved else {}
        self._saved_iteration = self._iteration
        self._began = self._last_report = time.monotonic()
        self.context = session.TrialContext(
            start.trial_id,
            start.trial_name,
            local_trial_dir(storage, start.trial_dir),
            settings.experiment,
            start.resources,
            self._iteration,
        )
        self.checkpoint: Checkpoint | None = None
        self._over = threading.Event()

    # ---- the runner's calls ----

    def obey(self, command: Go | End) -> None:
        with self._change:
            if self._phase == WAITING:
                self._command = command
                self._phase = RUNNING
                self._change.notify_all()
            elif isinstance(command, End):
                self._stopping = True

    def take(self, period_s: float, heartbeat_s: float) -> Batch:
        """Wait for items; at most a heartbeat."""
        deadline = time.monotonic() + heartbeat_s
        with self._change:
            while self._phase == RUNNING:
                now = time.monotonic()
                due = min(deadline, self._taken_at + period_s) if self._outbox else deadline
                if now >= due or len(self._outbox) >= OUTBOX_LIMIT:
                    break
                self._change.wait(due - now)
            items, self._outbox = self._outbox, []
            self._taken_at = time.monotonic()
            if len(items) >= OUTBOX_LIMIT:
                self._change.notify_all()
            return Batch(self._phase, items, self._error)

    def end_and_wait(self) -> Any:
        """End it and wait; returns a class trainable that can be reused."""
        self.obey(End())
        with self._change:
            self._stopping = True
            self._outbox = []  # it may wait for room
            self._change.notify_all()
        self._over.wait()
        return self._trainable if self._phase != FAILED else None

    # ---- the trial's thread ----

    def main(self) -> None:
        session.set_current(self)
        phase, error = ENDED, None
        try:
            self._load_checkpoint()
            target = self._settings.trainable
            if isinstance(target, type):
                self._run_class(target)
            else:
                self._run_function(target)
        except session.StopTrial as stop:
            phase = SAVED if stop.args else ENDED
        except BaseException as failure:  # whatever it is, the runner must hear of it
            phase, error = FAILED, (_summary(failure), traceback.format_exc())
            self.failure = failure
        finally:
            session.set_current(None)
            if self._unpacked is not None:
                self._unpacked.cleanup()
        with self._change:
            self._phase, self._error = phase, error
            self._change.notify_all()
        self._over.set()

    def _load_checkpoint(self) -> None:
        saved = self._start.checkpoint
        if saved is None:
            return
        if self._start.packed is not None:
            self._unpacked = tempfile.TemporaryDirectory(prefix="weft-tune-")
            unpack(self._start.packed, Path(self._unpacked.name))
            self.checkpoint = Checkpoint(self._unpacked.name)
        elif self._storage is not None:
            self.checkpoint = Checkpoint(storage=self._storage, name=saved.path)

    def _run_function(self, function: Any) -> None:
        returned = function(self._start.config)
        if isinstance(returned, Mapping):
            self._put_result(returned)
        elif isinstance(returned, int | float) and not isinstance(returned, bool):
            self._put_result({"_metric": returned})

    def _run_class(self, kind: Any) -> None:
        trainable = self._made(kind)
        try:
            while True:
                metrics = trainable.train()
                is_last = bool(metrics.get("done"))
                frequency = self._settings.checkpoint_frequency
                save = frequency > 0 and (self._iteration + 1) % frequency == 0
                self.report(metrics, save_after=save)
                if is_last:
                    break
            self._save_at_end()
        finally:
            if not _can_be_reset(trainable):
                self._trainable = None
                trainable.stop()

    def _made(self, kind: Any) -> Any:
        """The trainable, restored if there is a checkpoint; the one of the trial before if it can be reset."""
        trainable, self._kept = self._kept, None
        if trainable is not None:
            if self.checkpoint is None and trainable.reset_config(self._start.config):
                trainable.config = self._start.config
            else:
                trainable.stop()
                trainable = None
        if trainable is None:
            trainable = kind(self._start.config)
            if self.checkpoint is not None:
                with self.checkpoint.as_directory() as folder:
                    trainable.restore(folder)
        if isinstance(trainable, Trainable):
            trainable.iteration = self._iteration
            trainable.trial_id, trainable.trial_name = self._start.trial_id, self._start.trial_name
            trainable._logdir = self.context.get_trial_dir()
            trainable.trial_resources = self._start.resources
        self._trainable = trainable
        return trainable

    def report(self, metrics: Mapping[str, Any], checkpoint: Any = None, save_after: bool = False) -> None:
        """Called by the user's code; returns when the trial may go on, or raises StopTrial."""
        if self._stopping:
            raise session.StopTrial
        result = self._put_result(metrics, checkpoint, save_after)
        if result["done"]:
            if isinstance(self._settings.trainable, type):
                if not metrics.get("done"):
                    self._save_at_end()
                    raise session.StopTrial
                return
            raise session.StopTrial
        if self._milestone is not None:
            value = value_at(result, self._milestone[0])
            if not isinstance(value, int | float) or value >= self._milestone[1]:
                self._wait_for_command()
        if len(self._outbox) >= OUTBOX_LIMIT:
            with self._change:
                self._change.wait_for(lambda: len(self._outbox) < OUTBOX_LIMIT or self._stopping)

    def _put_result(self, metrics: Mapping[str, Any], checkpoint: Any = None, save: bool = False) -> dict[str, Any]:
        result = self._filled_in(metrics)
        items: Items = [("reported", result)]
        if checkpoint is not None:
            items.append(self._stored(_as_checkpoint(checkpoint).write_to))
        elif save:
            items.append(self._stored(self._trainable.save))
        with self._change:
            was_empty = not self._outbox
            self._keep(items)
            if was_empty:
                self._change.notify_all()
        return result

    def _keep(self, items: Items) -> None:
        """To the journal, then to the outbox; the caller holds the lock."""
        if self._written is not None:
            for item in items:
                self._written.add(*item)
            self._written.flush()
        self._outbox += items

    def begin_journal(self, journals: LocalStorage) -> None:
        """Of a trial that had none: from its first report on."""
        with self._change:
            self._journals, self._written = journals, Ledger(journals, self._journal)
            waiting, self._outbox = self._outbox, []
            self._keep(waiting)

    def delete_journal(self) -> None:
        if self._journals is not None:
            self._journals.delete_log(self._journal)

    def _filled_in(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        now = time.monotonic()
        self._iteration += 1
        result = {key: _sendable(key, plain(value)) for key, value in metrics.items()}
        for each, total in SUMS:
            if each in result and total not in result:
                self._totals[total] = result[total] = self._totals.get(total, 0) + result[each]
        result["training_iteration"] = self._iteration
        result["trial_id"] = self._start.trial_id
        result["time_this_iter_s"] = now - self._last_report
        result["time_total_s"] = self._time_before_s + now - self._began
        result["timestamp"] = int(time.time())
        result["pid"] = os.getpid()
        result["hostname"] = HOSTNAME
        result["done"] = bool(result.get("done", False)) or reaches(self._settings.thresholds, result)
        self._last_report = now
        return result

    def _wait_for_command(self) -> None:
        with self._change:
            self._phase = WAITING
            self._change.notify_all()
            self._change.wait_for(lambda: self._command is not None or self._stopping)
            command, self._command = self._command, None
            self._phase = RUNNING
        if isinstance(command, Go):
            self._milestone = command.milestone
            if command.save:
                self._save()
            return
        if command is not None and command.save:
            self._save()
            raise session.StopTrial(SAVED)
        raise session.StopTrial

    def _save(self) -> None:
        """Save if that is possible and was not done at this iteration; a function saves by reporting."""
        if self._saved_iteration == self._iteration or not _can_save(self._trainable):
            return
        item = self._stored(self._trainable.save)
        with self._change:
            self._keep([item])

    def _save_at_end(self) -> None:
        if self._settings.checkpoint_at_end:
            self._save()

    def _stored(self, write: Any) -> tuple[Any, ...]:
        """Write a checkpoint and bring it to the storage; the item that says so."""
        folder = new_folder(self._storage)
        write(str(folder))
        name = f"checkpoint_{self._iteration:06d}"
        if self._start.incarnation > 1:
            name += f"_{self._start.incarnation}"
        path = f"{self._start.trial_dir}/{name}"
        packed = None
        if self._storage is None:
            packed = pack(folder)
        else:
            self._storage.put_folder(folder, path)
        self._saved_iteration = self._iteration
        time_total_s = self._time_before_s + time.monotonic() - self._began
        return "saved", path, self._iteration, time_total_s, dict(self._totals), packed


def _sendable(key: str, value: Any) -> Any:
    """The value; TypeError, here and not on the way, for one that cannot travel."""
    kind = type(value)
    if kind in (dict, list, tuple):
        for member in value.values() if kind is dict else value:
            _sendable(key, member)
    elif kind not in PLAIN and getattr(getattr(value, "dtype", None), "kind", "O") == "O":  # no array of numbers
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise TypeError(f"key {key!r} of the result cannot be sent: {error}. Report numbers and text") from error
    return value


def _as_checkpoint(checkpoint: Any) -> Checkpoint:
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, Mapping):
        return Checkpoint.from_dict(dict(checkpoint))
    if isinstance(checkpoint, str | os.PathLike):
        return Checkpoint.from_directory(checkpoint)
    raise TypeError(f"checkpoint must be a Checkpoint, a folder or a dictionary, but got {checkpoint!r}")


def _can_save(trainable: Any) -> bool:
    return trainable is not None and bool(getattr(trainable, "can_save", True))


def _can_be_reset(trainable: Any) -> bool:
    return isinstance(trainable, Trainable) and type(trainable).reset_config is not Trainable.reset_config


def _summary(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
