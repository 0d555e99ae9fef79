"""What processes may ask their node daemon: the table of methods, by the name in `messages.Request`.

Runs in the daemon's thread, never on a task's way. Each method is a function of who asks and of typed parameters
(`methods`), of the part that has what it needs: `listing`, `told`, `key_values`, or this file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.node import methods
from weft.engine.node.key_values import KeyValues
from weft.engine.node.methods import Asker
from weft.engine.node.operations import Pending
from weft.engine.state import events as ev
from weft.engine.state.actor_log import Batch, LogRows
from weft.engine.state.actors import Stage
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire.messages import CreateGroup, Message, Reply, Request
from weft.inspection.listing import Listing, page
from weft.inspection.survey import MOST_ROWS
from weft.inspection.told import Told
from weft.store.tables import ACTOR_LOGS, Delete, MemoryTables, Put

if TYPE_CHECKING:
    from weft import _native
    from weft.engine.node.chronicle import Chronicle
    from weft.engine.state.cluster import NodeView
    from weft.engine.state.node import NodeState

Function = Callable[..., object]
_encode = msgspec.msgpack.Encoder().encode


class Requests:
    """The methods of one daemon."""

    def __init__(
        self,
        state: NodeState,
        port: _native.NodePort,
        tables: MemoryTables,
        chronicle: Chronicle,
        listing: Listing,
        feed: Callable[[ev.Event], None],
        call_later: Callable[[float, Callable[[], None]], object],
        views: Callable[[], list[NodeView]],
        more: Mapping[str, Function] = MappingProxyType({}),
    ) -> None:
        """`views`: the living nodes; `more`: the methods of other parts of the daemon."""
        self._state = state
        self._port = port
        self._tables = tables
        self._chronicle = chronicle
        self._feed = feed
        self._listing = listing
        self.told = Told(listing, self._send, call_later)
        self.logs = LogRows(
            lambda key: tables.get(ACTOR_LOGS, key),
            lambda rows: tables.write(
                [Delete(ACTOR_LOGS, key) if row is None else Put(ACTOR_LOGS, key, row) for key, row in rows]
            ),
            lambda prefix: tables.scan(ACTOR_LOGS, prefix),
        )
        self.key_values = KeyValues(tables, call_later)
        self._views = views
        self.keep_replicas: Callable[[Process, int, int, list[str]], None] = lambda entry, size, replicas, nodes: None
        """The cluster's (`cluster.replicas`)."""
        self.home_of: Callable[[Process], str] = lambda entry: ""
        """The cluster's (`cluster.homes`)."""
        self._started_s = time.time()
        self._table = {**self._methods(), **more}

    def _methods(self) -> dict[str, Function]:
        listing = self._listing
        return {
            "nodes": listing.nodes,
            "cluster_resources": listing.cluster_resources,
            "available_resources": listing.available_resources,
            "assigned_resources": listing.assigned_resources,
            "workers": listing.workers,
            "list_workers": listing.list_workers,
            "job_info": listing.job_info,
            "list_jobs": listing.list_jobs,
            "actor_info": self._actor_info,
            "list_actors": self._list_actors,
            "place_of": self._place_of,
            "list_named_actors": listing.list_named_actors,
            "metrics": self.told.metrics,
            "task_failed": self.told.task_failed,
            "task_inputs": self.told.task_inputs,
            "breakpoint_opened": self.told.breakpoint_opened,
            "breakpoint_closed": self.told.breakpoint_closed,
            "told": self.told.told,
            "list_tasks": self._list_tasks,
            "list_objects": self._list_objects,
            "list_stacks": self._list_stacks,
            "list_cluster_events": self._list_cluster_events,
            "why_pending": self._why_pending,
            "statistics": self._statistics,
            "get_actor": self._get_actor,
            "claim_actor_name": self._claim_actor_name,
            "create_group": self._create_group,
            "get_group": self._get_group,
            "list_groups": self._list_groups,
            "actor_log_open": self._actor_log_open,
            "actor_log_append": self._actor_log_append,
            "kv_get": self.key_values.get,
            "kv_keys": self.key_values.keys,
            "kv_put": self.key_values.put,
            "kv_del": self.key_values.delete,
            "keep_replicas": self._keep_replicas,
            "object_home": self._object_home,
        }

    def answer(self, process: Process, request: Request) -> Reply | None:
        """None when the reply is sent later."""
        return methods.answer(self._table, process, request, self._send)

    def _send(self, process: Process, message: Message) -> None:
        self._port.send(*process, kinds.CONTROL, _encode(message))

    # ---- the node ----

    def _keep_replicas(
        self, asker: Asker, entry: int, generation: int, bytes: int, replicas: int, nodes: list[str]
    ) -> None:
        """Of an object that was put on this node, and fetched on others."""
        self.keep_replicas((entry, generation), bytes, replicas, nodes)

    def _object_home(self, asker: Asker, entry: int, generation: int) -> str:
        return self.home_of((entry, generation))

    def _list_tasks(self, asker: Asker, limit: int = MOST_ROWS) -> Pending:
        return self.survey("tasks", limit)

    def _list_objects(self, asker: Asker, limit: int = MOST_ROWS) -> Pending:
        return self.survey("objects", limit)

    def _list_stacks(self, asker: Asker, limit: int = MOST_ROWS) -> Pending:
        return self.survey("stacks", limit)

    def survey(self, what: str, limit: int) -> Pending:
        """What the processes of this node know: of "tasks", "objects" or "stacks"."""
        answer, located = Pending(), Pending()
        self.told.surveys.begin(answer.resolve, what, max(0, min(limit, MOST_ROWS)))
        if what != "tasks":
            return answer
        answer.then(lambda told: self._listing.located(told.value, "worker_pid").then(located.settle))
        return located

    def _list_actors(self, asker: Asker, limit: int = MOST_ROWS, offset: int = 0) -> Pending:
        return self.actor_rows(limit, offset)

    def actor_rows(self, limit: int, offset: int = 0) -> Pending:
        return self._listing.located(self._listing.actor_rows(limit, offset), "pid")

    def _actor_info(self, asker: Asker, actor: bytes) -> Pending:
        info = self._listing.actor_info(actor)
        return self._listing.located([] if info is None else [info], "pid").map(lambda rows: rows[0] if rows else None)

    def _place_of(self, asker: Asker, slot: int, generation: int) -> Pending:
        """The node and the pid of a process, by the name that it has here."""
        row = self._listing.place_row((slot, generation))
        return self._listing.located([row], "pid").map(lambda rows: rows[0])

    def _list_cluster_events(self, asker: Asker, limit: int = MOST_ROWS, offset: int = 0) -> list[dict[str, Any]]:
        """What happened to the cluster, the latest first."""
        return self._chronicle.rows(max(0, offset), max(0, min(limit, MOST_ROWS)))

    def _why_pending(self, asker: Asker, shape: int) -> tuple[str, str]:
        """Why no worker is there for what the asking process calls by that number, and what no node can ever give."""
        from weft.inspection.reasons import Reasons

        return Reasons(self._state, self._views()).of_shape(asker.process, shape)

    def _statistics(self, asker: Asker) -> dict[str, object]:
        return {
            **self._port.statistics(),
            "leases": len(self._state.leases.by_id),
            "demands": len(self._state.demands.by_key),
            "workers": sum(1 for _ in self._state.workers),
            "actors_alive": sum(a.stage is not Stage.DEAD for a in self._state.actors.by_id.values()),
            "jobs": len(self._state.jobs),
            "rows": self._tables.statistics(),
            "daemon_pid": os.getpid(),
            "up_s": time.time() - self._started_s,
        }

    # ---- actors ----

    def _get_actor(self, asker: Asker, name: str, namespace: str = "") -> bytes | None:
        """The pickled handle of a named actor, or nothing."""
        return self._state.actors.handle_of(namespace, name)

    def _claim_actor_name(
        self, asker: Asker, name: str, actor: bytes, handle: bytes, namespace: str = "", get_if_exists: bool = False
    ) -> bytes | None:
        """Set a name aside before the creation is sent. The other's handle, when it is taken and `get_if_exists`."""
        known = self._state.actors.handle_of(namespace, name)
        if known is None:
            self._feed(ev.ActorNameClaimed(asker.process, actor, name, namespace, handle))
        elif not get_if_exists:
            raise ValueError(f"The actor name '{name}' is already taken in namespace '{namespace}'")
        return known

    def _actor_log_open(self, asker: Asker, actor: bytes) -> tuple[int, bytes | None, list[bytes], list[bytes]]:
        """(epoch, the last checkpoint, the calls behind it, ids of the objects that they name)."""
        epoch, checkpoint, calls = self.logs.open(actor)
        rows = [_encode(call) for call in calls]
        return epoch, None if checkpoint is None else _encode(checkpoint), rows, self.logs.refs(actor)

    def _actor_log_append(self, asker: Asker, actor: bytes, epoch: int, batch: bytes) -> None:
        self.logs.append(actor, epoch, msgspec.msgpack.decode(batch, type=Batch))

    # ---- placement groups ----

    def _create_group(self, asker: Asker, spec: CreateGroup) -> None:
        """One with a name, which must be free."""
        if self._state.groups.find_named(spec.namespace, spec.name) is not None:
            raise ValueError(
                f"The placement group name '{spec.name}' is already taken in namespace '{spec.namespace}'. Choose "
                "another name, or use get_placement_group()."
            )
        self._feed(ev.GroupRequested(asker.process, spec))

    def _get_group(
        self, asker: Asker, name: str | None = None, namespace: str = "", group: bytes = b""
    ) -> dict[str, object] | None:
        """By its name or its id."""
        groups = self._state.groups
        found = groups.by_id.get(group) if name is None else groups.find_named(namespace, name)
        return self._state.grouping.row(found) if found is not None else None

    def _list_groups(self, asker: Asker, limit: int | None = None, offset: int = 0) -> list[dict[str, object]]:
        groups = self._state.groups.by_id.values()
        return [self._state.grouping.row(one) for one in (groups if limit is None else page(groups, limit, offset))]
