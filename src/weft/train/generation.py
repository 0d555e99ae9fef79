"""One generation of a trainer: the same workers from its beginning to its end. Runs in the driver.

GEN-1  It ends finished (rank 0's loop and all others came to their ends), changed (rank 0 ended at a checkpoint since
       there are more workers), or lost (a worker died).
GEN-2  What a loop raises ends the training, unless another worker was lost: then it is taken for a consequence.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.train.crew import Crew, Member
from weft.train.errors import GroupError
from weft.train.worker import Assignment, Report

__all__ = ["End", "Generation"]

GRACE_S = 5.0
"""How long the others' loops may take to notice that a worker is gone."""
LOOK_S = 1.0
_LOST = (weft.exceptions.ActorError, weft.exceptions.WorkerCrashedError, weft.exceptions.NodeDiedError)


class End(enum.Enum):
    FINISHED = "finished"
    CHANGED = "changed"
    LOST = "lost"


class Generation:
    def __init__(
        self,
        crew: Crew,
        members: Sequence[Member],
        assignments: Sequence[Assignment],
        on_report: Callable[[Report], None],
    ) -> None:
        self._crew, self._members, self._on_report = crew, members, on_report
        self._running = {
            member.actor.run.remote(assignment): member for member, assignment in zip(members, assignments, strict=True)
        }
        self._head = members[0]
        self._taking: Any = self._head.actor.take.remote()
        self._errors: list[Exception] = []
        self._lost: list[Member] = []
        self._is_changing = False
        self._looked_at = time.monotonic()

    def run(self, keeps_processes: bool) -> End:
        """Until it has ended; workers that can not be used on are dropped from the crew."""
        try:
            end = self._until_one_ends()
            if end is not End.FINISHED:
                self._let_others_end(keeps_processes)
            self._drain()
        except BaseException:
            self._drop(self._members)
            raise
        if end is not End.FINISHED:
            self._drop([*self._lost, *self._running.values()] if keeps_processes else self._members)
        if self._lost:
            return End.LOST
        if self._errors and end is not End.CHANGED:
            raise _most_telling(self._errors)
        return end

    def _until_one_ends(self) -> End:
        while self._running:
            ready, _ = weft.wait([*self._running, self._taking], timeout=LOOK_S)
            for ref in ready:
                if ref == self._taking:
                    if self._take():
                        self._taking = self._head.actor.take.remote()
                elif not self._ended(ref):
                    return End.CHANGED
            if self._errors or self._lost:
                return End.LOST
            self._look_for_more()
        return End.FINISHED

    def _ended(self, ref: Any) -> bool:
        """One loop is over; whether it came to its own end (or failed)."""
        member = self._running.pop(ref)
        try:
            return bool(weft.get(ref))
        except _LOST:
            self._lost.append(member)
        except Exception as error:
            self._errors.append(error)
        return True

    def _take(self) -> bool:
        """Hand on what rank 0 has reported; whether it lives."""
        try:
            reports = weft.get(self._taking)
        except _LOST:
            self._lost.append(self._head)
            return False
        for report in reports:
            self._on_report(report)
        return True

    def _drain(self) -> None:
        """What was asked for, and what has come since; nothing is outstanding afterwards."""
        if self._head not in self._lost and self._take():
            self._taking = self._head.actor.take.remote(0)
            self._take()

    def _look_for_more(self) -> None:
        if self._is_changing or time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        if self._crew.notice() > len(self._members):
            self._is_changing = True
            self._head.actor.end_generation.remote()

    def _let_others_end(self, keeps_processes: bool) -> None:
        """Their loops notice that one is gone. Where only errors are known so far, a death may be the cause."""
        deadline = time.monotonic() + GRACE_S
        while self._running and (left := deadline - time.monotonic()) > 0:
            if not keeps_processes and (self._lost or not self._errors):
                return
            ready, _ = weft.wait(list(self._running), timeout=left)
            for ref in ready:
                self._ended(ref)

    def _drop(self, members: Sequence[Member]) -> None:
        for member in dict.fromkeys(members):
            self._crew.drop(member)


def _most_telling(errors: Sequence[Exception]) -> Exception:
    """Rather not one that says that another member failed."""
    causes = [error for error in errors if not isinstance(error, GroupError)]
    return (causes or list(errors))[0]
