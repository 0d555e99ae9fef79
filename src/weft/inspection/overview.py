"""What a cluster does now, for people and for autoscalers: nodes, resources, what waits and why, jobs, failures.

Runs in the daemon's thread, made at the first question. Every node tells what it has itself (`node_report`); the one
that is asked for `status` or `demand` puts the reports of all together. A node that does not answer in `ANSWER_S` is
listed with what was last known of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations, Outcome, Pending
from weft.engine.node.people import People
from weft.engine.state.node import NodeState
from weft.engine.state.resources import to_floats
from weft.engine.state.shortage import demand_rows, group_rows
from weft.engine.state.workers import Place

if TYPE_CHECKING:
    from weft.engine.wire.link_messages import Member

ANSWER_S = 5.0
SUBMISSION_VARIABLE = "WEFT_SUBMISSION_ID"
_HIDDEN = ("node:",)


class Overview:
    """One daemon's operations `node_report`, `status` and `demand`."""

    def __init__(
        self,
        state: NodeState,
        port: _native.NodePort,
        operations: Operations,
        nodes: Nodes,
        people: People,
        submissions: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._state = state
        self._port = port
        self._nodes = nodes
        self._people = people
        self._submissions = submissions
        operations.offer("node_report", self.node_report)
        operations.offer("status", self.status, of_head=True)
        operations.offer("demand", self.demand, of_head=True)

    def node_report(self, params: dict[str, Any]) -> dict[str, Any]:
        state = self._state
        views = self._nodes.all_views()
        rows = demand_rows(state.demands, state.guests, views)
        if self._nodes.is_head:
            rows += group_rows(state.groups.living.values(), views)
        places = [worker.place for worker in state.workers]
        return {
            "demands": [msgspec.to_builtins(row) for row in rows],
            "jobs": self._jobs(),
            "failures": list(self._people.failures),
            "demands_queued": sum(demand.wanted > 0 for demand in state.demands.by_key.values()),
            "workers": len(places),
            "tasks_running": places.count(Place.LEASED),
            "actors": places.count(Place.ACTOR),
            "objects": self._port.statistics(),
            "idle_s": self._people.idle_s(),
        }

    def status(self, params: dict[str, Any]) -> Pending:
        """{"address", "nodes", "demands", "jobs", "submissions", "failures", "time_s"}"""
        return self._reports().map(self._status)

    def demand(self, params: dict[str, Any]) -> Pending:
        """What an autoscaler needs: {"demands", "nodes", "time_s"}, see deploy/README.md."""

        def shorten(outcomes: dict[int, Outcome]) -> dict[str, Any]:
            whole = self._status(outcomes)
            return {name: whole[name] for name in ("demands", "nodes", "time_s")}

        return self._reports().map(shorten)

    # ---- inside ----

    def _reports(self) -> Pending:
        return self._nodes.ask_all("node_report", {}, ANSWER_S)

    def _status(self, outcomes: dict[int, Outcome]) -> dict[str, Any]:
        reports = {number: outcome.value for number, outcome in outcomes.items() if not outcome.error_kind}
        silent = {number: outcome.error for number, outcome in outcomes.items() if outcome.error_kind}
        failures = [row for report in reports.values() for row in report["failures"]]
        failures += [
            {"time_s": row["end_s"], "what": f"job {row['submission_id']} failed: {row['message']}"}
            for row in self._submissions()
            if row["status"] == "FAILED"
        ]
        return {
            "address": self._nodes.address,
            "time_s": time.time(),
            "nodes": [self._node(member, reports.get(member.number), silent) for member in self._nodes.all_members()],
            "demands": [row for report in reports.values() for row in report["demands"]],
            "jobs": [row for report in reports.values() for row in report["jobs"]],
            "submissions": self._submissions(),
            "failures": sorted(failures, key=lambda row: row["time_s"])[-20:],
        }

    def _node(self, member: Member, report: dict[str, Any] | None, silent: dict[int, str]) -> dict[str, Any]:
        view = next((view for view in self._nodes.all_views() if view.number == member.number), None)
        state = "dead" if not member.is_alive else "draining" if view is not None and view.is_draining else "alive"
        free = {} if view is None else to_floats(view.available)
        return {
            "node_id": member.node_id,
            "address": member.address,
            "state": state,
            "is_head": member.number == self._nodes.head_number,
            "why": member.death or silent.get(member.number, ""),
            "labels": member.labels,
            "total": _visible(member.total) if member.is_alive else {},
            "available": {name: max(0.0, amount) for name, amount in _visible(free).items()} if member.is_alive else {},
            **{
                name: report[name] if report is not None else None
                for name in ("workers", "tasks_running", "actors", "idle_s", "demands_queued")
            },
            "object_store_used_bytes": report["objects"]["used_bytes"] if report is not None else None,
        }

    def _jobs(self) -> list[dict[str, Any]]:
        """The drivers that are attached to this node."""
        rows = []
        for process, job in self._state.drivers.items():
            if not self._nodes.is_local(process):
                continue
            hello = job.hello
            variables = hello.environment if hello is not None else {}
            rows.append(
                {
                    "job": job.id,
                    "pid": job.pid,
                    "node_id": self._nodes.node_id,
                    "folder": hello.cwd if hello is not None else "",
                    "submission_id": variables.get(SUBMISSION_VARIABLE, ""),
                    "workers": sum(w.binding is not None and w.binding.job == job.id for w in self._state.workers),
                }
            )
        return rows


def _visible(amounts: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if not name.startswith(_HIDDEN)}
