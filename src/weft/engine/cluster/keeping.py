"""What the acting head keeps in the control store, so that another node can take over, and in a folder of its machine,
so that the cluster can be started again: nodes, actors, names, placement groups, jobs, keys and values, the chronicle.

Runs in the daemon's thread, on the head only. Rows are written behind what happens, never before it: who must know
that something is safe asks to be called `when_kept`. Processes in rows are named as all nodes know them, and the
record of an actor's creation is in the form that travels between nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.state.actors import ALIAS, Actor
from weft.engine.state.instructions import Fault, PublishGroup, RecordActor
from weft.engine.state.placement import Group, GroupState
from weft.engine.wire import kinds
from weft.engine.wire.link_messages import GlobalProcess, Member
from weft.engine.wire.messages import ActorSpec, CreateGroup, DriverHello
from weft.store.state.chain_rows import Delete, Put, Write
from weft.store.tables import (
    ACTOR_LOGS,
    ACTORS,
    EVENTS,
    FUNCTIONS,
    GROUPS,
    JOBS,
    KEPT,
    KV,
    KV_DONE,
    NODES,
    OBJECT_NAMES,
    MemoryTables,
)

if TYPE_CHECKING:
    from weft import _native
    from weft.engine.cluster.membership import Membership
    from weft.engine.cluster.names import Names
    from weft.engine.node.functions import FunctionTable
    from weft.engine.state.node import NodeState
    from weft.store.head_folder import HeadFolder, Tables
    from weft.store.served_store import Store

STATE, ALIASED = b"s", b"a"
"""At the end of an actor's key: what changes of it, and the rows of other ids for it."""
ACTOR_KEY_BYTES = 16
DRIVER, SUBMISSION = b"d", b"s"
"""At the beginning of a job's key."""
MIRRORED = (KV_DONE, KV, KEPT, ACTOR_LOGS, OBJECT_NAMES, EVENTS)
"""Tables of the daemon's memory whose every change is written."""
_encode = msgspec.msgpack.Encoder().encode


class ActorRow(msgspec.Struct, frozen=True, array_like=True):
    """What an actor is from its creation on."""

    spec: ActorSpec
    record: bytes
    owner: GlobalProcess
    job: int


class ActorStateRow(msgspec.Struct, frozen=True, array_like=True):
    stage: str
    incarnation: int
    moves: int
    cause: tuple[int, str] | bytes | None


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    driver: GlobalProcess
    pid: int
    hello: DriverHello | None


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    spec: CreateGroup
    state: str
    creator: GlobalProcess
    job: int
    actor: bytes


