"""The life of actors: named, placed, alive, restarted, dead, and who is told.

Pure: no I/O, no clock. `node.NodeState` finds the worker; this decides what the change means and tells the watchers.

    PENDING -> STARTING -> ALIVE -> DEAD
       ^----------+----------'  (a death with restarts left: PENDING again, one incarnation later)

Watchers hear ACTOR_UP of the first incarnation as soon as a worker is chosen: the creation record is in the worker's
ring by then, so what they send runs after it. Of a later one they hear when its constructor is done: until then a call
that may not be repeated fails with ACTOR_UNAVAILABLE instead of waiting for a restart that may take long. A watcher may
come before the creation does (a handle travels faster than arguments become ready) and is told later. A dead actor's
cause is remembered for the last `REMEMBERED` dead.

Invariants (`ActorTable.check`):
    ACT-1  an actor has a worker if and only if it is STARTING or ALIVE, and no two actors share one.
    ACT-2  a name leads to an actor that is not dead or to a claim, and back.
    ACT-3  restarts used never exceed max_restarts (unless that is -1: no end).
    ACT-4  a dead actor has a cause and no watchers to be told.
    ACT-5  the living actors of each job and owner, and what each process watches, are found without a search.
"""

from __future__ import annotations

import enum
from collections import Counter

from weft.engine.state.events import ActorNameClaimed, ActorRequested, FoundActor, Process, RestoredActor
from weft.engine.state.instructions import (
    CreateActor,
    ErrorCode,
    Fault,
    Instruction,
    RecordActor,
    SendFunction,
    TellActorDown,
    TellActorUp,
)
from weft.engine.state.workers import how_ended
from weft.engine.wire.messages import ActorSpec

REMEMBERED = 10_000
ALIAS = "ALIAS"
"""The state of a row that says under which other id an actor is known."""
NODE_LOST = -1000
"""Stands for the exit status of a process whose node is gone."""


class Stage(enum.Enum):
    PENDING = "PENDING_CREATION"
    STARTING = "STARTING"
    ALIVE = "ALIVE"
    DEAD = "DEAD"


class Actor:
    """One actor over all its incarnations."""

    __slots__ = (
        "cause", "ending", "id", "incarnation", "is_moving", "job", "moves", "owner", "pid", "record", "spec",
        "stage", "unavailable", "watchers", "worker",
    )  # fmt: skip

    def __init__(self, spec: ActorSpec, record: bytes, owner: Process, job: int) -> None:
        self.id = spec.actor
        self.spec = spec
        self.record = record
        self.owner = owner
        self.job = job
        self.stage = Stage.PENDING
        self.worker: Process | None = None
        self.pid = 0
        self.incarnation = 0
        """Also the number of restarts, moves included."""
        self.is_moving = False
        """It has been asked to end here and start again on another node, because its node is drained."""
        self.moves = 0
        self.ending: Fault | bytes | None = None
        """Why it will be dead when its worker is, whatever restarts are left."""
        self.cause: Fault | bytes | None = None
        self.unavailable: Fault | None = None
        """Why it is not there, from a death to the end of the next incarnation's constructor."""
        self.watchers: dict[tuple[Process, bytes], None] = {}
        """Who is told, under which id (an actor found by get_if_exists has one more)."""

    @property
    def restarts_used(self) -> int:
        """A move is no fault of the actor's."""
        return self.incarnation - self.moves

    def __str__(self) -> str:
        pid = f", pid {self.pid}" if self.pid else ""
        name = f" '{self.spec.name}'" if self.spec.name else ""
        return f"actor {self.spec.class_name}{name} ({self.id.hex()[:8]}{pid})"


