"""Objects that outlive all processes, because something does that names them: the state of an actor with exact state,
or a name (`put(name=)`).

Runs in the daemon's thread. The head has their rows: table `kept`, by id, with the owner that each has now. The table
goes where all others of the head go, so a cluster that is started again has it. Who finds a ref there reads the object
as one whose owner has died (`cluster.inheritance`). Owners hold what is kept until the head says that nothing names it
any more. On a node of its own the rows say who the owner is, nothing more.

    KPT-1  an object that something lasting names is held by its owner.
    KPT-2  an heir is told so before it may let the object go.
    KPT-3  its row, and those that it needs, are there as long as it is named, whoever dies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.node.functions import FunctionTable
from weft.engine.node.methods import Asker
from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations, Outcome, Pending
from weft.engine.node.storage import Storage
from weft.engine.state.actor_log import REF
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.net.loop import Loop
from weft.store.tables import ACTOR_LOGS, FUNCTIONS, KEPT, OBJECT_NAMES, Delete, MemoryTables, Put, Write

if TYPE_CHECKING:
    from weft.engine.wire.link_messages import GlobalProcess

WAIT_S = 2.0
"""So long the writer of a log waits for the rows of what it names. A call that may not be repeated has none before it
is answered."""
AGAIN_S = 0.5
"""After there was no head for long."""
UNWANTED_KEPT = 4096
NO_JOB = -1
"""Whose functions these are: their jobs may have ended."""
_ID_BYTES = 16


class KeptRow(msgspec.Struct, frozen=True, array_like=True):
    owner: tuple[int, int, int]
    """A GlobalProcess, whose module a node of its own has no other use for."""
    needs: list[bytes] = []
    function: int = 0
    row: bytes = b""
    """A `cluster.directory.ObjectRow`; empty on a node of its own."""


decode_kept = msgspec.msgpack.Decoder(KeptRow).decode
_encode = msgspec.msgpack.Encoder().encode


class KeptObjects:
    """One daemon's side of it, and the head's."""

    def __init__(
        self,
        loop: Loop,
        port: _native.NodePort,
        tables: MemoryTables,
        functions: FunctionTable,
        operations: Operations,
        nodes: Nodes,
        storage: Storage,
        once: Callable[[Asker, bytes, Write, bool], bool],
        forget_left: Callable[[bytes], None],
    ) -> None:
        """`once`: see `KeyValues`. `forget_left`: of what a dead process has left and nobody wants any more."""
        self._loop = loop
        self._port = port
        self._tables = tables
        self._function_table = functions
        self._operations = operations
        self._nodes = nodes
        self._storage = storage
        self._once = once
        self._forget_left = forget_left
        self._here: set[bytes] = set()
        """Objects that processes of this node own or owned, and that the head has rows of."""
        self.rows: dict[bytes, KeptRow] = {}
        self._holders: dict[bytes, set[bytes]] = {}
        """What names them: keys of rows."""
        self._functions: dict[int, int] = {}
        """Rows that name each."""
        self._waiting: list[tuple[set[bytes], Callable[[], None]]] = []
        self._unwanted: dict[bytes, None] = {}
        """What was named and is not, before its owner had said that it holds it; the last ones."""
        for table in (KEPT, ACTOR_LOGS, OBJECT_NAMES):
            tables.subscribe(table, b"", self._changed)
        for name in ("keep_row", "drop_row", "find_kept", "rows_kept", "which_named"):
            operations.offer(name, getattr(self, f"_{name}"), of_head=True)
        operations.offer("let_go", self._let_go)

    # ---- what processes ask ----

    def requests(self) -> dict[str, Callable[..., object]]:
        return {
            "find_kept": self._asked,
            "name_object": self._name_object,
            "named_object": self._named_object,
            "delete_object": self._delete_object,
        }

    def _asked(self, asker: Asker, ids: list[bytes], wait: bool) -> Pending:
        """See `find`."""
        return self.find(ids, wait)

    def _name_object(self, asker: Asker, name: str, namespace: str, id: bytes) -> None:
        key = _name_key(namespace, name)
        if not self._once(asker, key, Put(OBJECT_NAMES, key, id), self._tables.get(OBJECT_NAMES, key) is None):
            self._release(id)
            raise ValueError(
                f"The object name '{name}' is already taken in namespace '{namespace}'. Choose another name, use "
                "get_object(), or free it with delete_object()."
            )

    def _named_object(self, asker: Asker, name: str, namespace: str) -> bytes:
        found = self._tables.get(OBJECT_NAMES, _name_key(namespace, name))
        if found is None:
            raise ValueError(
                f"no object has the name '{name}' in namespace '{namespace}': it was never put, was deleted, or is in "
                "another namespace."
            )
        return found

    def _delete_object(self, asker: Asker, name: str, namespace: str) -> None:
        key = _name_key(namespace, name)
        if not self._once(asker, key, Delete(OBJECT_NAMES, key), self._tables.get(OBJECT_NAMES, key) is not None):
            self._named_object(asker, name, namespace)  # raises

    # ---- any node ----

    def withdrawn(self, process: Process, payload: bytes) -> None:
        """An owner's word, on a node of its own."""
        self.withdraw((0, *process), payload[:_ID_BYTES])

    def deposited(self, process: Process, payload: bytes) -> None:
        """An owner's word, on a node of its own."""
        count, _ = kinds.DEPOSIT_BODY.unpack_from(payload)
        identity = payload[kinds.DEPOSIT_BODY.size + 4 * count :][:_ID_BYTES]
        self.keep(identity, KeptRow((0, *process)), b"")

    def has(self, identity: bytes) -> bool:
        """Whether an object of this node outlives its owner, though nobody may refer to it now."""
        return identity in self._here

    def keep(self, identity: bytes, row: KeptRow, function: bytes) -> None:
        self._here.add(identity)
        self._operations.perform("keep_row", {"id": identity, "row": _encode(row), "function": function})

    def withdraw(self, owner: GlobalProcess, identity: bytes) -> None:
        """The object is gone."""
        self._here.discard(identity)
        self._operations.perform("drop_row", {"id": identity, "owner": list(owner)})

    def find(self, ids: Collection[bytes], wait: bool) -> Pending:
        """(id, slot, generation) of those that are kept, in this node's names."""
        asked = self._operations.perform("find_kept", {"ids": list(ids), "wait": wait})
        return asked.map(lambda found: [(bytes(one), *self._to_local((a, b, c))) for one, a, b, c in found])

    def find_named(self, ids: Collection[bytes], then: Callable[[Collection[bytes]], None]) -> None:
        """Of these objects; asked until there is a head that answers. One of another version has no such answer."""

        def came(outcome: Outcome) -> None:
            if outcome.error_kind in ("", "LookupError"):
                then([bytes(identity) for identity in outcome.value or ()])
            else:
                self._loop.call_later(AGAIN_S, lambda: self.find_named(ids, then))

        if ids:
            self._operations.perform("which_named", {"ids": list(ids)}).then(came)
        else:
            then(())

    def _to_local(self, owner: GlobalProcess) -> Process:
        return owner[1:] if self._nodes.cluster is None else self._nodes.cluster.names.to_local(owner)

    def _let_go(self, params: dict[str, Any]) -> None:
        """Of a process of this node; nothing that lasts names it any more."""
        identity, process = bytes(params["id"]), (int(params["slot"]), int(params["generation"]))
        self._here.discard(identity)
        if self._port.is_alive(*process):
            self._port.send(*process, kinds.KEEP, kinds.KEEP_BODY.pack(identity, 0, 0))
        else:
            self._forget_left(identity)

    # ---- the head ----

    def _when_safe(self) -> Pending:
        """The answer to what must be asked of the next head again if this one dies before it is in the store."""
        answer = Pending()
        if self._nodes.cluster is None:
            return Pending.of(None)
        self._nodes.cluster.keeping.when_kept(lambda: answer.resolve(None))
        return answer

    def _keep_row(self, params: dict[str, Any]) -> Pending:
        row = decode_kept(params["row"])
        if row.function and params["function"] and row.function not in self._functions:
            self._function_table.keep(NO_JOB, params["function"])
            if self._nodes.cluster is not None:
                key = row.function.to_bytes(8, "little")
                self._nodes.cluster.keeping.write([Put(FUNCTIONS, key, params["function"])])
        self._tables.put(KEPT, bytes(params["id"]), params["row"])
        return self._when_safe()

    def _drop_row(self, params: dict[str, Any]) -> Pending:
        known = self.rows.get(bytes(params["id"]))
        if known is not None and list(known.owner) == list(params["owner"]):
            self._tables.delete(KEPT, bytes(params["id"]))
        return self._when_safe()

    def _find_kept(self, params: dict[str, Any]) -> Pending:
        ids = {bytes(one) for one in params["ids"]}
        found = Pending()

        def answer() -> None:
            rows = [[one, *self.rows[one].owner] for one in ids if one in self.rows]
            self._when_safe().then(lambda _: found.resolve(rows))

        missing = ids - self.rows.keys()
        if missing and params["wait"]:
            waiting = (missing, answer)
            self._waiting.append(waiting)
            self._loop.call_later(WAIT_S, lambda: self._answer(waiting))
        else:
            answer()
        return found

    def _answer(self, waiting: tuple[set[bytes], Callable[[], None]]) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting[1]()

    def _which_named(self, params: dict[str, Any]) -> list[bytes]:
        return [identity for identity in map(bytes, params["ids"]) if identity in self._holders]

    def _rows_kept(self, params: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        """(ObjectRow, FUNCTION record) of these and of what they need. Chains are walked."""
        found: dict[bytes, tuple[bytes, bytes]] = {}
        missing = [bytes(one) for one in params["ids"]]
        while missing:
            identity = missing.pop()
            row = self.rows.get(identity)
            if row is not None and row.row and identity not in found:
                found[identity] = (row.row, self._function_table.find(row.function) or b"")
                missing.extend(row.needs)
        return list(found.values())

    def _changed(self, table: str, key: bytes, value: bytes | None) -> None:
        """Also of what a new head reads back."""
        if table == KEPT:
            before = self.rows.pop(key, None)
            if value is not None:
                self._uses(decode_kept(value).function, 1)
            if before is not None:
                self._uses(before.function, -1)
            if value is None:
                if not self.rows:
                    self._storage.keep_for(None)
                return
            if self._nodes.cluster is not None:
                self._storage.keep_for(self._nodes.cluster.keeping.folder_path)
            self.rows[key] = decode_kept(value)
            if key in self._unwanted:
                del self._unwanted[key]
                self._loop.call_later(0, lambda: self._release(key))
            for waiting in list(self._waiting):
                waiting[0].discard(key)
                if not waiting[0]:
                    self._answer(waiting)
        elif table == OBJECT_NAMES:
            for identity in [one for one, names in self._holders.items() if key in names and one != value]:
                self._named(identity, key, False)
            if value is not None:
                self._named(value, key, True)
        elif key[_ID_BYTES : _ID_BYTES + 1] == REF:
            self._named(key[_ID_BYTES + 1 :], key, value is not None)

    def _uses(self, function: int, count: int) -> None:
        """So many rows more name it."""
        left = self._functions.get(function, 0) + count
        self._functions[function] = left
        if left == 0:
            del self._functions[function]
            self._function_table.drop(NO_JOB, function)
            if self._nodes.cluster is not None:
                self._nodes.cluster.inheritance.left.functions.look_later()

    def _named(self, identity: bytes, by: bytes, is_named: bool) -> None:
        holders = self._holders.setdefault(identity, set())
        if is_named:
            holders.add(by)
            self._unwanted.pop(identity, None)
            return
        holders.discard(by)
        if not holders:
            del self._holders[identity]
            self._loop.call_later(0, lambda: self._release(identity))  # not in the middle of a batch

    def _release(self, identity: bytes) -> None:
        row = self.rows.get(identity)
        if identity in self._holders:
            return
        if row is None:
            self._is_unwanted(identity)
            return
        cluster = self._nodes.cluster
        number, slot, generation = row.owner
        if cluster is None or number == cluster.names.number or number in cluster.members.links:
            params = {"id": identity, "slot": slot, "generation": generation}
            self._nodes.ask_node(number, "let_go", params)
        self._sweep()

    def _is_unwanted(self, identity: bytes) -> None:
        self._unwanted[identity] = None
        if len(self._unwanted) > UNWANTED_KEPT:
            del self._unwanted[next(iter(self._unwanted))]

    def _sweep(self) -> None:
        """Rows of the dead that nothing named needs. An heir may be about to say that it holds one of them."""
        reached: set[bytes] = set()
        missing = list(self._holders)
        while missing:
            identity = missing.pop()
            if identity not in reached and identity in self.rows:
                reached.add(identity)
                missing.extend(self.rows[identity].needs)
        gone: list[Write] = [
            Delete(KEPT, identity)
            for identity, row in self.rows.items()
            if identity not in reached and self._is_dead(row.owner)
        ]
        if gone:
            self._tables.write(gone)
            for one in gone:
                self._is_unwanted(one.key)

    def _is_dead(self, owner: GlobalProcess) -> bool:
        cluster = self._nodes.cluster
        if cluster is None or owner[0] == cluster.names.number:
            return not self._port.is_alive(*owner[1:])
        return owner[0] not in cluster.members.links or cluster.inheritance.is_buried(owner)


def _name_key(namespace: str, name: str) -> bytes:
    return f"{namespace}\0{name}".encode()
