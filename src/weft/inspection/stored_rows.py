"""What the control store knows of objects and of the tasks that make them, as rows for people and tools.

Pure: from the rows of the tables, of a running cluster or of the folder of one that has ended, to listings. No process
is asked, so what is listed is there when all owners are dead. An object that never left its node, or was gone within a
second, is in no table.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from weft.engine.cluster.directory import ObjectRow, Owned, decode_heir, decode_row, owned_of
from weft.engine.node.kept_objects import decode_kept
from weft.engine.state.actor_log import REF
from weft.engine.state.resources import to_floats
from weft.engine.wire.link_messages import GlobalProcess, LeftRow, Member
from weft.ids import worker_id
from weft.store.tables import ACTOR_LOGS, HEIRS, KEPT, NODES, OBJECT_NAMES, OBJECTS

READ = (OBJECTS, HEIRS, KEPT, OBJECT_NAMES, ACTOR_LOGS)
Row = dict[str, Any]
_ID_BYTES = 16
# As native/ledger.hpp and native/wire.hpp have them: how a row's body begins and whether a task follows the value; the
# value's place, refs and bytes; a TaskRow; TaskEdges; a TaskHeader; a PackedRef.
_BEGIN = struct.Struct("<II")
_VALUE = struct.Struct("<IIQ")
_TASK_ROW = struct.Struct("<IIiIIIII")
_EDGES = struct.Struct("<16s16s")
_TASK = struct.Struct("<16s16x16s4xI16xI20x")
_REF = struct.Struct("<16s8xI4x")
_NOBODY = bytes(_ID_BYTES)
_VALUE_ROW, _LINEAGE_ROW = 0, 2
_ERROR = 3


class Made(NamedTuple):
    """The task in a row."""

    task: bytes
    name: str
    attempt: int
    retries: int
    actor: bytes
    inputs: list[bytes]
    """Objects, whoever owns them: data edges."""
    parent: bytes
    """Who submitted it: the control edge."""
    previous_call: bytes
    """What its caller had called on the same actor before: the stateful edge. Both are nil where none is known."""


class Found(NamedTuple):
    """An object, with all that the tables say of it."""

    id: bytes
    row: LeftRow | None
    """None: only that it is kept, by a node of its own."""
    resources: dict[str, float]
    owner: GlobalProcess
    """Who has it now."""
    names: list[str]
    actors: list[bytes]
    """Whose exact state names it."""


class Processes:
    """Who is who: nodes by their numbers, and the pids of those that live, by worker id."""

    def __init__(self, nodes: Mapping[int, str], pids: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._pids = pids

    def node(self, number: int) -> str:
        return self._nodes.get(number, f"number {number}")

    def owner(self, process: GlobalProcess) -> Row:
        node = self.node(process[0])
        worker = worker_id(node, *process[1:]).hex()
        pid = self._pids.get(worker)
        state = "DEAD" if pid is None else "ALIVE"
        return {"owner_node_id": node, "owner_worker_id": worker, "pid": pid, "owner_state": state}


def nodes_in(tables: Mapping[str, list[tuple[bytes, bytes]]]) -> dict[int, str]:
    """Of a folder."""
    members = (msgspec.msgpack.decode(value, type=Member) for _, value in tables.get(NODES, ()))
    return {member.number: member.node_id for member in members}


def listing(what: str, tables: Mapping[str, list[tuple[bytes, bytes]]], processes: Processes, limit: int) -> list[Row]:
    """Of "objects" or "tasks"; LookupError for another kind."""
    if what not in ("objects", "tasks"):
        raise LookupError(f"the control store has no listing of {what!r}, only of objects and tasks")
    found = _objects(tables)
    return (_object_rows(found, processes) if what == "objects" else _task_rows(found, processes))[:limit]


def _objects(tables: Mapping[str, list[tuple[bytes, bytes]]]) -> list[Found]:
    heirs: dict[Owned, GlobalProcess] = {owned_of(key): decode_heir(value).heir for key, value in tables.get(HEIRS, ())}
    rows: dict[bytes, list[tuple[GlobalProcess, ObjectRow | None]]] = {}
    for key, value in tables.get(OBJECTS, ()):
        owner, identity = owned_of(key)
        rows.setdefault(identity, []).append((owner, decode_row(value)))
    for identity, value in tables.get(KEPT, ()):
        kept = decode_kept(value)
        rows.setdefault(identity, []).append((kept.owner, decode_row(kept.row) if kept.row else None))
    names: dict[bytes, list[str]] = {}
    for key, identity in tables.get(OBJECT_NAMES, ()):
        names.setdefault(identity, []).append(key.decode("utf-8", "replace").replace("\0", "/"))
    actors: dict[bytes, list[bytes]] = {}
    for key, _ in tables.get(ACTOR_LOGS, ()):
        if key[_ID_BYTES : _ID_BYTES + 1] == REF:
            actors.setdefault(key[_ID_BYTES + 1 :], []).append(key[:_ID_BYTES])
    found = []
    for identity in rows.keys() | names.keys():
        owner, one = _newest(identity, rows.get(identity, []), heirs)
        resources = {} if one is None or one.shape is None else to_floats(dict(one.shape.amounts))
        left = None if one is None else one.row
        found.append(Found(identity, left, resources, owner, names.get(identity, []), actors.get(identity, [])))
    return sorted(found, key=lambda one: one.id)


def _newest(
    identity: bytes, rows: list[tuple[GlobalProcess, ObjectRow | None]], heirs: Mapping[Owned, GlobalProcess]
) -> tuple[GlobalProcess, ObjectRow | None]:
    """Who owns it now, with the row of the owner that is nearest to it in the chain of heirs."""
    best: tuple[int, GlobalProcess, ObjectRow | None] = sys.maxsize, (0, 0, 0), None
    for first, row in rows:
        chain, owner = {first}, first
        while (heir := heirs.get((owner, identity))) is not None and heir not in chain:
            chain.add(heir)
            owner = heir
        if best[2] is None or (row is not None and len(chain) < best[0]):
            best = len(chain), owner, row
    return best[1:]


def _value_of(body: bytes) -> tuple[str, int, Made | None]:
    """The state, the bytes of a value that is in the row, and the task."""
    kind, has_task = _BEGIN.unpack_from(body)
    if kind != _VALUE_ROW:
        return "LOST" if kind == _LINEAGE_ROW else "PENDING", 0, _task_of(body, 0)
    where, nested, size = _VALUE.unpack_from(body, _BEGIN.size)
    at = _BEGIN.size + _VALUE.size + _REF.size * nested + size
    return "FAILED" if where == _ERROR else "FINISHED", size, _task_of(body, at) if has_task else None


def _task_of(body: bytes, at: int) -> Made:
    _, _, retries, _, record_bytes, name_bytes, deps, has_edges = _TASK_ROW.unpack_from(body, at)
    at += _TASK_ROW.size
    task, actor, attempt, nested = _TASK.unpack_from(body, at)
    at += record_bytes
    inputs = _refs(body[at - _REF.size * nested : at])
    name = body[at : at + name_bytes].decode("utf-8", "replace")
    at += name_bytes
    inputs += _refs(body[at : at + _REF.size * deps])
    at += _REF.size * deps
    parent, previous_call = _EDGES.unpack_from(body, at) if has_edges else (_NOBODY, _NOBODY)
    return Made(task, name, attempt, retries, actor, inputs, parent, previous_call)


def _refs(packed: bytes) -> list[bytes]:
    """Of objects, each once."""
    return list(dict.fromkeys(identity for identity, is_actor in _REF.iter_unpack(packed) if not is_actor))


def _id_of(task: bytes) -> str | None:
    return None if task == _NOBODY else task.hex()


def _object_rows(found: Iterable[Found], processes: Processes) -> list[Row]:
    rows = []
    for one in found:
        state, size, made = ("UNKNOWN", 0, None) if one.row is None else _value_of(one.row.body)
        arena = None if one.row is None else one.row.arena
        rows.append(
            {
                "object_id": one.id.hex(),
                "object_size": size if arena is None else arena[3],
                "task_status": state,
                "node_id": None if arena is None else processes.node(arena[0]),
                "is_in_shared_memory": arena is not None,
                **processes.owner(one.owner),
                "named_by": one.names,
                "held_by_actors": [actor.hex() for actor in one.actors],
                "task_id": None if made is None else made.task.hex(),
                "name": None if made is None else made.name,
                "needs": [] if one.row is None else [need.hex() for need in one.row.needs],
            }
        )
    return rows


def _task_rows(found: Iterable[Found], processes: Processes) -> list[Row]:
    """A task once, with its results that are known."""
    rows: dict[bytes, Row] = {}
    for one in found:
        state, _, made = ("", 0, None) if one.row is None else _value_of(one.row.body)
        if one.row is None or made is None:
            continue
        row = rows.setdefault(
            made.task,
            {
                "task_id": made.task.hex(),
                "name": made.name,
                "state": state,
                "attempt_number": made.attempt,
                "retries_left": made.retries,
                "actor_id": made.actor.hex() if one.row.function == 0 else None,
                "parent_task_id": _id_of(made.parent),
                "previous_call_id": _id_of(made.previous_call),
                "former_owners": [processes.owner(owner) for owner in one.row.before],
                **processes.owner(one.owner),
                "required_resources": one.resources,
                "needs": [need.hex() for need in made.inputs],
                "results": [],
            },
        )
        row["results"].append(one.id.hex())
    return list(rows.values())
