"""Questions that the node daemon passes on to the processes of its node: which tasks, which objects do you know?

The daemon is not on a task's way, so only the processes know. Each is sent one `Tell` and answers with the request
`told`; the asker has its rows when all have answered, or after `PATIENCE_S` without those that are too busy.

Runs in the daemon's thread. SUR-1: every survey ends in one answer, of at most `limit` rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from weft.engine.state.events import Process
from weft.engine.wire.messages import Message, Tell

PATIENCE_S = 2.0
MOST_ROWS = 10_000

Row = dict[str, Any]


class Survey:
    """One question under way."""

    def __init__(self, answer: Callable[[list[Row]], None], limit: int, silent: set[Process]) -> None:
        self.answer = answer
        self.limit = limit
        self.silent = silent
        """Who has not answered."""
        self.rows: list[Row] = []


class Surveys:
    """All that are under way."""

    def __init__(
        self,
        send: Callable[[Process, Message], None],
        processes: Callable[[], Iterable[Process]],
        describe: Callable[[Process, Row], Row],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._send = send
        self._processes = processes
        self._describe = describe
        """Adds to a process's row what only the daemon knows."""
        self._call_later = call_later
        self._numbers = itertools.count(1)
        self._open: dict[int, Survey] = {}

    def begin(self, answer: Callable[[list[Row]], None], what: str, limit: int) -> None:
        number = next(self._numbers)
        survey = self._open[number] = Survey(answer, limit, set(self._processes()))
        for process in list(survey.silent):
            self._send(process, Tell(number, what, limit))
        self._call_later(PATIENCE_S, lambda: self._finish(number))
        if not survey.silent:
            self._finish(number)

    def told(self, process: Process, number: int, rows: list[Row]) -> None:
        survey = self._open.get(number)
        if survey is None or process not in survey.silent:
            return
        survey.silent.discard(process)
        room = survey.limit - len(survey.rows)
        survey.rows += [self._describe(process, row) for row in rows[:room]]
        if not survey.silent or len(survey.rows) >= survey.limit:
            self._finish(number)

    def process_died(self, process: Process) -> None:
        for number, survey in list(self._open.items()):
            survey.silent.discard(process)
            if not survey.silent:
                self._finish(number)

    def _finish(self, number: int) -> None:
        survey = self._open.pop(number, None)
        if survey is not None:
            survey.answer(survey.rows)
