"""The status table at the terminal, in the form people know; quiet in a pipe.

== Status ==
Using FIFO scheduling algorithm.
Resources requested: 2/2 CPUs, 0/0 GPUs
Result logdir: ~/weft_results/demo
PENDING trials:
 - train_2_alpha=0.6,beta=1:    PENDING
RUNNING trials:
 - train_0_alpha=0.2,beta=1:    RUNNING [pid=6778], 209 s, 20 iter, 7.29 mean_accuracy
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from weft.library.lookup import value_at
from weft.library.pace import Pace
from weft.tune.trial import ERROR, PAUSED, PENDING, RUNNING, TERMINATED, Trial

if TYPE_CHECKING:
    from weft.tune.state import ExperimentState

__all__ = ["StatusTable", "line_of", "table_lines"]

logger = logging.getLogger("weft.tune")
REFRESH_S = 0.5
ROWS_OF_STATUS = 5
SMALL_LINES = 12
"""A terminal with fewer lines gets one line."""
_ORDER = (PENDING, RUNNING, PAUSED, TERMINATED, ERROR)


class Resources(Protocol):
    @property
    def used(self) -> dict[str, float]: ...

    @property
    def total(self) -> dict[str, float]: ...


class StatusTable:
    """`verbose`: 0 nothing, 1 one line, 2 the table, None by the terminal."""

    def __init__(self, verbose: int | None, metric: str | None, folder: str, out: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stdout
        self._terminal = bool(getattr(self._out, "isatty", lambda: False)())
        self._verbose = verbose if verbose is not None else 2 if self._terminal else 0
        self._metric, self._folder = metric, folder
        self._pace = Pace(REFRESH_S)
        self._drawn_lines = 0
        self._warned: set[str] = set()

    def update(self, state: ExperimentState, resources: Resources) -> None:
        if self._verbose and self._terminal and self._pace.is_due():
            self._draw(state, resources)

    def finish(self, state: ExperimentState, resources: Resources) -> None:
        if self._verbose:
            self._draw(state, resources)

    def trial_failed(self, trial: Trial, message: str, details: str, again: bool) -> None:
        more = "it is tried again from its last checkpoint" if again else "it is not tried again"
        logger.warning(
            "trial %s failed: %s; %s%s", trial, message, more, f"\n{details}" if details and not again else ""
        )

    def warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            logger.warning(message)

    def say(self, message: str) -> None:
        logger.warning(message)

    def _draw(self, state: ExperimentState, resources: Resources) -> None:
        size = shutil.get_terminal_size()
        if self._verbose == 1 or (self._terminal and size.lines < SMALL_LINES):
            lines = [line_of(state, self._metric)]
        else:
            lines = table_lines(state, resources, self._metric, self._folder)
        if self._terminal:
            lines = [line[: size.columns - 1] for line in lines[: max(size.lines - 2, 1)]]
            if self._drawn_lines:
                self._out.write(f"\x1b[{self._drawn_lines}F\x1b[J")
            self._drawn_lines = len(lines)
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()


def line_of(state: ExperimentState, metric: str | None) -> str:
    """All in one line: the counts, and the best so far."""
    found = state.trials.counts()
    if state.trials_to_come:
        found[PENDING] = found.get(PENDING, 0) + state.trials_to_come
    counts = ", ".join(f"{count} {status}" for status, count in found.items()) or "no trials yet"
    best = _best(state, metric)
    return f"tune: {counts}" + (f"; best {metric}={best.best_value:.5g} ({best})" if best is not None else "")


def _best(state: ExperimentState, metric: str | None) -> Trial | None:
    if metric is None:
        return None
    scored = [trial for trial in state.trials if trial.best_value is not None]
    sign = 1.0 if state.searcher.mode == "max" else -1.0
    return max(scored, key=lambda trial: sign * float(trial.best_value or 0.0), default=None)


def table_lines(state: ExperimentState, resources: Resources, metric: str | None, folder: str) -> list[str]:
    used, total = resources.used, resources.total
    home = os.path.expanduser("~")
    shown_folder = "~" + folder[len(home) :] if folder.startswith(home + "/") else folder
    lines = [
        "== Status ==",
        state.scheduler.describe(),
        f"Resources requested: {used.get('CPU', 0):g}/{total.get('CPU', 0):g} CPUs, "
        f"{used.get('GPU', 0):g}/{total.get('GPU', 0):g} GPUs",
        f"Result logdir: {shown_folder}",
    ]
    for status in _ORDER:
        count = state.trials.count(status) + (state.trials_to_come if status == PENDING else 0)
        if not count:
            continue
        lines.append(f"{status} trials:")
        shown = list(_first(state, status))
        lines += [f" - {trial}:\t{_state_of(trial, metric)}" for trial in shown]
        if count > len(shown):
            lines.append(f"  ... {count - len(shown)} more {status}")
    return lines


def _first(state: ExperimentState, status: str) -> list[Trial]:
    found = []
    for trial in state.trials.of(status):
        found.append(trial)
        if len(found) == ROWS_OF_STATUS:
            break
    return found


def _state_of(trial: Trial, metric: str | None) -> str:
    if trial.status == PENDING and not trial.last_result:
        return PENDING
    text = trial.status
    if trial.pid is not None:
        text += f" [pid={trial.pid}]"
    result: Mapping[str, Any] = trial.last_result
    if result:
        text += f", {result['time_total_s']:.0f} s, {result['training_iteration']} iter"
        value = value_at(result, metric)
        if isinstance(value, int | float):
            text += f", {value:.4g} {metric}"
    if trial.status == ERROR and trial.error:
        text += f", {trial.error.splitlines()[0]}"
    return text
