"""One run of a bundle of trials inside its host. See `weft.tune.bundles`."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from weft.library.storage import LocalStorage, Storage
from weft.tune.host import Batch, Bundle, HostSettings, Start
from weft.tune.trial_run import TrialRun

__all__ = ["BundleRun"]


class BundleRun:
    """In the place of a `TrialRun` in its host. `main` runs in the trials' thread, the rest in the runner's calls."""

    def __init__(
        self,
        starts: tuple[Start, ...],
        settings: HostSettings,
        storage: Storage | None,
        journals: LocalStorage | None,
    ) -> None:
        self._starts = deque(starts)
        self._settings, self._storage, self._journals = settings, storage, journals
        self._change = threading.Condition()
        self._done: list[tuple[str, Batch]] = []
        self._current: TrialRun | None = None
        self.left: TrialRun | None = None
        """The trial that goes on alone."""
        self._is_over = False
        self._began = time.monotonic()

    def main(self) -> None:
        while (run := self._next()) is not None:
            run.main()
            with self._change:
                if run is not self.left:
                    self._done.append((run.trial_id, run.take(0.0, 0.0)))
        with self._change:
            self._is_over = True
            self._change.notify_all()

    def _next(self) -> TrialRun | None:
        with self._change:
            start = self._starts.popleft() if self._starts else None
            self._current = None if start is None else TrialRun(start, self._settings, self._storage, None)
            return self._current

    def take(self, period_s: float, heartbeat_s: float) -> Bundle:
        """What has ended, when all have or a period has passed; then what was not begun is given up."""
        with self._change:
            self._change.wait_for(lambda: self._is_over, period_s)
            unstarted = tuple(start.trial_id for start in self._starts)
            self._starts.clear()
            self.left = self._current
            if self.left is not None and self._journals is not None:
                self.left.begin_journal(self._journals)
            left = self.left.trial_id if self.left is not None else None
            return Bundle(self._done, unstarted, left, time.monotonic() - self._began)

    def end_and_wait(self) -> Any:
        """Wait until its thread is free; nothing of it can be used again."""
        with self._change:
            self._change.wait_for(lambda: self._is_over)

    def delete_journal(self) -> None:
        """It has none."""
