"""Trials in the driver's own process, one after another: for functions so short that a process would cost more.

The runner calls the trial, and `tune.report` calls the runner: each result is decided on before it returns. So nothing
is set aside for a trial, one that does not return holds up all, and one that ends the process ends the experiment,
which `Tuner.restore` then continues. The engine is not used; there need be no session.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from weft.library.storage import Storage
from weft.tune import session
from weft.tune.errors import TuneError
from weft.tune.host import FAILED, SAVED, HostSettings, Items, Start
from weft.tune.runner import FLUSH_S, Runner
from weft.tune.schedulers.scheduler import CONTINUE, SAVE, STOP, Decision, Exploit
from weft.tune.trial import SavedCheckpoint, Trial
from weft.tune.trial_run import TrialRun

__all__ = ["InProcessRunner"]

Hear = Callable[[Items], Decision]


class InProcessRun(TrialRun):
    """What happens to a result is decided before `report` returns."""

    def __init__(self, start: Start, settings: HostSettings, storage: Storage, kept: Any, hear: Hear) -> None:
        super().__init__(start, settings, storage, kept)
        self._milestone = None  # it waits at every result
        self._hear = hear
        self.decision: Decision = CONTINUE
        self._fault: BaseException | None = None

    def run(self) -> tuple[str, tuple[str, str] | None]:
        """Until the trial ends; its phase, and why it failed. An interrupt, and what the runner raised, is raised."""
        self.main()
        fault = self._fault or (self.failure if isinstance(self.failure, KeyboardInterrupt) else None)
        if fault is not None:
            raise fault
        return self._phase, self._error

    def report(self, metrics: Any, checkpoint: Any = None, save_after: bool = False) -> None:
        self.decision = CONTINUE
        super().report(metrics, checkpoint, save_after)
        decision: Any = self.decision  # `_keep` has set it
        if decision == CONTINUE:
            return
        if decision == SAVE:
            return self._save()
        self._stopping = True
        if decision == STOP or isinstance(decision, Exploit):
            raise session.StopTrial
        self._save()
        raise session.StopTrial(SAVED)

    def _keep(self, items: Items) -> None:
        try:
            decision = self._hear(items)
        except BaseException as error:  # the experiment's, not the trial's
            self._fault = error
            self._stopping = True
            raise session.StopTrial from error
        if items[0][0] == "reported":
            self.decision = decision

    def kept(self) -> Any:
        """A class trainable that the next trial may reuse."""
        return self._trainable if self._phase != FAILED else None


class _NoHosts:
    """In the place of the pool."""

    used: dict[str, float] = {}  # noqa: RUF012
    total: dict[str, float] = {}  # noqa: RUF012

    def make_way(self) -> None:
        """There is nobody."""

    def packed(self, storage: Storage, checkpoint: SavedCheckpoint | None) -> None:
        """This process sees the storage."""

    def close(self) -> None:
        """There is nobody."""


class InProcessRunner(Runner):
    """The same ledger, the same decisions."""

    _kept: Any = None
    """A class trainable of the trial before."""

    def _make_pool(self) -> Any:
        if self._spec.run.failure_config.hang_timeout_s is not None:
            raise TuneError("in_process=True cannot end a trial that hangs: leave hang_timeout_s out")
        return _NoHosts()

    def run(self) -> None:
        try:
            while not self._state.is_finished:
                trial, is_news = self._next(may_ask=True)
                if trial is not None:
                    self._play(trial)
                elif not is_news and self._state.is_stalled:
                    self._stalled()
                self._keep_house()
        finally:
            if self._kept is not None:
                self._kept.stop()
            self._close()

    def _play(self, trial: Trial) -> None:
        self._note_started(trial)
        self._audience.started(trial)
        decision: Decision = CONTINUE
        while True:
            start = self._start_command(trial)
            hear = functools.partial(self._heard, trial)
            run = InProcessRun(start, self._settings, self._storage, self._kept, hear)
            self._kept = None
            phase, error = run.run()
            self._kept, decision = run.kept(), run.decision
            if trial.is_finished or not isinstance(decision, Exploit):
                break
        self._conclude(trial, phase, error)
        self._finish_interrupted(besides=trial)

    def _heard(self, trial: Trial, items: Items) -> Decision:
        decision = self._take(trial, items)
        if time.monotonic() - self._ledger_at > FLUSH_S:
            self._keep_house()
        return STOP if trial.is_finished else decision
