"""Where a task or an actor should run, for the `scheduling_strategy` option.

>>> NodeAffinitySchedulingStrategy("ab12", soft=True).to_wire()["soft"]
True
"""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "DoesNotExist",
    "Exists",
    "In",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
]

Wire = dict[str, str | int | bool]


class NodeAffinitySchedulingStrategy:
    """On the node with this id; when `soft`, elsewhere if that node is gone.

    >>> here = NodeAffinitySchedulingStrategy(weft.get_runtime_context().get_node_id(), soft=False)
    >>> weft.get(weft.remote(lambda: "ran here").options(scheduling_strategy=here).remote())
    'ran here'
    """

    def __init__(
        self,
        node_id: str | Any,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable

    def to_wire(self) -> Wire:
        """As it travels to the schedulers."""
        return {
            "kind": "node_affinity",
            "node_id": self.node_id,
            "soft": self.soft,
            "spill_on_unavailable": self._spill_on_unavailable,
            "fail_on_unavailable": self._fail_on_unavailable,
        }


class PlacementGroupSchedulingStrategy:
    """In a bundle of a placement group; -1 means any bundle. None as the group: in none, also below a task whose group
    captures its child tasks.

    >>> group = weft.util.placement_group([{"CPU": 1}])
    >>> inside = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    >>> weft.get(weft.remote(lambda: "ran inside").options(scheduling_strategy=inside).remote())
    'ran inside'
    >>> weft.util.remove_placement_group(group)
    """

    def __init__(
        self,
        placement_group: Any,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks

    def to_wire(self) -> Wire:
        """As it travels to the schedulers."""
        if self.placement_group is None:
            return {"kind": "default"}
        return {
            "kind": "placement_group",
            "group": self.placement_group.id.hex(),
            "bundle": self.placement_group_bundle_index,
            "capture_child_tasks": bool(self.placement_group_capture_child_tasks),
        }


class _LabelMatch:
    """A condition on one label of a node."""

    word = ""
    takes_values = False

    def __init__(self, *values: str) -> None:
        if self.takes_values and not values:
            raise ValueError(f"The variadic parameter of the {type(self).__name__} operator must be a non-empty tuple")
        for place, value in enumerate(values):
            if not isinstance(value, str):
                raise ValueError(
                    f"Type of value in position {place} for the {type(self).__name__} operator must be str, "
                    f'but got {value!r}: labels are text, such as In("{value}")'
                )
        self.values = list(values)

    def to_json(self) -> list[Any]:
        return [self.word, self.values]


class In(_LabelMatch):
    """The label's value is one of these."""

    word = "in"
    takes_values = True


class NotIn(_LabelMatch):
    """The label's value is none of these, or the node has no such label."""

    word = "not_in"
    takes_values = True


class Exists(_LabelMatch):
    """The node has such a label."""

    word = "exists"


class DoesNotExist(_LabelMatch):
    """The node has no such label."""

    word = "does_not_exist"


class NodeLabelSchedulingStrategy:
    """On nodes whose labels fulfil `hard`, rather on those that fulfil `soft` too.

    >>> not_in_the_south = NodeLabelSchedulingStrategy({"region": NotIn("south")})
    >>> weft.get(weft.remote(lambda: "ran").options(scheduling_strategy=not_in_the_south).remote())
    'ran'
    """

    def __init__(self, hard: dict[str, _LabelMatch], *, soft: dict[str, _LabelMatch] | None = None) -> None:
        self.hard = _conditions("hard", hard)
        self.soft = _conditions("soft", soft)
        if not self.hard and not self.soft:
            raise ValueError(
                "The `hard` and `soft` parameter of NodeLabelSchedulingStrategy cannot both be empty. Name a label, "
                'such as {"region": In("south")}, or leave the strategy out.'
            )

    def to_wire(self) -> Wire:
        """As it travels to the schedulers."""

        def encode(conditions: dict[str, _LabelMatch]) -> str:
            return json.dumps({key: match.to_json() for key, match in conditions.items()}, sort_keys=True)

        return {"kind": "node_label", "hard": encode(self.hard), "soft_labels": encode(self.soft)}


def _conditions(parameter: str, given: Any) -> dict[str, _LabelMatch]:
    """ValueError where it is no map of labels to conditions."""
    if given is not None and not isinstance(given, dict):
        raise ValueError(f"The {parameter} parameter must be a map of labels to conditions, but got {given!r}")
    for key, match in (given or {}).items():
        if not isinstance(key, str):
            raise ValueError(f"The map key of the {parameter} parameter must be of type str, but got {key!r}")
        if not isinstance(match, _LabelMatch):
            raise ValueError(
                f"The map value of {key!r} in the {parameter} parameter must be one of the `In`, `NotIn`, `Exists` or "
                f"`DoesNotExist` operators, but got {match!r}"
            )
    return given or {}
