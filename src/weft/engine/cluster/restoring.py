"""From the control store's rows to the tables of a new head.

Runs in the daemon's thread. `keeping` says what the rows are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.cluster import keeping
from weft.engine.cluster.keeping import ActorRow, ActorStateRow, GroupRow, JobRow, Keeping
from weft.engine.cluster.names import Names
from weft.engine.cluster.records import IncomingRecords
from weft.engine.node.functions import FunctionTable
from weft.engine.node.kept_objects import NO_JOB, decode_kept
from weft.engine.state import events as ev
from weft.engine.state.actors import Stage
from weft.engine.state.events import FoundActor, Process, RestoredActor, RestoredGroup
from weft.engine.state.node import NodeState
from weft.engine.wire.link_messages import GlobalProcess, Member
from weft.store.served_store import Store
from weft.store.tables import ACTORS, FUNCTIONS, GROUPS, JOBS, KEPT, KV, NODES

if TYPE_CHECKING:
    from weft.store.head_folder import Tables

_READ = (NODES, ACTORS, GROUPS, JOBS, FUNCTIONS, *keeping.MIRRORED)
_members = msgspec.msgpack.Decoder(Member)
_actors = msgspec.msgpack.Decoder(ActorRow)
_states = msgspec.msgpack.Decoder(ActorStateRow)
_groups = msgspec.msgpack.Decoder(GroupRow)
_jobs = msgspec.msgpack.Decoder(JobRow)


class Rows:
    """All that a head must know, as it was read."""

    def __init__(self, tables: Tables) -> None:
        self.members = [_members.decode(value) for _, value in tables[NODES]]
        self.groups = [_groups.decode(value) for _, value in tables[GROUPS]]
        self.mirrored = {table: tables[table] for table in keeping.MIRRORED}
        self.functions = tables[FUNCTIONS]
        self.actors: dict[bytes, ActorRow] = {}
        self.states: dict[bytes, ActorStateRow] = {}
        self.aliases: dict[bytes, bytes] = {}
        for key, value in tables[ACTORS]:
            actor, suffix = key[: keeping.ACTOR_KEY_BYTES], key[keeping.ACTOR_KEY_BYTES :]
            if suffix == keeping.STATE:
                self.states[actor] = _states.decode(value)
            elif suffix == keeping.ALIASED:
                self.aliases[actor] = value
            else:
                self.actors[actor] = _actors.decode(value)
        self.jobs: dict[int, JobRow] = {}
        self.submissions: list[bytes] = []
        for key, value in tables[JOBS]:
            if key.startswith(keeping.DRIVER):
                self.jobs[int(key[1:])] = _jobs.decode(value)
            else:
                self.submissions.append(value)


def rows_in(tables: Tables) -> Rows:
    """Of a folder, which has no table that is empty."""
    return Rows({table: tables.get(table, []) for table in _READ})


def describe(tables: Tables) -> str:
    """What a head that is started again finds, for people; empty when there is nothing."""
    if not tables:
        return ""
    rows = rows_in(tables)
    actors = sum(row.stage != Stage.DEAD.value for row in rows.states.values())
    counts = {"actor": actors, "key": len(rows.mirrored[KV]), "submitted job": len(rows.submissions)}
    counts["placement group"] = len(rows.groups)
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())


def next_number(tables: Tables) -> int:
    """That no node has had."""
    return max((int.from_bytes(key, "big") for key, _ in tables.get(NODES, [])), default=-1) + 1


def read_rows(store: Store, then: Callable[[Rows], None], failed: Callable[[str], None]) -> None:
    read_tables(store, lambda tables: then(Rows(tables)), failed)


def read_tables(store: Store, then: Callable[[Tables], None], failed: Callable[[str], None]) -> None:
    tables: Tables = {}

    def came(table: str, rows: Any, error: str) -> None:
        if error:
            failed(error)
            return
        tables[table] = rows
        if len(tables) == len(_READ):
            then(tables)

    for table in _READ:
        store.scan(table, functools.partial(came, table))


class Restoring:
    """Makes a daemon's tables those of the head."""

    def __init__(
        self,
        state: NodeState,
        feed: Callable[[ev.Event], None],
        functions: FunctionTable,
        names: Names,
        kept: Keeping,
        records: IncomingRecords,
        keep_only: Callable[[list[bytes]], None],
        restore_jobs: Callable[[list[bytes], bool], None],
    ) -> None:
        """`keep_only`: files of kept objects, those of these rows; `restore_jobs`: those that were submitted."""
        self._state = state
        self._feed = feed
        self._functions = functions
        self._names = names
        self._kept = kept
        self._records = records
        self._keep_only = keep_only
        self._restore_jobs = restore_jobs

    def restore(
        self,
        rows: Rows,
        epoch: int,
        old: Process | None,
        found: dict[bytes, FoundActor],
        bundles: dict[bytes, dict[int, int]],
        is_restart: bool = False,
    ) -> None:
        """`is_restart`: all nodes had ended."""
        dead = self._dead_here(rows)
        used = {(row.job, row.spec.class_key) for row in rows.actors.values()}
        used |= {(NO_JOB, decode_kept(value).function) for _, value in rows.mirrored[KEPT]}
        records = {int.from_bytes(key, "little"): record for key, record in rows.functions}
        for job, function in used:
            if function in records:
                self._functions.keep(job, records[function])
        needed = {row.job for row in rows.actors.values()} | {row.job for row in rows.groups}
        for job, row in rows.jobs.items():
            if job in needed:
                self._feed(ev.JobLearnt(self._names.to_local(row.driver), job, row.pid, row.hello))
        actors = [self._restored(actor, rows) for actor in rows.actors]
        groups = [
            RestoredGroup(row.spec, row.state, self._names.to_local(row.creator), row.job, row.actor)
            for row in rows.groups
        ]
        functions = [int.from_bytes(key, "little") for key, _ in rows.functions]
        self._kept.restored(list(rows.actors), list(rows.jobs), functions)
        if is_restart:  # its driver has ended with all others, and it has nothing that outlives a driver
            for job in rows.jobs.keys() - needed:
                self._kept.job_ended(job)
        self._feed(ev.TookOver(epoch, old, actors, rows.aliases, found, groups, bundles, is_restart))
        self._kept.load(rows.mirrored)
        if is_restart and rows.mirrored[KEPT]:
            self._keep_only([row for _, row in rows.mirrored[KEPT]])
        if rows.submissions:
            self._restore_jobs(rows.submissions, is_restart)
        for process in dead:
            self._feed(ev.ProcessDied(process, "it had died before", (), -9))

    def _restored(self, actor: bytes, rows: Rows) -> RestoredActor:
        row = rows.actors[actor]
        state = rows.states.get(actor) or ActorStateRow(Stage.PENDING.value, 0, 0, None)
        owner = self._names.to_local(row.owner) if state.stage != Stage.DEAD.value else (0, 0)
        record = self._imported(row.record) if state.stage != Stage.DEAD.value else b""
        return RestoredActor(row.spec, record, owner, row.job, state.stage, state.incarnation, state.moves, state.cause)

    def _imported(self, batch: bytes) -> bytes:
        """The record of a creation, in this node's names."""
        taken: list[bytes] = []
        if batch:
            self._records.deliver(self._names.number, batch, lambda *record: taken.append(record[3]))
        return taken[0] if taken else b""

    def _dead_here(self, rows: Rows) -> list[Process]:
        """Owners and drivers of this node that have died without the rows telling of it."""
        names: set[GlobalProcess] = {row.owner for row in rows.actors.values()} | {
            row.driver for row in rows.jobs.values()
        }
        local = [(slot, generation) for number, slot, generation in names if number == self._names.number and slot]
        return [process for process in local if not self._state.is_here(process)]
