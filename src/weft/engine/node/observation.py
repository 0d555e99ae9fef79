"""What an observer may ask a node daemon: its events, its tallies, and rows of all that there is.

Runs in the daemon's thread, made at the first question, so a node that nobody looks at pays nothing. Every node tells
its own (`node_...`); the one that is asked for the whole puts the answers of all living nodes together and leaves out
those that do not answer in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weft.engine.node.operations import Outcome, Pending, gather
from weft.engine.node.survey import MOST_ROWS
from weft.engine.observe.events import TALLIES
from weft.engine.wire.messages import Request

if TYPE_CHECKING:
    from weft.engine.node.daemon import NodeDaemon

ANSWER_S = 10.0
MOST_EVENTS = 1 << 20
_KEYS = {"actors": "actor_id", "jobs": "job_id", "placement_groups": "placement_group_id"}
_SURVEYED = ("tasks", "objects")


class Observation:
    """One daemon's operations for observers."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        offer = daemon.operations.offer
        offer("node_events", self.node_events)
        offer("events", self.events)
        offer("node_rows", self.node_rows)
        offer("rows", self.rows)
        offer("node_tallies", self.node_tallies)

    # ---- events ----

    def node_events(self, params: dict[str, Any]) -> dict[str, Any]:
        since = {int(slot): int(number) for slot, number in params.get("since", {}).items()}
        most = max(0, min(int(params.get("most", MOST_EVENTS)), MOST_EVENTS))
        return {
            "node_id": self._daemon.node_id,
            "time_ns": time.time_ns(),
            "clock_ns": time.monotonic_ns(),
            "slots": self._daemon.port.events(since, most),
            "titles": self._titles(),
        }

    def events(self, params: dict[str, Any]) -> Pending:
        """Of all nodes: [node_events]. `since`: {node id: {slot: number of the first event that is wanted}}."""
        since = params.get("since", {})
        asked = {
            view.number: self._daemon.ask_node(
                view.number,
                "node_events",
                {"since": since.get(view.node_id, {}), "most": params.get("most", MOST_EVENTS)},
                ANSWER_S,
            )
            for view in self._daemon.all_views()
        }
        return gather(asked).map(_answers)

    def _titles(self) -> dict[str, str]:
        """What each process is, for a person, by its number."""
        state = self._daemon.state
        titles = {str(job.pid): "driver" for process, job in state.drivers.items() if self._daemon.is_local(process)}
        for worker in state.workers:
            actor = state.actors.of_worker(worker.process)
            titles[str(worker.pid)] = "worker" if actor is None else f"actor {actor.spec.class_name}"
        return titles

    def node_tallies(self, params: dict[str, Any]) -> dict[str, int]:
        return dict(zip(TALLIES, self._daemon.port.tallies(), strict=True))

    # ---- rows ----

    def node_rows(self, params: dict[str, Any]) -> Any:
        """Rows of one kind ("tasks", "objects", "workers", "actors", "jobs", "placement_groups"), as this node knows
        them. LookupError for another kind."""
        what, limit = _checked(params)
        if what in _SURVEYED:
            pending = Pending()
            self._daemon.requests.surveys.begin(pending.resolve, what, limit)
            return pending
        reply = self._daemon.requests.answer((0, 0), Request(0, f"list_{_plain(what)}", {"limit": limit}))
        assert reply is not None
        if reply.error_kind:
            raise RuntimeError(reply.error)
        return reply.value

    def rows(self, params: dict[str, Any]) -> Pending:
        """Of all nodes, each thing once."""
        what, limit = _checked(params)
        asked = {
            view.number: self._daemon.ask_node(view.number, "node_rows", {"what": what, "limit": limit}, ANSWER_S)
            for view in self._daemon.all_views()
        }
        return gather(asked).map(lambda outcomes: _merged(what, _answers(outcomes))[:limit])


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
            if known is None or (row.get("node_id") and not known.get("node_id")):
                found[row[key]] = row
    return list(found.values())
