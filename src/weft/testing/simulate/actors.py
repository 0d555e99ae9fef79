"""The caller's and the actor's side of actors in a simulated process; see native/actor_links.cpp."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from weft.engine.wire import kinds
from weft.engine.wire.messages import ActorSpec
from weft.engine.wire.messages import KillActor as KillActorMessage
from weft.testing.simulate import program as steps
from weft.testing.simulate.executor import Executor
from weft.testing.simulate.program import ActorLink, Bunch, Function, Run

if TYPE_CHECKING:
    from weft.engine.wire.link_messages import GlobalProcess
    from weft.testing.simulate.node import SimNode

TASK_HEADER = struct.Struct("<16s16x16s48x")
"""Of a TASK record: the constructor's duration stands in for the task's id, the actor's id is where it belongs."""
_DURATION = struct.Struct("<d8x")
_encode = msgspec.msgpack.Encoder().encode


class ActorCalls(Executor):
    """The part of a process that creates, calls and is actors."""

    def __init__(self, node: SimNode, name: tuple[int, int], is_worker: bool) -> None:
        super().__init__(node, name, is_worker)
        self._actors: dict[bytes, ActorLink] = {}
        self.is_actor = b""
        """The id, in an actor's worker."""
        self._is_created = False

    def create_actor(self, step: steps.CreateActor) -> ActorLink:
        link = ActorLink(self.node.cluster.new_id())
        self._actors[link.id] = link
        needed = step.resources or {"CPU": 1.0}
        spec = ActorSpec(link.id, "Simulated", 1, step.resources, needed, max_restarts=step.max_restarts)
        packed = _encode(spec)
        record = TASK_HEADER.pack(_DURATION.pack(step.init_s), link.id)
        self.node.cluster.control.write("actors", int.from_bytes(link.id[:8], "big"), 1)
        self.tell_daemon(kinds.CREATE_ACTOR, struct.pack("<I", len(packed)) + packed + record)
        return link

    def kill_actor(self, link: ActorLink) -> None:
        self.tell_daemon(kinds.CONTROL, _encode(KillActorMessage(link.id)))

    def call(self, step: steps.Call) -> Bunch:
        link: ActorLink = step.actor
        function = Function("call", float(step.seconds), max_retries=step.retries)
        bunch = Bunch(function, step.count, self, [], self._clock.now)
        bunch.actor = link
        self._stats.submitted += step.count
        self.node.cluster.bunches.append(bunch)
        run = Run(bunch, 0, step.count)
        if link.state == "dead":
            self.settle(run, failed=True)
        else:
            link.queue.append(run)
            self._flush(link)
        return bunch

    def _flush(self, link: ActorLink) -> None:
        if link.state != "up" or link.where is None or not link.queue:
            return
        if not self.node.knows(link.where):  # it died before anything was sent to it, and nobody has told
            self._out_of_reach(link)
            return
        queue, link.queue = link.queue, []
        for run in queue:
            link.flight.append(run)
            worker, count = link.where, run.count
            done = self.busy(count * self._costs.call_s)
            self._clock.at(
                done, self.node.send_between, self, worker, count, worker.run_came, self, run, run.first, count
            )

    def _call_answered(self, run: Run, first: int, count: int) -> None:
        link = run.bunch.actor
        if link is None or run not in link.flight:
            return  # its incarnation was given up
        known = max(0, run.first - first)  # an incarnation that died had answered these, and its answer came late
        first, count = first + known, count - known
        if count <= 0:
            return
        run.first += count
        run.count -= count
        if not run.count:
            link.flight.remove(run)
        self.settle(Run(run.bunch, first, count), failed=False)

    def _actor_up(self, payload: bytes) -> None:
        actor, slot, generation, incarnation, _ = kinds.ACTOR_UP_BODY.unpack(payload)
        link = self._actors.setdefault(actor, ActorLink(actor))
        where = self.node.find((slot, generation))
        if link.is_out_of_reach:
            link.is_out_of_reach = False
            self._settle_flight(link, may_retry=True)
        link.state, link.where, link.incarnation = "up", where, incarnation
        if where is not None:
            self.node.talks(self, where)
        self._flush(link)

    def _actor_down(self, payload: bytes) -> None:
        actor, state, _ = kinds.ACTOR_STATE_BODY.unpack_from(payload)
        link = self._actors.setdefault(actor, ActorLink(actor))
        is_dead = state != 0
        link.state, link.where = ("dead" if is_dead else "restarting"), None
        link.is_out_of_reach = False
        self._settle_flight(link, may_retry=not is_dead)
        if is_dead:
            queue, link.queue = link.queue, []
            for run in queue:
                self.settle(run, failed=True)

    def _settle_flight(self, link: ActorLink, may_retry: bool) -> None:
        flight, link.flight = link.flight, []
        again: list[Run] = []
        for run in flight:
            run.bunch.lost += run.begun
            if may_retry and self._retry(run):
                again.append(run)
            else:
                self.settle(run, failed=True)
        link.queue = again + link.queue

    def _actor_peer_died(self, dead: GlobalProcess) -> None:
        """The actor's process is dead, or only the link to its node: the daemon is asked which."""
        for link in self._actors.values():
            if link.state == "up" and link.where is not None and link.where.global_name == dead:
                self._out_of_reach(link)

    def _out_of_reach(self, link: ActorLink) -> None:
        link.state, link.where, link.is_out_of_reach = "unknown", None, True
        self.tell_daemon(kinds.ACTOR_WATCH, link.id + kinds.PROCESS_BODY.pack(0, 0))

    def _retry(self, run: Run) -> bool:
        """Whether the run's first task may be tried once more."""
        used = run.bunch.retries.get(run.first, 0)
        run.bunch.retries[run.first] = used + 1
        return used < run.bunch.function.max_retries

    # ---- in the actor's worker ----

    def _creation_came(self, payload: bytes) -> None:
        packed, actor = TASK_HEADER.unpack(payload[: TASK_HEADER.size])
        self.is_actor = actor
        (init_s,) = _DURATION.unpack(packed)
        self._clock.at(self.busy(init_s), self._created)

    def _created(self) -> None:
        if not self.is_dead:
            self._is_created = True
            self.tell_daemon(kinds.ACTOR_CREATED, kinds.ACTOR_STATE_BODY.pack(self.is_actor, 1, 0))
