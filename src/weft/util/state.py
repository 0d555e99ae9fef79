"""What there is in the cluster: nodes, workers, actors, tasks, objects, placement groups, drivers; as `ray.util.state`.

>>> list_nodes()[0].state
'ALIVE'

Each row is a dict whose keys are attributes too. A listing has at most `limit` rows; `offset` skips the first ones, so
that long ones are read in pages. Nodes, actors, drivers and groups are asked of the node daemon; workers, tasks and
objects of the daemon of every node, which asks its processes: a process that is too busy to answer within two seconds
is left out. Tasks are listed while they wait and run, and afterwards only as long as they are kept to be run again. A
task's `node_id` and `worker_pid` are of where it runs, its `owner_node_id` and `pid` of the process that submitted it.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import weft
from weft.engine.process.session import rpc
from weft.exceptions import RpcError

__all__ = [
    "Row",
    "get_actor",
    "get_job",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_cluster_events",
    "list_jobs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]

DEFAULT_LIMIT = 100
MOST_ROWS = 10_000
DEFAULT_TIMEOUT_S = 30.0
_COMPARISONS = ("=", "!=")

Filter = tuple[str, str, Any]


class Row(dict[str, Any]):
    """One thing."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r} here, only {', '.join(self)}") from None


def _listing(name: str, ask: Callable[[int, float], Iterable[dict[str, Any]]], doc: str) -> Callable[..., list[Row]]:
    def listed(
        address: str | None = None,
        filters: Iterable[Filter] | None = None,
        limit: int = DEFAULT_LIMIT,
        timeout: float = DEFAULT_TIMEOUT_S,
        detail: bool = False,
        raise_on_missing_output: bool = True,
        offset: int = 0,
    ) -> list[Row]:
        chosen = _checked(filters, limit, offset)
        if not weft.is_initialized():
            raise RpcError("there is no session to ask: call weft.init() first")
        wanted = MOST_ROWS if chosen else min(limit + offset, MOST_ROWS)
        rows = (Row(row) for row in ask(wanted, timeout))
        kept = (row for row in rows if all(_holds(row, one) for one in chosen))
        return list(itertools.islice(kept, offset, offset + limit))

    listed.__name__ = listed.__qualname__ = name
    listed.__doc__ = (
        f'{doc}\n\n`filters`: (key, "=" or "!=", value), all of which must hold. `address`, `detail` are accepted.'
    )
    return listed


def _checked(filters: Iterable[Filter] | None, limit: int, offset: int) -> list[Filter]:
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, but got {value!r}")
        if value < 0:
            raise ValueError(f"{name} must not be negative, but got {value}")
    if limit > MOST_ROWS:
        raise ValueError(f"limit must be at most {MOST_ROWS}, but got {limit}: read the rest with offset=")
    chosen = list(filters or ())
    for one in chosen:
        if not isinstance(one, tuple | list) or len(one) != 3:
            raise ValueError(f"a filter is (key, '=' or '!=', value), but got {one!r}")
        if one[1] not in _COMPARISONS:
            raise ValueError(f"a filter compares with '=' or '!=', but got {one[1]!r}")
    return chosen


def _holds(row: Row, one: Filter) -> bool:
    """Words are compared as people write them."""
    key, comparison, wanted = one
    if key not in row:
        raise ValueError(f"there is no {key!r} to filter by, only {', '.join(row)}")
    same = bool(row[key] == wanted) or str(row[key]).lower() == str(wanted).lower()
    return same == (comparison == "=")


# ---- asking ----------------------------------------------------------------------------------------


def _nodes(limit: int, timeout_s: float) -> list[dict[str, Any]]:
    return [
        {
            "node_id": node["NodeID"],
            "node_ip": node["NodeManagerAddress"],
            "node_name": node.get("NodeName", ""),
            "is_head_node": index == 0,
            "state": "ALIVE" if node["Alive"] else "DEAD",
            "state_message": node.get("DeathReasonMessage", ""),
            "resources_total": node["Resources"],
            "labels": node["Labels"],
        }
        for index, node in enumerate(weft.nodes())
    ]


def _groups(limit: int, timeout_s: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rpc.request("list_groups", timeout_s=timeout_s, limit=limit)
    return [
        {
            "placement_group_id": row["group"],
            "name": row["name"],
            "creator_job_id": row["job"],
            "state": row["state"],
            "bundles": [
                {"bundle_index": index, "resources": bundle, "node_id": node}
                for index, (bundle, node) in enumerate(zip(row["bundles"], row["nodes"], strict=True))
            ],
            "is_detached": row["detached"],
            "strategy": row["strategy"],
        }
        for row in rows
    ]


def _of_one(method: str) -> Callable[[int, float], list[dict[str, Any]]]:
    def ask(limit: int, timeout_s: float) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = rpc.request(method, timeout_s=timeout_s, limit=limit)
        return rows

    return ask


def _of_all(method: str) -> Callable[[int, float], list[dict[str, Any]]]:
    """Of this node's daemon, and through a task on each other node of the daemon there."""

    def ask(limit: int, timeout_s: float) -> list[dict[str, Any]]:
        own = weft.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in weft.nodes() if node["Alive"] and node["NodeID"] != own]
        rows: list[dict[str, Any]] = rpc.request(method, timeout_s=timeout_s, limit=limit)
        for node in others if len(rows) < limit else ():
            rows += _asked_there(method, node, limit - len(rows), timeout_s)
        return rows

    return ask


