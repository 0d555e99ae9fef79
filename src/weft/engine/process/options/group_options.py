"""The options that put a task or an actor into a placement group, checked where they are written. Pure.

What does not fit into any bundle is an error of that line; the group itself may still be pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Wire = dict[str, str | int | bool]


def strategy_of(given: Mapping[str, Any], needed: Mapping[str, float], who: str = "a task") -> Wire:
    """As the node daemon reads it; empty when no group is named, {"kind": "default"} for none on purpose."""
    strategy: Any = given.get("scheduling_strategy")
    if hasattr(strategy, "placement_group"):
        group = strategy.placement_group
        index = strategy.placement_group_bundle_index
        captures = strategy.placement_group_capture_child_tasks
    else:
        group = given.get("placement_group", "default")
        index = given.get("placement_group_bundle_index", -1)
        captures = given.get("placement_group_capture_child_tasks")
        if group not in ("default", None) and strategy is not None:
            raise ValueError(
                "Placement groups should be specified via the scheduling_strategy option. The placement_group option "
                f"is not taken beside it, but got both {group!r} and {strategy!r}"
            )
    if group is None or (isinstance(group, str) and group == "default"):
        if index != -1:
            raise ValueError(f"If placement group is not set, the value of bundle index must be -1, but got {index}")
        return {"kind": "default"} if group is None else {}
    if not hasattr(group, "bundle_cache"):
        raise TypeError(f"placement_group must be a placement group, but got {group!r}")
    if group.is_empty:
        return {"kind": "default"}
    check(group.bundle_cache, index, needed, who)
    return {"kind": "placement_group", "group": group.id.hex(), "bundle": index, "capture_child_tasks": bool(captures)}


def check(bundles: Sequence[Mapping[str, float]] | None, index: Any, needed: Mapping[str, float], who: str) -> None:
    """ValueError when no bundle (or not the one of that index) can ever hold what is needed."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"placement_group_bundle_index must be an int, but got {index!r}")
    if index < -1:
        raise ValueError(f"placement group bundle index {index} is invalid: it is -1 (any) or a bundle's number")
    if bundles is None:
        return
    if index >= len(bundles):
        raise ValueError(
            f"placement group bundle index {index} is invalid. Valid placement group indexes: 0-{len(bundles) - 1}"
        )
    allowed = bundles if index == -1 else [bundles[index]]
    if not any(all(bundle.get(name, 0) >= amount for name, amount in needed.items()) for bundle in allowed):
        asked = {name: int(amount) if amount == int(amount) else amount for name, amount in needed.items()}
        raise ValueError(
            f"Cannot schedule {who} with the placement group because the resource request {asked} cannot "
            f"fit into any bundles for the placement group, {[dict(bundle) for bundle in allowed]}."
        )
