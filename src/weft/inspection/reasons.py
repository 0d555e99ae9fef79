"""Why tasks, actors and placement groups of a node wait, added to the rows that observers are shown.

Runs in the daemon's thread, made at the first question; what it decides is in `state.shortage`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.engine.state.cluster import NodeView
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState
from weft.engine.state.resources import to_amounts
from weft.engine.state.shortage import asked, group_reason, is_impossible, reason

Row = dict[str, Any]
WAITS = "PENDING_NODE_ASSIGNMENT"
_UP = ("ALIVE", "DEAD")


class Reasons:
    """One daemon's, at one moment: the same need is looked into once."""

    def __init__(self, state: NodeState, views: Sequence[NodeView]) -> None:
        self._state = state
        self._views = views
        self._told: dict[tuple[object, ...], str] = {}
        self._of: dict[str, Callable[[Row], str]] = {
            "tasks": self._task,
            "actors": self._actor,
            "placement_groups": self._group,
        }

    def explain(self, what: str, rows: list[Row]) -> list[Row]:
        """The rows with `why_pending`, which is empty for what does not wait; rows of other kinds as they are."""
        if (look := self._of.get(what)) is not None:
            for row in rows:
                row["why_pending"] = look(row)
        return rows

    def of_shape(self, process: Process, number: int) -> tuple[str, str]:
        """Why that process has no worker for what it calls by that number, and what that asks for if no node can ever
        give it one; else nothing."""
        shape = self._state.shapes.of(process, number)
        if shape is None:
            return "", ""
        is_never = not shape.strategy.get("group") and is_impossible(shape.amounts, shape.strategy, self._views)
        return reason(shape.amounts, shape.strategy, self._views), asked(shape.amounts) if is_never else ""

    def _task(self, row: Row) -> str:
        if row["waits_for"]:
            return f"it waits for {', '.join(row['waits_for'])}"
        if row["state"] != WAITS:
            return ""
        if row["actor_id"]:
            return self._call(bytes.fromhex(row["actor_id"]))
        key = (*sorted(row["required_resources"].items()), *sorted(row["scheduling_strategy"].items()))
        if key not in self._told:
            need = to_amounts(row["required_resources"])
            self._told[key] = reason(need, row["scheduling_strategy"], self._views)
        return self._told[key]

    def _call(self, actor: bytes) -> str:
        known = self._state.actors.find(actor)
        if known is None:
            return "its actor is not up yet"
        why = self._placing(actor)
        return f"its actor is {known.stage.value}{': ' if why else ''}{why}"

    def _actor(self, row: Row) -> str:
        return "" if row["state"] in _UP else self._placing(bytes.fromhex(row["actor_id"]))

    def _placing(self, actor: bytes) -> str:
        demand = self._state.demands.by_key.get(actor)
        if demand is None:
            return ""
        strategy = {"group": demand.group.hex()} if demand.group else demand.strategy
        return reason(demand.need, strategy, self._views)

    def _group(self, row: Row) -> str:
        group = self._state.groups.by_id.get(bytes.fromhex(row["group"]))
        return group_reason(group, self._views) if group is not None and group.is_waiting else ""