def _asked_there(method: str, node: str, limit: int, timeout_s: float) -> list[dict[str, Any]]:
    from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    task = weft.remote(_ask_own_daemon).options(num_cpus=0, scheduling_strategy=strategy, name=f"weft.{method}")
    rows: list[dict[str, Any]] = weft.get(task.remote(method, limit), timeout=timeout_s)
    return [row for row in rows if row.get("name") != f"weft.{method}"]


def _ask_own_daemon(method: str, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rpc.request(method, limit=limit)
    return rows


list_nodes = _listing("list_nodes", _nodes, "Nodes, dead ones too: node_id, node_ip, state, resources_total, labels...")
list_workers = _listing("list_workers", _of_all("list_workers"), "Worker processes and drivers: worker_id, pid, ...")
list_actors = _listing("list_actors", _of_one("list_actors"), "Actors, dead ones too: actor_id, class_name, state, ...")
list_cluster_events = _listing(
    "list_cluster_events",
    _of_one("list_cluster_events"),
    "What happened to nodes, heads, drivers, actors and workers, the latest first: time_s, severity, message, ...",
)
list_jobs = _listing("list_jobs", _of_one("list_jobs"), "Drivers: job_id, pid, status, ...")
list_tasks = _listing("list_tasks", _of_all("list_tasks"), "Tasks and calls: task_id, name, state, worker_pid, ...")
list_objects = _listing("list_objects", _of_all("list_objects"), "Objects by owner: object_id, object_size, pid, ...")
list_placement_groups = _listing(
    "list_placement_groups", _groups, "Placement groups, lately removed ones too: placement_group_id, state, bundles..."
)


# ---- one, and sums ---------------------------------------------------------------------------------


def _one(listing: Callable[..., list[Row]], key: str, id: str, options: dict[str, Any]) -> Row | None:
    rows = listing(filters=[(key, "=", id)], **options)
    return rows[0] if rows else None


def get_actor(id: str, address: str | None = None, **options: Any) -> Row | None:
    """The actor with this id in hex; None when there is none."""
    return _one(list_actors, "actor_id", id, options)


def get_node(id: str, address: str | None = None, **options: Any) -> Row | None:
    """One node of `list_nodes()`, or None."""
    return _one(list_nodes, "node_id", id, options)


def get_worker(id: str, address: str | None = None, **options: Any) -> Row | None:
    """One worker of `list_workers()`, or None."""
    return _one(list_workers, "worker_id", id, options)


def get_task(id: str, address: str | None = None, **options: Any) -> Row | None:
    """One task of `list_tasks()`, or None."""
    return _one(list_tasks, "task_id", id, options)


def get_job(id: str, address: str | None = None, **options: Any) -> Row | None:
    """One job of `list_jobs()`, or None."""
    return _one(list_jobs, "job_id", id, options)


def get_placement_group(id: str, address: str | None = None, **options: Any) -> Row | None:
    """One group of `list_placement_groups()`, or None."""
    return _one(list_placement_groups, "placement_group_id", id, options)


def get_objects(id: str, address: str | None = None, **options: Any) -> list[Row]:
    """The rows of the object with this id; none or one, since each object has one owner."""
    return list_objects(filters=[("object_id", "=", id)], **options)


def summarize_tasks(address: str | None = None, **options: Any) -> dict[str, Any]:
    """How many tasks there are in which state, by name."""
    return _summary(list_tasks(limit=MOST_ROWS, **options), "name")


def summarize_actors(address: str | None = None, **options: Any) -> dict[str, Any]:
    """How many actors there are in which state, by class."""
    return _summary(list_actors(limit=MOST_ROWS, **options), "class_name")


def summarize_objects(address: str | None = None, **options: Any) -> dict[str, Any]:
    """How many objects there are and how large they are, by the process that owns them."""
    found: dict[str, dict[str, int]] = {}
    for row in list_objects(limit=MOST_ROWS, **options):
        entry = found.setdefault(str(row["pid"]), {"objects": 0, "bytes": 0})
        entry["objects"] += 1
        entry["bytes"] += row["object_size"]
    return found


def _summary(rows: list[Row], key: str) -> dict[str, Any]:
    counts: dict[str, collections.Counter[str]] = {}
    for row in rows:
        counts.setdefault(row[key], collections.Counter())[row["state"]] += 1
    return {name: dict(states) for name, states in counts.items()}
