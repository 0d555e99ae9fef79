"""What this process tells the node daemon of its tasks and objects, for `weft.util.state`. Runs on any thread."""

from __future__ import annotations

import sys
from typing import Any

from weft import _native
from weft.engine.process.objects import call_sites

BORROWERS_TOLD = 8
"""Of one object in a listing of many."""


def rows(what: str, limit: int) -> list[dict[str, Any]]:
    """At most `limit`; ids as text, workers as (slot, generation) and shapes as numbers for the daemon to name."""
    if what == "tasks":
        return _tasks(limit)
    if what == "objects":
        return _objects(limit)
    if what == "stacks":
        from weft.engine.process.telling import stacks

        return stacks.rows()[:limit]
    registry = sys.modules.get("weft.engine.process.telling.metrics_registry")
    if what == "metrics" and registry is not None:
        registry.push()  # which arrives before this answer
    return []


def _tasks(limit: int) -> list[dict[str, Any]]:
    return [
        {
            "task_id": row["task"].hex(),
            "attempt_number": row["attempt"],
            "name": row["name"],
            "state": row["state"],
            "actor_id": row["actor"].hex() or None,
            "type": "ACTOR_TASK" if row["actor"] else "NORMAL_TASK",
            "func_or_class_name": row["name"],
            "parent_task_id": row["parent"].hex(),
            "worker": row["worker"],
            "shape": row["shape"],
            "waits_for": [one.hex() for one in row["waits_for"]],
        }
        for row in _native.submitted_tasks(limit)
    ]


def _objects(limit: int) -> list[dict[str, Any]]:
    """Those that this process owns: each object has one owner, so none is listed twice."""
    owned = [row for row in _native.held_objects(4 * limit) if row["is_owned"] and not row["is_actor"]]
    return [
        {
            "object_id": row["id"].hex(),
            "object_size": row["bytes"],
            "task_status": {"failed": "FAILED", "inline": "FINISHED", "in the arena": "FINISHED"}.get(
                row["state"], "PENDING"
            ),
            "is_in_shared_memory": row["state"] == "in the arena",
            "reference_type": "LOCAL_REFERENCE",
            "references": row["holds"],
            "borrowers": len(row["borrowers"]),
            "held_by": [one[:2] for one in row["borrowers"][:BORROWERS_TOLD]],
            "call_site": call_sites.of(row["id"]),
        }
        for row in owned[:limit]
    ]
