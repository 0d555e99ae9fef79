"""What ran in the last hours, put together of what all nodes have kept. Runs in whoever looks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from weft.observe.collect import Asks
from weft.observe.event_records import STATUSES, decode, is_nil

OTHERS = "(others)"
"""What more functions than a node tells apart have done together."""


def ended(client: Asks, for_s: float) -> dict[str, Any]:
    """Of the last so many seconds: `rows`, what each function did, those that took longest first, and how complete they
    are (`recorded`, `missed` and `thinned` events, `refused` by disks; `from_s`, the first moment that is known)."""
    since_s = time.time() - for_s
    rows: dict[str, dict[str, Any]] = {}
    whole: dict[str, Any] = {"recorded": 0, "missed": 0, "thinned": 0, "refused": 0, "from_s": time.time()}
    for node in client.ask("past", since_s=since_s):
        whole["refused"] += node["refused"]
        for stretch in node["stretches"]:
            whole["from_s"] = min(whole["from_s"], stretch["from_s"])
            for count in ("recorded", "missed", "thinned"):
                whole[count] += stretch[count]
            for name, sums in stretch["functions"].items():
                _add(rows, name or OTHERS, sums)
    return {**whole, "rows": sorted(rows.values(), key=lambda row: -row["seconds"])}


def _add(rows: dict[str, dict[str, Any]], name: str, sums: Iterable[int]) -> None:
    runs, failed, retried, run_ns, longest_ns = sums
    row = rows.setdefault(name, {"name": name, "runs": 0, "failed": 0, "retried": 0, "seconds": 0.0, "longest_s": 0.0})
    row["runs"] += runs
    row["failed"] += failed
    row["retried"] += retried
    row["seconds"] += run_ns / 1e9
    row["longest_s"] = max(row["longest_s"], longest_ns / 1e9)


def single_runs(client: Asks, for_s: float, name: str, order: str, limit: int) -> list[dict[str, Any]]:
    """Runs that ended in the last so many seconds, of one function or, with an empty name, of all. `order`: "newest",
    "longest", or "failed": the newest of those that did not end well."""
    wanted: dict[str, Any] = {"since_s": time.time() - for_s, "name": name, "limit": limit}
    nodes = client.ask("runs", **wanted, failed=order == "failed", longest=order == "longest")
    found = [row for node in nodes for row in _rows(node)]
    key = "seconds" if order == "longest" else "ended_s"
    return sorted(found, key=lambda row: -float(row[key]))[:limit]


def _rows(node: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    offset_ns = node["time_ns"] - node["clock_ns"]
    for event in decode(node["events"]):
        yield {
            "name": event.name,
            "task_id": event.task.hex(),
            "actor_id": "" if is_nil(event.other) else event.other.hex(),
            "ended_s": (event.at_ns + event.duration_ns + offset_ns) / 1e9,
            "seconds": event.duration_ns / 1e9,
            "outcome": STATUSES[event.status] if event.status < len(STATUSES) else "?",
            "attempt": event.attempt,
            "pid": event.pid,
            "node_id": node["node_id"],
        }
