"""What the pages ask for, by path; each answer is JSON. Used by many threads; what the control store has said of tasks
is kept for a moment, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from weft.dashboard import graph, profile, prometheus
from weft.dashboard.collector import Collector, Task
from weft.dashboard.past import Past
from weft.observe import past_runs
from weft.observe.collect import Asks

MOST_ROWS = 1000
HOUR_S = 3600
ORDERS = ("newest", "longest", "failed")
SEARCHED_ROWS = 10_000
"""Of which the page shows those that matter most."""
_ENDED = ("FINISHED", "FAILED")
STORE_S = 5.0
"""Tasks in the control store are read no more often."""
LONGEST_LINE = 4000
"""Of a log line; a page that is open asks for hundreds of them again and again."""
_LISTINGS = ("tasks", "objects", "workers", "actors", "jobs", "placement_groups", "stacks")
_DIGITS = 15
"""Of a number in a query: what JavaScript counts exactly."""
Query = dict[str, str]


class Pages:
    def __init__(self, client: Asks, collector: Collector, past: Past) -> None:
        self._client = client
        self._collector = collector
        self._past = past
        self._lock = threading.Lock()
        self._stored: dict[str, Task] = {}
        self._stored_s = -STORE_S
        """When these were read."""
        self._answers: dict[str, Callable[[Query], Any]] = {
            "cluster": self._cluster,
            "stream": self._stream,
            "graph": self._graph,
            "task": self._task,
            "errors": lambda query: self._client.ask("errors"),
            "logs": self._logs,
            "flame": self._flame,
            "boards": self._boards,
            "ended": self._ended,
            "runs": self._runs,
        }

    def answer(self, path: str, query: Query) -> Any:
        """LookupError for a path that is not there, ValueError for a query that makes no sense."""
        name, _, rest = path.partition("/")
        if name == "rows" and rest in _LISTINGS:
            return {"rows": self._rows(rest, _number(query, "limit", MOST_ROWS))}
        if path not in self._answers:
            raise LookupError(f"there is nothing at /api/{path}")
        return self._answers[path](query)

    def _rows(self, what: str, limit: int) -> list[dict[str, Any]]:
        """Of tasks, those that wait or run; of objects, the largest first."""
        if what not in ("tasks", "objects"):
            return self._client.ask("rows", what=what, limit=limit)  # type: ignore[no-any-return]
        rows = self._client.ask("rows", what=what, limit=SEARCHED_ROWS)
        if what == "tasks":
            return [row for row in rows if row["state"] not in _ENDED][:limit]
        return sorted(rows, key=lambda row: -row["object_size"])[:limit]

    def metrics(self) -> str:
        return prometheus.text(self._client.ask("node_metrics"))

    def _cluster(self, query: Query) -> Any:
        machines, charts = self._past.since(_number(query, "since", 0))
        return {"status": self._client.ask("status"), "machines": machines, "charts": charts}

    def _stream(self, query: Query) -> Any:
        return self._collector.since(_number(query, "since", 0), _number(query, "limit", 2000))

    def _graph(self, query: Query) -> Any:
        tasks = list(self._tasks().values())
        if name := query.get("name"):
            tasks = [task for task in tasks if task.name == name]
        return graph.whole(tasks) if query.get("by") == "task" or name else graph.collapsed(tasks)

    def _tasks(self) -> dict[str, Task]:
        """Of which events tell, or the control store does: processes and events may be gone."""
        with self._lock:
            if time.monotonic() - self._stored_s > STORE_S:
                rows = self._client.ask("stored_rows", what="tasks", limit=MOST_ROWS)
                self._stored = {row["task_id"]: graph.from_store(row) for row in rows}
                self._stored_s = time.monotonic()
            return {**self._stored, **{task.id: task for task in self._collector.known_tasks()}}

    def _task(self, query: Query) -> Any:
        """One task's story."""
        tasks = self._tasks()
        task = tasks.get(query.get("id", ""))
        if task is None:
            raise LookupError(f"nothing is recorded of task {query.get('id')!r} any more")
        found = [row for node in self._client.ask("errors") for row in node["errors"] if row["task_id"] == task.id]
        return {
            **dataclasses.asdict(task),
            "parent_name": tasks[task.parent].name if task.parent in tasks else "",
            "children": [other.id for other in tasks.values() if other.parent == task.id][:MOST_ROWS],
            "used_by": [other.id for other in tasks.values() if task.id in other.uses][:MOST_ROWS],
            "error": found[-1]["traceback"] if found else "",
            "why_pending": self._why_pending(task.id) if task.started_s is None else "",
        }

    def _why_pending(self, task: str) -> str:
        rows = self._client.ask("rows", what="tasks", limit=MOST_ROWS)
        return next((row["why_pending"] for row in rows if row["task_id"] == task), "")

    def _ended(self, query: Query) -> Any:
        return past_runs.ended(self._client, _number(query, "seconds", HOUR_S))

    def _runs(self, query: Query) -> Any:
        order = query.get("order", "newest")
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, but is {order[:40]!r}")
        for_s, limit = _number(query, "seconds", HOUR_S), min(_number(query, "limit", 200), MOST_ROWS)
        return {"rows": past_runs.single_runs(self._client, for_s, query.get("name", ""), order, limit)}

    def _logs(self, query: Query) -> Any:
        wanted: dict[str, Any] = {"limit": _number(query, "limit", 500), "text": query.get("text", "")}
        if query.get("pid"):
            wanted["pid"] = _number(query, "pid", 0)
        nodes = self._client.ask("logs", **wanted)
        for line in (line for node in nodes for line in node["lines"]):
            line["left_out"] = max(0, len(line["text"]) - LONGEST_LINE)
            line["text"] = line["text"][:LONGEST_LINE]
        return {"nodes": nodes}

    def _flame(self, query: Query) -> Any:
        """Of a worker or driver on this machine, and of no other process."""
        pid = _number(query, "pid", 0)
        known = {row["pid"] for row in self._client.ask("rows", what="workers", limit=MOST_ROWS)}
        if pid not in known:
            raise LookupError(f"process {pid} is no worker or driver of this cluster")
        return profile.flame(pid, _number(query, "seconds", 2))

    def _boards(self, query: Query) -> Any:
        boards = [row for rows in self._client.ask("boards") for row in rows]
        page = query.get("page")
        return {
            "boards": [
                {"page": row["page"], "name": row["name"], "board": json.loads(row["board"])}
                for row in boards
                if page in (None, row["page"])
            ]
        }


def _number(query: Query, name: str, default: int) -> int:
    value = query.get(name, str(default))
    if not (value.isascii() and value.isdigit()) or len(value) > _DIGITS:
        raise ValueError(f"{name} must be a number of up to {_DIGITS} digits, but got {value[:40]!r}")
    return int(value)