class ActorTable:
    """All actors of a node, living and lately dead."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], bytes] = {}
        """(namespace, name) to id; claimed names included."""
        self.claims: dict[bytes, ActorNameClaimed] = {}
        self._of_worker: dict[Process, Actor] = {}
        self.aliases: dict[bytes, bytes] = {}
        """Ids under which an actor that existed was found (get_if_exists)."""
        self._early_watchers: dict[bytes, dict[tuple[Process, bytes], Process | None]] = {}
        """Of actors not yet heard of: who is to be told, with the actor's creator where that is known."""
        self._early_ends: dict[bytes, Fault] = {}
        self._dead: dict[bytes, None] = {}
        self._watched: dict[Process, dict[tuple[bytes, bytes], None]] = {}
        """(actor, shown) of which that process is a watcher."""
        self._owned: dict[Process, dict[bytes, None]] = {}
        """The living actors that end with their owner."""
        self._living: Counter[int] = Counter()
        """How many of each job are not dead."""

    # ---- names and creation ----

    def find(self, actor: bytes) -> Actor | None:
        return self.by_id.get(self.aliases.get(actor, actor))

    def of_worker(self, process: Process) -> Actor | None:
        return self._of_worker.get(process)

    def handle_of(self, namespace: str, name: str) -> bytes | None:
        """The pickled handle of a named actor."""
        if (actor_id := self.names.get((namespace, name))) is None:
            return None
        if (claim := self.claims.get(actor_id)) is not None:
            return claim.handle
        return self.by_id[actor_id].spec.handle

    def claim(self, event: ActorNameClaimed) -> None:
        """Set a free name aside; the caller has checked that it is free."""
        self.claims[event.actor] = event
        self.names[event.namespace, event.name] = event.actor

    def create(self, event: ActorRequested, job: int, out: list[Instruction]) -> Actor | None:
        """The actor to be placed, or None when it is dead on arrival or another one by get_if_exists."""
        spec = event.spec
        before = self.by_id.get(spec.actor)
        if spec.actor in self.aliases or (before is not None and before.spec.class_name):
            return None  # told again, to a new head that knows it
        actor = Actor(spec, event.record, event.process, job)
        watchers = self._early_watchers.pop(spec.actor, {})
        watchers[event.process, spec.actor] = None
        self.claims.pop(spec.actor, None)
        known = self.names.get((spec.namespace, spec.name), spec.actor) if spec.name else spec.actor
        if known != spec.actor and spec.get_if_exists:
            self.aliases[spec.actor] = known
            out.append(RecordActor(spec.actor, ALIAS, {"known": known}))
            for process, shown in watchers:
                self.watch(process, shown, out)
            return None
        self._add(actor)
        for process, shown in watchers:
            self._tell_from_now(actor, process, shown)
        if known != spec.actor:
            text = f"the name '{spec.name}' is already taken in namespace '{spec.namespace}'"
            self._bury(actor, Fault(ErrorCode.ACTOR_DIED, f"{actor} was not created: {text}"), out)
            return None
        if spec.name:
            self.names[spec.namespace, spec.name] = actor.id
        if (fault := self._early_ends.pop(actor.id, None)) is not None:
            self._bury(actor, fault, out)
            return None
        _record(actor, out)
        return actor

    # ---- placing ----

    def placed(
        self, actor: Actor, worker: Process, pid: int, out: list[Instruction], has_creation: bool = False
    ) -> None:
        """A worker was chosen and bound: send it the creation, then tell the watchers."""
        actor.stage = Stage.STARTING
        actor.worker = worker
        actor.pid = pid
        self._of_worker[worker] = actor
        if not has_creation:
            out.append(SendFunction(worker, actor.spec.class_key))
            out.append(CreateActor(worker, actor.record))
        if not actor.incarnation:
            _tell_up(actor, out)
        _record(actor, out)

    def forked(self, worker: Process, pid: int) -> None:
        if (actor := self._of_worker.get(worker)) is not None:
            actor.pid = pid

    def created(self, actor: Actor, ok: bool, error: bytes, out: list[Instruction]) -> bool:
        """Its constructor has run; False when it failed, and its worker must end."""
        if ok:
            actor.stage = Stage.ALIVE
            actor.unavailable = None
            if actor.incarnation:
                _tell_up(actor, out)
            _record(actor, out)
        else:
            actor.ending = error
            self._bury(actor, error, out)
        return ok

    # ---- after another node was the head ----

    def restore(self, row: RestoredActor) -> Actor | None:
        """As the control store has it; None when it is known."""
        spec = row.spec
        if spec.actor in self.by_id:
            return None
        actor = Actor(spec, row.record, row.owner, row.job)
        actor.incarnation, actor.moves = row.incarnation, row.moves
        if row.stage == Stage.DEAD.value:
            actor.stage, actor.record = Stage.DEAD, b""
            cause = row.cause or (ErrorCode.ACTOR_DIED, f"{actor} died")
            actor.cause = cause if isinstance(cause, bytes) else Fault(*cause)
            self._dead[actor.id] = None
        elif spec.name:
            self.names[spec.namespace, spec.name] = actor.id
        self._add(actor)
        return actor

    def found(self, actor: Actor, found: FoundActor, out: list[Instruction]) -> None:
        """It lives in that worker, where the head before has placed it."""
        actor.incarnation = max(actor.incarnation, found.incarnation)
        self.placed(actor, found.worker, found.pid, out, has_creation=True)
        if found.is_created:
            self.created(actor, True, b"", out)
        elif actor.incarnation:
            actor.unavailable = Fault(ErrorCode.ACTOR_UNAVAILABLE, f"{actor} is restarting")

    # ---- watching ----

    def watch(self, process: Process, shown: bytes, out: list[Instruction], owner: Process | None = None) -> None:
        """Tell it now, and from now on."""
        actor = self.find(shown)
        if actor is None:
            self._early_watchers.setdefault(shown, {})[process, shown] = owner
        elif actor.stage is Stage.DEAD:
            assert actor.cause is not None
            out.append(TellActorDown(process, shown, True, actor.cause))
        else:
            self._tell_from_now(actor, process, shown)
            if actor.unavailable is not None:
                out.append(TellActorDown(process, shown, False, actor.unavailable))
            elif actor.worker is not None:
                out.append(_up(actor, process, shown))

    # ---- ending ----

    def forget_alias(self, process: Process, shown: bytes, out: list[Instruction]) -> bool:
        """The handles of an actor found by get_if_exists are gone, which is nothing to the actor itself."""
        if (known := self.aliases.pop(shown, None)) is None:
            return False
        out.append(RecordActor(shown, "", {}))
        if (actor := self.by_id.get(known)) is not None:
            actor.watchers.pop((process, shown), None)
            self._unwatch(process, known, shown)
        return True

    def end(self, actor_id: bytes, why: str, out: list[Instruction]) -> Actor | None:
        """It is to die and not come back. The actor if it has a worker that must be ended, else None."""
        actor = self.find(actor_id)
        if actor is None:
            self._early_ends[actor_id] = Fault(
                ErrorCode.ACTOR_DIED, f"actor ({actor_id.hex()[:8]}) {why} before it was created"
            )
            while len(self._early_ends) > REMEMBERED:
                del self._early_ends[next(iter(self._early_ends))]
            return None
        if actor.stage is Stage.DEAD:
            return None
        actor.ending = actor.ending or Fault(ErrorCode.ACTOR_DIED, f"{actor} {why}")
        self._free_name(actor)
        if actor.worker is None:
            self._bury(actor, actor.ending, out)
            return None
        return actor

    def fail(self, actor: Actor, fault: Fault, out: list[Instruction]) -> None:
        """It cannot be placed at all."""
        self._bury(actor, fault, out)

    def worker_died(
        self, worker: Process, status: int, reason: str, out: list[Instruction], is_for_memory: bool = False
    ) -> Actor | None:
        """The actor to be placed again, if that worker was an actor that may restart."""
        actor = self._of_worker.pop(worker, None)
        if actor is None or actor.stage is Stage.DEAD:
            return None
        return self.lost(actor, _how(status, reason, is_for_memory), out)

    def lost(self, actor: Actor, how: str, out: list[Instruction]) -> Actor | None:
        """Its worker is no more. The actor, if it may restart."""
        actor.worker = None
        limit = actor.spec.max_restarts
        actor.moves += actor.is_moving
        if actor.ending is not None:
            self._bury(actor, actor.ending, out)
        elif limit != -1 and actor.restarts_used >= limit and not actor.is_moving:
            used = f"; {actor.restarts_used} of {limit} restarts were used" if limit else "; it has max_restarts=0"
            self._bury(actor, Fault(ErrorCode.ACTOR_DIED, f"{actor} died: {how}{used}"), out)
        else:
            actor.incarnation += 1
            actor.is_moving = False
            actor.stage = Stage.PENDING
            most = "any number" if limit == -1 else str(limit)
            text = f"{actor} is restarting ({actor.restarts_used} of {most}): {how}"
            actor.unavailable = Fault(ErrorCode.ACTOR_UNAVAILABLE, text)
            for process, shown in actor.watchers:
                out.append(TellActorDown(process, shown, False, actor.unavailable))
            actor.pid = 0
            _record(actor, out)
            return actor
        return None

    def owned_by(self, process: Process) -> list[Actor]:
        """The living actors that die with it."""
        return [self.by_id[actor] for actor in self._owned.get(process, ())]

    def job_on(self, worker: Process) -> int | None:
        """Of the actor that it is."""
        actor = self._of_worker.get(worker)
        return None if actor is None else actor.job

    def has_living(self, job: int) -> bool:
        return self._living[job] > 0

    @property
    def living(self) -> int:
        """How many are not dead."""
        return self._living.total()

    def process_died(self, process: Process) -> list[Actor]:
        """Forget it as a watcher; the living actors that it owned and that die with it."""
        for actor, shown in self._watched.pop(process, {}):
            del self.by_id[actor].watchers[process, shown]
        for watchers in self._early_watchers.values():
            for key in [key for key in watchers if key[0] == process]:
                del watchers[key]
        for early in [early for early, watchers in self._early_watchers.items() if not watchers]:
            del self._early_watchers[early]
        return self.owned_by(process)

    def _add(self, actor: Actor) -> None:
        self.by_id[actor.id] = actor
        if actor.stage is not Stage.DEAD:
            self._living[actor.job] += 1
            if not actor.spec.detached:
                self._owned.setdefault(actor.owner, {})[actor.id] = None

    def _tell_from_now(self, actor: Actor, process: Process, shown: bytes) -> None:
        actor.watchers[process, shown] = None
        self._watched.setdefault(process, {})[actor.id, shown] = None

    def _unwatch(self, process: Process, actor: bytes, shown: bytes) -> None:
        if (watched := self._watched.get(process)) is not None:
            watched.pop((actor, shown), None)
            if not watched:
                del self._watched[process]

    def creator_died(self, process: Process, out: list[Instruction]) -> None:
        """What it was about to create will not be."""
        lost = [claim.actor for claim in self.claims.values() if claim.process == process]
        lost += [actor for actor, watchers in self._early_watchers.items() if process in watchers.values()]
        for actor in dict.fromkeys(lost):
            text = f"actor ({actor.hex()[:8]}) was never created: its creator died first"
            self.give_up(actor, Fault(ErrorCode.ACTOR_DIED, text), out)

    def give_up(self, actor: bytes, cause: Fault | bytes, out: list[Instruction]) -> None:
        """An actor that was not heard of yet never will be."""
        if (claim := self.claims.pop(actor, None)) is not None:
            del self.names[claim.namespace, claim.name]
        for watcher, shown in self._early_watchers.pop(actor, {}):
            out.append(TellActorDown(watcher, shown, True, cause))
        ghost = Actor(ActorSpec(actor, "", 0, {}, {}), b"", (0, 0), 0)
        self._add(ghost)
        self._bury(ghost, cause, out)

    def _bury(self, actor: Actor, cause: Fault | bytes, out: list[Instruction]) -> None:
        if actor.stage is not Stage.DEAD:
            self._living[actor.job] -= 1
            if not self._living[actor.job]:
                del self._living[actor.job]
            if (owned := self._owned.get(actor.owner)) is not None:
                owned.pop(actor.id, None)
                if not owned:
                    del self._owned[actor.owner]
        actor.stage = Stage.DEAD
        actor.cause = cause
        actor.record = b""
        if actor.worker is not None:
            self._of_worker.pop(actor.worker, None)
            actor.worker = None
        self._free_name(actor)
        for process, shown in actor.watchers:
            out.append(TellActorDown(process, shown, True, cause))
            self._unwatch(process, actor.id, shown)
        actor.watchers = {}
        _record(actor, out)
        self._dead[actor.id] = None
        if len(self._dead) > REMEMBERED:
            oldest = next(iter(self._dead))
            del self._dead[oldest], self.by_id[oldest]
            for alias in [alias for alias, known in self.aliases.items() if known == oldest]:
                out.append(RecordActor(alias, "", {}))
            self.aliases = {alias: known for alias, known in self.aliases.items() if known != oldest}
            out.append(RecordActor(oldest, "", {}))

    def _free_name(self, actor: Actor) -> None:
        if self.names.get((actor.spec.namespace, actor.spec.name)) == actor.id:
            del self.names[actor.spec.namespace, actor.spec.name]

    def check(self) -> None:
        """Assert the invariants."""
        living = [actor for actor in self.by_id.values() if actor.stage is not Stage.DEAD]
        assert self._living == Counter(actor.job for actor in living), f"ACT-5: {self._living}"
        owned = {(owner, actor) for owner, actors in self._owned.items() for actor in actors}
        assert owned == {(actor.owner, actor.id) for actor in living if not actor.spec.detached}, f"ACT-5: {owned}"
        watched = {(process, *key) for process, keys in self._watched.items() for key in keys}
        telling = {(process, actor.id, shown) for actor in living for process, shown in actor.watchers}
        assert watched == telling, f"ACT-5: {watched ^ telling}"
        for actor in self.by_id.values():
            has_worker = actor.stage in (Stage.STARTING, Stage.ALIVE)
            assert (actor.worker is not None) == has_worker, f"ACT-1: {actor} is {actor.stage}"
            assert actor.worker is None or self._of_worker[actor.worker] is actor, f"ACT-1: {actor}"
            limit = actor.spec.max_restarts
            assert limit == -1 or actor.restarts_used <= limit, f"ACT-3: {actor}"
            if actor.stage is Stage.DEAD:
                assert actor.cause is not None and not actor.watchers, f"ACT-4: {actor}"
        for (namespace, name), actor_id in self.names.items():
            if (claim := self.claims.get(actor_id)) is not None:
                assert (claim.namespace, claim.name) == (namespace, name), f"ACT-2: {name}"
            else:
                actor = self.by_id[actor_id]
                assert actor.stage is not Stage.DEAD, f"ACT-2: {name} leads to the dead {actor}"
                assert (actor.spec.namespace, actor.spec.name) == (namespace, name), f"ACT-2: {name}"


def _how(status: int, reason: str, is_for_memory: bool) -> str:
    if status == NODE_LOST:
        return reason
    if is_for_memory:
        return f"its process was {reason}"
    return f"its process {'was ' if status < 0 else ''}{how_ended(status)}"


def _up(actor: Actor, process: Process, shown: bytes) -> TellActorUp:
    assert actor.worker is not None
    return TellActorUp(process, shown, actor.worker, actor.incarnation)


def _tell_up(actor: Actor, out: list[Instruction]) -> None:
    for process, shown in actor.watchers:
        out.append(_up(actor, process, shown))


def _record(actor: Actor, out: list[Instruction]) -> None:
    spec = actor.spec
    out.append(
        RecordActor(
            actor.id,
            actor.stage.value,
            {"class_name": spec.class_name, "name": spec.name, "namespace": spec.namespace, "pid": actor.pid,
             "job": actor.job, "detached": spec.detached, "incarnation": actor.incarnation},
        )
    )  # fmt: skip
