"""The dynamic task graph: tasks as nodes; data, control and stateful edges. Pure.

A data edge leads from a task to one that uses its result, a control edge from a task to one that it submitted, a
stateful edge from a call of an actor to the next one that ran on it; where only the control store knows the calls, to
the next one of the same caller. Collapsed, all tasks of one name are one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.dashboard.collector import Task
from weft.observe import event_records as ev

MOST_NODES = 400
_STATUSES = {"FINISHED": "ok", "FAILED": "failed"}
DATA, CONTROL, STATE = "data", "control", "state"
Edge = tuple[str, str, str]


def edges(tasks: Sequence[Task]) -> list[Edge]:
    """(from, to, kind) between tasks that are known."""
    known = {task.id for task in tasks}
    found: list[Edge] = []
    last_call: dict[str, str] = {}
    for task in sorted(tasks, key=lambda one: one.started_s or 0.0):
        found += [(source, task.id, DATA) for source in task.uses if source in known]
        if task.parent in known:
            found.append((task.parent, task.id, CONTROL))
        if task.actor and task.started_s is not None:
            if task.actor in last_call:
                found.append((last_call[task.actor], task.id, STATE))
            last_call[task.actor] = task.id
        elif task.previous_call in known:
            found.append((task.previous_call, task.id, STATE))
    return found


def from_store(row: Mapping[str, Any]) -> Task:
    """A task of which the control store has a row; see `inspection.stored_rows`."""
    uses = list(dict.fromkeys(ev.task_of(bytes.fromhex(need)).hex() for need in row["needs"]))
    return Task(
        row["task_id"],
        row["name"],
        parent=row["parent_task_id"] or "",
        status=_STATUSES.get(row["state"], "submitted"),
        attempt=row["attempt_number"] + 1,
        actor=row["actor_id"] or "",
        uses=uses,
        previous_call=row["previous_call_id"] or "",
    )


def whole(tasks: Sequence[Task], limit: int = MOST_NODES) -> dict[str, Any]:
    """The newest tasks, one node each."""
    shown = list(tasks)[-limit:]
    links = edges(shown)
    depth = _depths([task.id for task in shown], links)
    nodes = [
        {"id": task.id, "name": task.name or "?", "status": task.status, "depth": depth[task.id], "count": 1}
        for task in shown
    ]
    return {"by": "task", "nodes": nodes, "edges": _rows(links), "left_out": len(tasks) - len(shown)}


def collapsed(tasks: Sequence[Task], limit: int = MOST_NODES) -> dict[str, Any]:
    """One node a name."""
    names = Counter(task.name or "?" for task in tasks)
    kept = dict(names.most_common(limit))
    name_of = {task.id: task.name or "?" for task in tasks}
    counts: Counter[Edge] = Counter()
    for source, target, kind in edges(tasks):
        if name_of[source] in kept and name_of[target] in kept:
            counts[name_of[source], name_of[target], kind] += 1
    depth = _depths(list(kept), [edge for edge in counts if edge[0] != edge[1]])
    failed = Counter(task.name or "?" for task in tasks if task.status == "failed")
    nodes = [
        {"id": name, "name": name, "status": "failed" if failed[name] else "ok", "depth": depth[name], "count": count}
        for name, count in kept.items()
    ]
    rows = [{**row, "count": counts[edge]} for row, edge in zip(_rows(counts), counts, strict=True)]
    return {"by": "function", "nodes": nodes, "edges": rows, "left_out": len(names) - len(kept)}


def _rows(links: Iterable[Edge]) -> list[dict[str, Any]]:
    return [{"source": source, "target": target, "kind": kind} for source, target, kind in links]


def _depths(ids: Sequence[str], links: Sequence[Edge]) -> dict[str, int]:
    """How many edges the longest way to each node has; edges that close a circle are left out."""
    after: dict[str, list[str]] = {one: [] for one in ids}
    for source, target, _ in links:
        after[source].append(target)
    depth = dict.fromkeys(ids, 0)
    for source, targets in _in_order(after):
        for target in targets:
            depth[target] = max(depth[target], depth[source] + 1)
    return depth


def _in_order(after: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Each node before those that come after it, with these. An edge back to a node on the way to its source closes a
    circle, and is left out."""
    forward: dict[str, list[str]] = {}
    on_the_way: set[str] = set()
    ended: list[str] = []
    for first in after:
        if first in forward:
            continue
        way = [(first, iter(after[first]))]
        on_the_way.add(first)
        forward[first] = []
        while way:
            source, rest = way[-1]
            target = next(rest, None)
            if target is None:
                way.pop()
                on_the_way.discard(source)
                ended.append(source)
            elif target not in on_the_way:
                forward[source].append(target)
                if target not in forward:
                    forward[target] = []
                    on_the_way.add(target)
                    way.append((target, iter(after[target])))
    for source in reversed(ended):
        yield source, forward[source]
