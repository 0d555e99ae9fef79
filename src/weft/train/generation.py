"""One generation of a trainer: the same workers from its beginning to its end. Runs in the driver.

GEN-1  It ends finished (rank 0's loop and all others came to their ends), changed (rank 0 ended at a checkpoint since
       there are more workers), or lost (a worker died).
       What the ranks report is taken from all of them, and handed on when it is whole (`assembly.py`).
GEN-2  What a loop raises ends the training, unless another worker was lost: then it is taken for a consequence.
"""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.train.assembly import Assembly, Whole
from weft.train.crew import Crew, Member
from weft.train.errors import GroupError
from weft.train.hangs import described_hang
from weft.train.worker import Assignment

__all__ = ["End", "Generation"]

GRACE_S = 5.0
"""How long the others' loops may take to notice that a worker is gone."""
LOOK_S = 1.0
TELL_HANG_S = 600.0
"""After so long without a report the stacks of all ranks are told, where no `hang_timeout_s` is given."""
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
        on_report: Callable[[Whole], None],
        hang_timeout_s: float | None = None,
    ) -> None:
        self._crew, self._members, self._on_report = crew, members, on_report
        self._hang_timeout_s = hang_timeout_s
        self._ranks = {member: rank for rank, member in enumerate(members)}
        self._running = {
            member.actor.run.remote(assignment): member for member, assignment in zip(members, assignments, strict=True)
        }
        self._head = members[0]
        self._taking = {member: member.actor.take.remote() for member in members}
        self._over: dict[Member, bool] = {}
        """Whose loop is over, and whether what it has reported until then was asked for."""
        self._failed: set[Member] = set()
        self._assembly = Assembly(len(members))
        self._heard_at = time.monotonic()
        self._errors: list[Exception] = []
        self._lost: list[Member] = []
        self._is_changing = False
        self._looked_at = time.monotonic()

    def run(self, keeps_processes: bool) -> End:
        """Until it has ended; workers that cannot be used on are dropped from the crew."""
        try:
            end = self._until_one_ends()
            if end is End.CHANGED:
                self._until_whole()
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
            ready, _ = weft.wait([*self._running, *self._taking.values()], timeout=LOOK_S)
            for ref in ready:
                if ref not in self._running:
                    self._take(ref)
                elif not self._ended(ref):
                    return End.CHANGED
            self._hand_on()
            if self._errors or self._lost:
                return End.LOST
            self._look_for_more()
            self._look_for_hang()
        return End.FINISHED

    def _ended(self, ref: Any) -> bool:
        """One loop is over; whether it came to its own end (or failed)."""
        member = self._running.pop(ref)
        self._over.setdefault(member, False)
        try:
            return bool(weft.get(ref))
        except _LOST:
            self._is_lost(member)
        except Exception as error:
            self._failed.add(member)
            self._errors.append(error)
        return True

    def _is_lost(self, member: Member) -> None:
        if member not in self._lost:
            self._lost.append(member)
        self._taking.pop(member, None)
        self._assembly.ended(self._ranks[member], is_lost=True)

    def _take(self, ref: Any) -> None:
        """What a rank has reported, and ask for more; of one whose loop is over, once more."""
        member = next(member for member, taking in self._taking.items() if taking == ref)
        del self._taking[member]
        try:
            reports = weft.get(ref)
        except _LOST:
            self._is_lost(member)
            return
        rank, now_s = self._ranks[member], time.monotonic()
        for report in reports:
            self._heard_at = now_s
            self._assembly.took(rank, report, now_s)
        if member not in self._over:
            self._taking[member] = member.actor.take.remote()
        elif not self._over[member]:
            self._over[member] = True
            self._taking[member] = member.actor.take.remote(0)
        else:
            self._assembly.ended(rank, is_lost=member in self._failed)

    def _hand_on(self) -> None:
        for whole in self._assembly.whole(time.monotonic()):
            self._on_report(whole)

    def _until_whole(self) -> None:
        """Rank 0 has ended at a checkpoint: the others may be writing their parts of it."""
        deadline = time.monotonic() + GRACE_S
        while (self._head in self._taking or self._assembly.is_waiting) and (left := deadline - time.monotonic()) > 0:
            for ref in weft.wait(list(self._taking.values()), timeout=left)[0]:
                self._take(ref)
            self._hand_on()

    def _drain(self) -> None:
        """What was asked for, and what has come since; nothing is outstanding afterwards. Who still runs is not
        waited for long."""
        for member in self._members:
            if member not in self._over:
                self._over[member] = False
                self._failed.add(member)
        deadline = time.monotonic() + GRACE_S
        while self._taking and (left := deadline - time.monotonic()) > 0:
            for ref in weft.wait(list(self._taking.values()), timeout=left)[0]:
                self._take(ref)
        self._hand_on()

    def _look_for_more(self) -> None:
        if self._is_changing or time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        if self._crew.notice() > len(self._members):
            self._is_changing = True
            self._head.actor.end_generation.remote()

    def _look_for_hang(self) -> None:
        """A rank that hangs holds up all: then nobody reports. That is told; where the user has set a limit, it is the
        end."""
        silent_s = time.monotonic() - self._heard_at
        limit_s = TELL_HANG_S if self._hang_timeout_s is None else self._hang_timeout_s
        if silent_s < limit_s:
            return
        self._heard_at = time.monotonic()
        places = [
            f"node {member.place.node_id}, pid {member.place.pid}" if member.place else "" for member in self._members
        ]
        actors = [member.actor for member in self._members]
        hang = described_hang(limit_s, list(zip(actors, places, strict=True)))
        if self._hang_timeout_s is not None:
            raise hang
        print(f"weft.train: {hang}\nhang_timeout_s= ends a training that hangs.", file=sys.stderr, flush=True)

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