class Keeping:
    """The head's rows."""

    def __init__(
        self,
        port: _native.NodePort,
        state: NodeState,
        tables: MemoryTables,
        functions: FunctionTable,
        members: Membership,
        names: Names,
        store: Store | None,
    ) -> None:
        self._port = port
        self._state = state
        self._tables = tables
        self._function_table = functions
        self._members = members
        self._names = names
        self._store = store
        self.on_job_ended: Callable[[], None] = lambda: None
        self.keep_submitted: Callable[[], None] = lambda: None
        """Write the jobs that were submitted, into a store that is empty."""
        self._is_stored = False
        """The control store has been begun."""
        self._folder: HeadFolder | None = None
        """Where the rows are kept on this machine, too."""
        self._for_folder: list[list[Write]] | None = None
        """What the folder is to have behind the rows that are being read for it."""
        self._is_loading = False
        self._last = 0
        self._unkept: dict[int, Callable[[], None] | None] = {}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._jobs: set[int] = set()
        self._functions: set[int] = set()
        self._actors: set[bytes] = set()
        """Jobs, classes and actors whose rows have been written."""
        for table in MIRRORED:
            tables.subscribe(table, b"", self._row_changed)

    def begin(self) -> None:
        """This node is the head, and others may take over."""
        self._is_stored = self._store is not None

    def end(self) -> None:
        """This node is the head no more."""
        self._is_stored = False
        self._unkept.clear()
        self._waiting.clear()
        for known in (self._actors, self._jobs, self._functions):
            known.clear()
        self.let_go_of_folder()

    @property
    def is_active(self) -> bool:
        return (self._is_stored or self._folder is not None or self._for_folder is not None) and not self._is_loading

    # ---- the folder ----

    def use_folder(self, folder: HeadFolder) -> None:
        """It has the rows that there are, and is to have those that come."""
        self._folder = folder

    @property
    def folder_path(self) -> Path | None:
        return None if self._folder is None else self._folder.path

    def expect_folder(self) -> None:
        """The rows that are in the control store are about to be read for a folder."""
        self._for_folder = []

    def begin_folder(self, folder: HeadFolder, tables: Tables, epoch: int) -> None:
        folder.begin(tables, epoch)
        early, self._for_folder, self._folder = self._for_folder or [], None, folder
        for batch in early:
            folder.keep(batch, lambda *_: None)

    def let_go_of_folder(self) -> None:
        """All that was to be kept is in it after this."""
        self._for_folder = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def when_kept(self, call: Callable[[], None]) -> None:
        """Once all that was written until now is safe; at once where there is no store."""
        if self._unkept:
            self._waiting.append((self._last, call))
        else:
            call()

    def write(self, batch: list[Write], then: Callable[[], None] | None = None) -> None:
        if not self.is_active:
            if then is not None:
                then()
            return
        self._last += 1
        number = self._last
        self._unkept[number] = then
        missing = (self._is_stored and self._store is not None) + (self._folder is not None)

        def done(_: Any, error: str) -> None:
            """An error is a later head's doing: this one's end is near, and nobody is told that it is safe."""
            nonlocal missing
            if error or number not in self._unkept:
                return
            missing -= 1
            if missing > 0:
                return
            del self._unkept[number]
            if then is not None:
                then()
            oldest = next(iter(self._unkept), self._last + 1)
            while self._waiting and self._waiting[0][0] < oldest:
                self._waiting.popleft()[1]()

        if self._is_stored and self._store is not None:
            self._store.keep(batch, done)
        if self._folder is not None:
            self._folder.keep(batch, done)
        elif self._for_folder is not None:
            self._for_folder.append(batch)
        if not missing:
            done(None, "")

    # ---- rows ----

    def member(self, member: Member, then: Callable[[], None] | None = None) -> None:
        self.write([Put(NODES, member.number.to_bytes(4, "big"), _encode(member))], then)

    def actor(self, one: RecordActor) -> None:
        if not self.is_active:
            return
        if not one.state:
            keys = (one.actor, one.actor + STATE, one.actor + ALIASED)
            self._actors.discard(one.actor)
            return self.write([Delete(ACTORS, key) for key in keys])
        if one.state == ALIAS:
            return self.write([Put(ACTORS, one.actor + ALIASED, one.row["known"])])  # type: ignore[arg-type]
        actor = self._state.actors.by_id[one.actor]
        batch: list[Write] = []
        if actor.id not in self._actors:
            self._actors.add(actor.id)
            self._keep_job(actor.job, batch)
            self._keep_function(actor.spec.class_key, batch)
            owner = self._names.to_global(actor.owner)
            batch.append(Put(ACTORS, actor.id, _encode(ActorRow(actor.spec, self._exported(actor), owner, actor.job))))
        cause = (actor.cause.code, actor.cause.text) if isinstance(actor.cause, Fault) else actor.cause
        row = ActorStateRow(one.state, actor.incarnation, actor.moves, cause)
        batch.append(Put(ACTORS, actor.id + STATE, _encode(row)))
        return self.write(batch)

    def _exported(self, actor: Actor) -> bytes:
        return self._port.to_link(kinds.TASK, actor.record) if actor.record else b""

    def _keep_function(self, key: int, batch: list[Write]) -> None:
        if key not in self._functions and (record := self._function_table.find(key)) is not None:
            self._functions.add(key)
            batch.append(Put(FUNCTIONS, key.to_bytes(8, "little"), record))

    def _keep_job(self, job_id: int, batch: list[Write]) -> None:
        job = self._state.jobs.get(job_id)
        if job is not None and job_id not in self._jobs:
            self._jobs.add(job_id)
            row = JobRow(self._names.to_global(job.driver), job.pid, job.hello)
            batch.append(Put(JOBS, DRIVER + b"%d" % job_id, _encode(row)))

    def job_ended(self, job_id: int) -> None:
        if job_id in self._jobs:
            self._jobs.discard(job_id)
            self.write([Delete(JOBS, DRIVER + b"%d" % job_id)])
        self.on_job_ended()

    def group(self, one: PublishGroup) -> None:
        group = self._state.groups.by_id.get(one.spec.group)
        if self.is_active and group is not None:
            self.write(self._group_rows(group, one.state))

    def _group_rows(self, group: Group, state: str) -> list[Write]:
        if state == GroupState.REMOVED.value:
            return [Delete(GROUPS, group.id)]  # every node has learnt of it
        batch: list[Write] = []
        self._keep_job(group.job, batch)
        creator = self._names.to_global(group.creator)
        row = GroupRow(group.spec, state, creator, group.job, group.actor)
        return [*batch, Put(GROUPS, group.id, _encode(row))]

    def submission(self, submission_id: str, row: bytes | None) -> None:
        key = SUBMISSION + submission_id.encode()
        self.write([Delete(JOBS, key) if row is None else Put(JOBS, key, row)])

    def _row_changed(self, table: str, key: bytes, value: bytes | None) -> None:
        if self.is_active:
            self.write([Delete(table, key) if value is None else Put(table, key, value)])

    def load(self, tables: dict[str, list[tuple[bytes, bytes]]]) -> None:
        """Rows that are in the store."""
        self._is_loading = True
        for table, rows in tables.items():
            self._tables.write([Put(table, key, value) for key, value in rows])
        self._is_loading = False

    def restored(self, actors: list[bytes], jobs: list[int], functions: list[int]) -> None:
        """These rows were read from the store."""
        self._actors.update(actors)
        self._jobs.update(jobs)
        self._functions.update(functions)

    def forget_functions(self, functions: list[int]) -> None:
        """Their rows are removed; an actor that needs one writes it again."""
        self._functions.difference_update(functions)

    def begin_anew(self) -> None:
        """The only server of the store is gone: write all again, into an empty one."""
        left = [then for then in self._unkept.values() if then is not None]
        left += [call for _, call in self._waiting]
        self._unkept.clear()
        self._waiting.clear()
        self.keep_all()
        for call in left:
            self.when_kept(call)

    def keep_all(self) -> None:
        """Into a store that is empty."""
        for known in (self._actors, self._jobs, self._functions):
            known.clear()
        for member in self._members.members.values():
            self.member(member)
        for actor in self._state.actors.by_id.values():
            self.actor(RecordActor(actor.id, actor.stage.value, {}))
        for alias, known_id in self._state.actors.aliases.items():
            self.actor(RecordActor(alias, ALIAS, {"known": known_id}))
        for group in self._state.groups.by_id.values():
            self.write(self._group_rows(group, group.state.value))
        for table in MIRRORED:
            for key, value in self._tables.scan(table):
                self.write([Put(table, key, value)])
        self.keep_submitted()
