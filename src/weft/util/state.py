"""What there is in the cluster: nodes, workers, actors. Each row is a dict whose keys are attributes too.

>>> list_nodes()[0].state
'ALIVE'

Asked of the node daemon; a kind that it does not keep yet is refused with RpcError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import weft
from weft.engine.process import rpc
from weft.exceptions import RpcError

__all__ = [
    "Row",
    "get_actor",
    "get_node",
    "get_worker",
    "list_actors",
    "list_jobs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
]

DEFAULT_LIMIT = 100
DEFAULT_TIMEOUT_S = 30

Filter = tuple[str, str, Any]


class Row(dict[str, Any]):
    """One thing."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r} here, only {', '.join(self)}") from None


def list_nodes(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = DEFAULT_LIMIT, **options: Any
) -> list[Row]:
    """`filters`: (key, "=" or "!=", value), all of which must hold. `address` and `detail` are accepted."""
    rows = [
        Row(
            node_id=node["NodeID"],
            node_ip=node["NodeManagerAddress"],
            node_name=node.get("NodeName", ""),
            is_head_node=index == 0,
            state="ALIVE" if node["Alive"] else "DEAD",
            resources_total=node["Resources"],
            labels=node["Labels"],
        )
        for index, node in enumerate(weft.nodes())
    ]
    return _chosen(rows, filters, limit)


def list_workers(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = DEFAULT_LIMIT, **options: Any
) -> list[Row]:
    """As `list_nodes`."""
    rows = [
        Row(
            worker_id=f"{worker['slot']:08x}{worker['generation']:08x}",
            pid=worker["pid"],
            state=worker["state"],
            is_alive=True,
            worker_type="WORKER",
            job_id=worker["job"],
        )
        for worker in _ask("workers", options)
    ]
    return _chosen(rows, filters, limit)


def _listing(method: str, doc: str) -> Callable[..., list[Row]]:
    def ask(
        address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = DEFAULT_LIMIT, **options: Any
    ) -> list[Row]:
        return _chosen([Row(row) for row in _ask(method, options)], filters, limit)

    ask.__name__ = ask.__qualname__ = method
    ask.__doc__ = doc
    return ask


list_actors = _listing("list_actors", "Actors, dead ones too: actor_id, class_name, state, name, pid, ...")
list_tasks = _listing("list_tasks", "Tasks: task_id, name, state, ...")
list_objects = _listing("list_objects", "Objects in memory: object_id, object_size, ...")
list_jobs = _listing("list_jobs", "Drivers: job_id, status, ...")
list_placement_groups = _listing("list_placement_groups", "Placement groups: placement_group_id, state, ...")


def get_actor(id: str, address: str | None = None, **options: Any) -> Row | None:
    """The actor with this id in hex; None when there is none."""
    return _only(list_actors(address, [("actor_id", "=", id)], **options))


def get_node(id: str, address: str | None = None, **options: Any) -> Row | None:
    return _only(list_nodes(address, [("node_id", "=", id)], **options))


def get_worker(id: str, address: str | None = None, **options: Any) -> Row | None:
    return _only(list_workers(address, [("worker_id", "=", id)], **options))


def _ask(method: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    if not weft.is_initialized():
        raise RpcError("there is no session to ask: call weft.init() first")
    rows: list[dict[str, Any]] = rpc.request(method, timeout_s=options.get("timeout", DEFAULT_TIMEOUT_S))
    return rows


def _chosen(rows: list[Row], filters: Iterable[Filter] | None, limit: int) -> list[Row]:
    for key, comparison, value in filters or ():
        if comparison not in ("=", "!="):
            raise ValueError(f"a filter compares with '=' or '!=', but got {comparison!r}")
        rows = [row for row in rows if (_same(row.get(key), value)) == (comparison == "=")]
    return rows[:limit]


def _same(found: Any, wanted: Any) -> bool:
    """Words are compared as people write them."""
    return bool(found == wanted) or str(found).lower() == str(wanted).lower()


def _only(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None
