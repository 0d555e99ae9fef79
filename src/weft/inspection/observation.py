"""What an observer may ask a node daemon: its events, its tallies, and rows of all that there is.

Runs in the daemon's thread, made at the first question, so a node that nobody looks at pays nothing. Every node tells
its own (`node_...`); the one that is asked for the whole puts the answers of all living nodes together and leaves out
those that do not answer in time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from weft.engine.node.operations import Outcome, Pending, gather
from weft.engine.state.resources import to_floats
from weft.engine.wire.messages import Request
from weft.inspection.reasons import Reasons
from weft.inspection.survey import MOST_ROWS
from weft.machine.gpus import GpuReader
from weft.observe.node_past import counters
from weft.store.tables import HEIRS, KV, OBJECTS

if TYPE_CHECKING:
    from weft import _native
    from weft.engine.node.nodes import Nodes
    from weft.engine.node.operations import Operations
    from weft.engine.node.people import People
    from weft.engine.node.requests import Requests
    from weft.engine.state.node import NodeState
    from weft.observe.node_past import NodePast
    from weft.store.tables import MemoryTables

ANSWER_S = 10.0
MOST_EVENTS = 1 << 20
_KEYS = {
    "actors": "actor_id",
    "jobs": "job_id",
    "placement_groups": "placement_group_id",
    "cluster_events": "event_id",
}
_SURVEYED = ("tasks", "objects", "stacks")
BOARDS = b"boards\0"


class Observation:
    """One daemon's operations for observers."""

    def __init__(
        self,
        state: NodeState,
        port: _native.NodePort,
        tables: MemoryTables,
        operations: Operations,
        nodes: Nodes,
        people: People,
        requests: Requests,
        flush: Callable[[], None],
        past: NodePast,
    ) -> None:
        """`flush`: take in what workers have written."""
        self._state = state
        self._port = port
        self._tables = tables
        self._nodes = nodes
        self._people = people
        self._requests = requests
        self._flush = flush
        self._past = past
        self._gpus = GpuReader()
        offer = operations.offer
        offer("events", self.events)
        offer("rows", self.rows)
        offer("stored_rows", self.stored_rows, of_head=True)
        for name in ("events", "rows", "errors", "logs", "boards", "machine", "past", "runs"):
            offer(f"node_{name}", getattr(self, f"node_{name}"))
        offer("errors", lambda params: self._of_all("node_errors", params))
        offer("logs", lambda params: self._of_all("node_logs", params))
        offer("boards", lambda params: self._of_all("node_boards", params))
        offer("machines", lambda params: self._of_all("node_machine", params))
        offer("past", lambda params: self._of_all("node_past", params))
        offer("runs", lambda params: self._of_all("node_runs", params))
        offer("node_metrics", self.node_metrics)
        offer("node_inputs", self.node_inputs)
        offer("inputs", lambda params: self._of_all("node_inputs", params))
        offer("node_inputs_part", self.node_inputs_part)
        offer("inputs_part", lambda params: self._of_all("node_inputs_part", params))
        offer("node_breakpoints", lambda params: [row for _, row in requests.told.breakpoints.values()])
        offer("breakpoints", lambda params: self._of_all("node_breakpoints", params))

    # ---- events ----

    def node_events(self, params: dict[str, Any]) -> dict[str, Any]:
        since = {int(slot): int(number) for slot, number in params.get("since", {}).items()}
        most = max(0, min(int(params.get("most", MOST_EVENTS)), MOST_EVENTS))
        return {
            "node_id": self._nodes.node_id,
            "time_ns": time.time_ns(),
            "clock_ns": time.monotonic_ns(),
            "slots": self._port.events(since, most),
            "titles": self._titles(),
        }

    def events(self, params: dict[str, Any]) -> Pending:
        """Of all nodes: [node_events]. `since`: {node id: {slot: number of the first event that is wanted}}."""
        since = params.get("since", {})
        asked = {
            view.number: self._nodes.ask_node(
                view.number,
                "node_events",
                {"since": since.get(view.node_id, {}), "most": params.get("most", MOST_EVENTS)},
                ANSWER_S,
            )
            for view in self._nodes.all_views()
        }
        return gather(asked).map(_answers)

    def _titles(self) -> dict[str, str]:
        """What each process is, for a person, by its number."""
        state = self._state
        titles = {str(job.pid): "driver" for process, job in state.drivers.items() if self._nodes.is_local(process)}
        for worker in state.workers:
            actor = state.actors.of_worker(worker.process)
            titles[str(worker.pid)] = "worker" if actor is None else f"actor {actor.spec.class_name}"
        return titles

    # ---- the past ----

    def node_past(self, params: dict[str, Any]) -> dict[str, Any]:
        """Stretches of time that ended after `since_s`."""
        stretches = self._past.since(float(params.get("since_s", 0)))
        return {
            "node_id": self._nodes.node_id,
            "refused": self._past.refused,
            "stretches": [msgspec.to_builtins(one) for one in stretches],
        }

    def node_runs(self, params: dict[str, Any]) -> Pending:
        """Events of runs that ended, as `NodePast.find` chooses them."""
        pending = Pending()
        here = {"node_id": self._nodes.node_id, "time_ns": time.time_ns(), "clock_ns": time.monotonic_ns()}

        def came(found: bytes | Exception) -> None:
            if isinstance(found, Exception):
                pending.fail(found)
            else:
                pending.resolve({**here, "events": found})

        self._past.find(params, came)
        return pending

    # ---- what went wrong, what was written, how busy it is ----

    def node_errors(self, params: dict[str, Any]) -> dict[str, Any]:
        told = self._requests.told
        return {
            "node_id": self._nodes.node_id,
            "errors": list(told.errors),
            "left_out": told.errors_left_out,
            "failures": list(self._people.failures),
        }

    def node_inputs(self, params: dict[str, Any]) -> list[tuple[str, int]]:
        """Of failed tasks whose id begins so: (task, bytes of what it was called with)."""
        return self._requests.told.inputs.find(params["task"])

    def node_inputs_part(self, params: dict[str, Any]) -> bytes:
        """Of what that task was called with, from an offset on; empty where it is not kept."""
        return self._requests.told.inputs.part(params["task"], int(params["offset"]))

    def node_logs(self, params: dict[str, Any]) -> dict[str, Any]:
        """`since`: {node id: number of the first line that is wanted}; `limit`, `pid`, `text` as LogStore.find."""
        self._flush()
        logs = self._people.logs
        pid = params.get("pid")
        lines = logs.find(
            int(params.get("since", {}).get(self._nodes.node_id, 0)),
            int(params.get("limit", 1000)),
            None if pid is None else int(pid),
            str(params.get("text", "")),
        )
        return {
            "node_id": self._nodes.node_id,
            "lines": [msgspec.to_builtins(line) for line in lines],
            "dropped": logs.dropped,
        }

    def node_boards(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        """What libraries publish for pages of their own (`weft.util.board`)."""
        found = []
        for key, value in self._tables.scan(KV, BOARDS):
            page, _, name = key[len(BOARDS) :].decode().partition("\0")
            found.append({"page": page, "name": name, "board": value})
        return found

    def node_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._port.statistics()
        return {
            **counters(self._port),
            "gpus": self._gpus.rows(),
            "node_id": self._nodes.node_id,
            "arena_bytes": port["arena_bytes"],
            "objects": port["objects"],
            "spilled_objects": port["spilled_objects"],
        }

    def node_metrics(self, params: dict[str, Any]) -> Pending:
        """All that the node's Prometheus endpoint tells; what user code has counted is asked of its processes now."""
        pending = Pending()
        self._requests.told.surveys.begin(lambda _: pending.resolve(None), "metrics", 1)

        def whole(_: object) -> dict[str, Any]:
            state = self._state
            places = [worker.place for worker in state.workers]
            return {
                "machine": self.node_machine({}),
                "resources": {
                    "total": to_floats(state.resources.total),
                    "available": to_floats(state.resources.available),
                },
                "workers": {place.value: places.count(place) for place in set(places)},
                "demands": sum(demand.wanted for demand in state.demands.by_key.values()),
                "actors": dict(Counter(actor.stage.value for actor in state.actors.by_id.values())),
                "log_lines_dropped": self._people.logs.dropped,
                "user": [msgspec.to_builtins(one) for one in self._requests.told.user_metrics.totals()],
            }

        return pending.map(whole)

    def _of_all(self, method: str, params: dict[str, Any]) -> Pending:
        """What every living node answers, a list."""
        return self._nodes.ask_all(method, params, ANSWER_S).map(_answers)

    # ---- rows ----

    def node_rows(self, params: dict[str, Any]) -> Any:
        """Rows of one kind ("tasks", "objects", "stacks", "workers", "actors", "jobs", "placement_groups",
        "cluster_events"), as this node knows them. LookupError for another kind."""
        what, limit = _checked(params)
        requests = self._requests
        if what in _SURVEYED or what == "actors":
            asked = requests.actor_rows(limit) if what == "actors" else requests.survey(what, limit)
            return asked.map(lambda rows: self._reasons().explain(what, rows))
        reply = requests.answer((0, 0), Request(0, f"list_{_plain(what)}", {"limit": limit}))
        assert reply is not None
        if reply.error_kind:
            raise RuntimeError(reply.error)
        return self._reasons().explain(what, cast(list[dict[str, Any]], reply.value))

    def _reasons(self) -> Reasons:
        return Reasons(self._state, self._nodes.all_views())

    def rows(self, params: dict[str, Any]) -> Pending:
        """Of all nodes, each thing once."""
        what, limit = _checked(params)
        asked = self._nodes.ask_all("node_rows", {"what": what, "limit": limit}, ANSWER_S)
        return asked.map(lambda outcomes: _merged(what, _answers(outcomes))[:limit])

    def stored_rows(self, params: dict[str, Any]) -> Pending:
        """ "objects" or "tasks", as the control store knows them, and no process: those of the dead, too."""
        from weft.inspection import stored_rows

        cluster, answer = self._nodes.cluster, Pending()
        tables = {table: self._tables.scan(table) for table in stored_rows.READ}
        nodes = {member.number: member.node_id for member in self._nodes.all_members()}
        unread = [OBJECTS, HEIRS] if cluster is not None else []

        def came(rows: list[tuple[bytes, bytes]], error: str) -> None:
            if error:
                answer.fail(ConnectionError(f"the control store cannot be read: {error}"))
                return
            tables[unread.pop()] = rows
            read()

        def read() -> None:
            if unread and cluster is not None:
                cluster.inheritance.left.directory.scan(unread[-1], came)
            else:
                self._nodes.pids_of(set(nodes.values())).map(listed).then(answer.settle)

        def listed(answers: list[dict[str, int]]) -> list[dict[str, Any]]:
            processes = stored_rows.Processes(nodes, {worker: pid for one in answers for worker, pid in one.items()})
            return stored_rows.listing(str(params.get("what")), tables, processes, int(params.get("limit", MOST_ROWS)))

        read()
        return answer


def _plain(what: str) -> str:
    return "groups" if what == "placement_groups" else what


def _checked(params: dict[str, Any]) -> tuple[str, int]:
    what = params.get("what")
    if what not in (*_SURVEYED, "workers", *_KEYS):
        raise LookupError(f"there is no listing of {what!r}")
    return what, max(0, min(int(params.get("limit", MOST_ROWS)), MOST_ROWS))


def _answers(outcomes: dict[int, Outcome]) -> list[Any]:
    return [outcome.value for _, outcome in sorted(outcomes.items()) if not outcome.error_kind]


def _merged(what: str, answers: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Several daemons may know of a thing; the one where it runs knows most."""
    if what not in _KEYS:
        return [row for rows in answers for row in rows]
    key = "group" if what == "placement_groups" else _KEYS[what]
    found: dict[Any, dict[str, Any]] = {}
    for rows in answers:
        for row in rows:
            known = found.get(row[key])
            if known is None or any(row.get(name) and not known.get(name) for name in ("node_id", "why_pending")):
                found[row[key]] = row
    return list(found.values())
