"""The executing half of a simulated process: its inbox, what runs, what is handed back, and lending while blocked."""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING

from weft.engine.wire import kinds
from weft.testing.simulate.base import ProcessBase
from weft.testing.simulate.program import Run

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode

LONG_S = 0.001
"""A task that runs longer has what waits behind it handed back."""

TOO_LONG_S = 0.05
"""Nothing waits so long in a worker: what is behind a long task goes back, what is behind short ones is little."""

CREATION = struct.Struct("<16s16x16s48x")
"""An actor's creation record: the constructor's duration stands in for the task's id, the actor's id is where it
belongs."""
DURATION = struct.Struct("<d8x")


class Work:
    """Tasks that a worker was sent: what is left of a run."""

    __slots__ = ("came_at", "indices", "owner", "run")

    def __init__(self, owner: ProcessBase, run: Run, indices: list[int], came_at: float) -> None:
        self.owner = owner
        self.run = run
        self.indices = indices
        self.came_at = came_at


class Executor(ProcessBase):
    """The part of a process that executes."""

    def __init__(self, node: SimNode, name: tuple[int, int], is_worker: bool) -> None:
        super().__init__(node, name, is_worker)
        self._inbox: deque[Work] = deque()
        self._current: Work | None = None
        self._runs_long = False
        self._is_lent = False
        self._exits = False
        self._epoch = 0
        self._batch = (0, 0.0, 0.0)
        """Of what runs as one event: how many tasks, since when, for how long in all."""
        self.is_actor = b""
        """The id, in an actor's worker."""

    def run_came(self, owner: ProcessBase, run: Run) -> None:
        if self.is_dead:
            return
        self._inbox.append(Work(owner, run, list(run.indices), self._clock.now))
        if self._current is None:
            self._start_next()
        elif (self._runs_long or self._is_lent) and run.bunch.actor is None:
            self._hand_back()

    def _start_next(self) -> None:
        if not self._inbox:
            if self._exits:
                self.node.process_exits(self, 0)
            return
        work = self._current = self._inbox.popleft()
        self._epoch += 1
        self._runs_long = False
        waited = (self._clock.now - work.came_at) * self.node.speed
        if waited > TOO_LONG_S and work.run.bunch.actor is None:
            self.node.cluster.waited_too_long(self, work.run, waited)
        ready = self.node.pull_args(work.run.bunch, work.indices)
        if ready > self._clock.now:
            self._clock.at(ready, self._begin, self._epoch)
            self._clock.after(LONG_S, self._is_long, self._epoch)
        else:
            self._begin(self._epoch)

    def _begin(self, epoch: int) -> None:
        if self.is_dead or epoch != self._epoch or self._current is None:
            return
        work = self._current
        if work.run.bunch.function.body is not None:
            work.run.began(1)
            self._batch = (1, self._clock.now, float("inf"))
            self._clock.after(LONG_S, self._is_long, epoch)
            self._clock.after(self._costs.execute_s, self._run_body, work, epoch)
            return
        count, took = self._how_far(work)
        work.run.began(count)
        if took > LONG_S and count == 1:
            self._clock.after(LONG_S, self._is_long, epoch)
        done = self.busy(took)
        self._batch = (count, self._clock.now, done - self._clock.now)
        self._clock.at(done, self._finished, work, count, took / count, epoch)

    def _how_far(self, work: Work) -> tuple[int, float]:
        """How many of its tasks run as one event: short ones together, a long one alone."""
        function, cost = work.run.bunch.function, self._costs.execute_s
        if isinstance(function.duration_s, float):
            each, all_of_it = function.duration_s + cost, len(work.indices)
            return (all_of_it, each * all_of_it) if each <= LONG_S else (1, each)
        total, count = 0.0, 0
        for index in work.indices:
            each = function.takes(index) + cost
            if count and (each > LONG_S or total + each > LONG_S):
                break
            total += each
            count += 1
        return count, total

    def _run_body(self, work: Work, epoch: int) -> None:
        body = work.run.bunch.function.body
        if self.is_dead or epoch != self._epoch or body is None:
            return
        begun = self._clock.now
        self.run_program(body(self, work.indices[0]), lambda: self._finished(work, 1, self._clock.now - begun, epoch))

    def _finished(self, work: Work, count: int, took_s: float, epoch: int) -> None:
        if self.is_dead or epoch != self._epoch:
            return
        self._answer(work, count, took_s)
        self._epoch += 1
        self._current = None
        self._batch = (0, 0.0, 0.0)
        work.indices = work.indices[count:]
        work.came_at = self._clock.now
        if work.indices:
            self._inbox.appendleft(work)
        self._start_next()

    def _answer(self, work: Work, count: int, took_s: float) -> None:
        self.node.executed += count
        answer = (self.global_name, work.run, work.indices[:count], took_s)
        self.node.send_between(self, work.owner, count, work.owner.answer_came, *answer)

    def _is_long(self, epoch: int) -> None:
        if not self.is_dead and epoch == self._epoch and self._current is not None:
            self._runs_long = True
            self._hand_back()

    def _hand_back(self) -> None:
        """What has not started goes back to who sent it; never an actor's calls."""
        if self.node.cluster.has_bug("no-hand-back"):
            return
        by_owner: dict[ProcessBase, list[tuple[Run, list[int]]]] = {}
        kept: deque[Work] = deque()
        works, self._inbox = list(self._inbox), kept
        if (current := self._current) is not None and len(current.indices) > 1 and current.run.bunch.actor is None:
            works.insert(0, Work(current.owner, current.run, current.indices[1:], self._clock.now))
            current.indices = current.indices[:1]
        for work in works:
            if work.run.bunch.actor is not None:
                kept.append(work)
            else:
                by_owner.setdefault(work.owner, []).append((work.run, work.indices))
        for owner, runs in by_owner.items():
            self.node.send_between(self, owner, len(runs), owner.handed_back, self.global_name, runs)

    # ---- blocking ----

    def _lend(self) -> None:
        if self.is_dead or self._is_lent or self._current is None:
            return
        self._is_lent = True
        if not self.node.cluster.has_bug("blocked-keeps-cpu"):
            self.tell_daemon(kinds.BLOCKED)
        self._hand_back()

    def _goes_on(self) -> None:
        if self._is_lent:
            self._is_lent = False
            if not self.node.cluster.has_bug("blocked-keeps-cpu"):
                self.tell_daemon(kinds.UNBLOCKED)

    # ---- an actor's worker ----

    def _creation_came(self, payload: bytes) -> None:
        packed, self.is_actor = CREATION.unpack(payload[: CREATION.size])
        (init_s,) = DURATION.unpack(packed)
        self._clock.at(self.busy(init_s), self._created)

    def _created(self) -> None:
        if not self.is_dead:
            self.tell_daemon(kinds.ACTOR_CREATED, kinds.ACTOR_STATE_BODY.pack(self.is_actor, 1, 0))

    # ---- ends ----

    def cut_short(self, replies_arrive: bool) -> None:
        """It is killed now: what is done of the tasks that run as one event is done, the next one is cut off."""
        work, (count, since, took) = self._current, self._batch
        if work is None or count == 0:
            return
        done = min(count - 1, int(count * (self._clock.now - since) / took)) if took > 0 else 0
        work.run.began(done + 1 - count)
        if done and replies_arrive:
            self._answer(work, done, took / count)

    def _asked_to_exit(self, drain: bool) -> None:
        self._exits = True
        if not drain or (self._current is None and not self._inbox):
            self.node.process_exits(self, 0)
