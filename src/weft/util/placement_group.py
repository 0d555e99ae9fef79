"""Placement groups: resources set aside together, in bundles, for tasks and actors that belong together.

>>> group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
>>> group.wait(10)
True
>>> from weft.util.scheduling_strategies import PlacementGroupSchedulingStrategy
>>> strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
>>> @weft.remote
... def f():
...     return "in the first bundle"
>>> weft.get(f.options(scheduling_strategy=strategy).remote())
'in the first bundle'
>>> remove_placement_group(group)
"""

from __future__ import annotations

import collections
import importlib
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.engine.process.options.option_checks import label_selector as _check_label_selector
from weft.engine.process.session import attached, cluster, placement
from weft.engine.process.session.context_state import state
from weft.engine.wire.messages import CreateGroup
from weft.ids import PlacementGroupID

if TYPE_CHECKING:
    from weft._native import ObjectRef

__all__ = [
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]

VALID_PLACEMENT_GROUP_STRATEGIES = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
NODE_ID_LABEL_KEY = "ray.io/node-id"
_NODE_KEYS = (NODE_ID_LABEL_KEY, "ray.io/node_id")
_RESERVED = "bundle"


class PlacementGroup:
    """A handle; equal to every other handle of the same group, in any process.

    >>> group = placement_group([{"CPU": 1}])
    >>> group.wait(10), group.bundle_count
    (True, 1)
    >>> remove_placement_group(group)
    """

    __slots__ = ("bundle_cache", "id")

    def __init__(self, id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self.id = id
        self.bundle_cache = bundle_cache
        """The bundles as far as this handle knows them without asking."""

    @staticmethod
    def empty() -> PlacementGroup:
        """One that stands for no group."""
        return PlacementGroup(PlacementGroupID.nil())

    @property
    def is_empty(self) -> bool:
        """Whether it stands for no group."""
        return self.id.is_nil()

    def ready(self) -> ObjectRef[PlacementGroup]:
        """A ref to this handle that is there once all bundles are set aside; raises TaskPlacementGroupRemoved when
        the group is removed.

        >>> group = placement_group([{"CPU": 1}])
        >>> weft.get(group.ready(), timeout=10).bundle_count
        1
        >>> remove_placement_group(group)
        """
        return placement.ready(self.id.binary(), self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Whether all bundles are set aside, now or within so many seconds; False too when the group is removed."""
        if isinstance(timeout_seconds, bool) or not isinstance(timeout_seconds, int | float) or timeout_seconds < 0:
            raise ValueError(f"timeout_seconds must be a number of seconds, not negative, but got {timeout_seconds!r}")
        return placement.wait(self.id.binary(), float(timeout_seconds))

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self.is_empty:
            return []
        if self.bundle_cache is None:
            row = placement.find(group=self.id.binary())
            if row is None:
                raise ValueError(f"there is no placement group {self.id.hex()}")
            self.bundle_cache = row["bundles"]
        return self.bundle_cache

    @property
    def bundle_count(self) -> int:
        """How many bundles it has."""
        return len(self.bundle_specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacementGroup, (self.id, self.bundle_cache)


def placement_group(
    bundles: Sequence[Mapping[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> PlacementGroup:
    """Set resources aside: one dictionary for each bundle. Returns at once; `wait` or `ready` say when they are there.

    `strategy` is "PACK" (few nodes, the default), "SPREAD" (many), "STRICT_PACK" (one) or "STRICT_SPREAD" (one bundle a
    node). With `lifetime="detached"` the group outlives its creator. A group that no node can hold now waits.
    ValueError for what cannot be meant."""
    chosen = validate_placement_group(
        bundles, strategy, lifetime, _soft_target_node_id, bundle_label_selector, topology_strategy
    )
    if not isinstance(name, str):
        raise ValueError(f"name must be a string, but got {name!r}")
    if any("object_store_memory" in bundle for bundle in bundles):
        warnings.warn(
            "Setting 'object_store_memory' for bundles is deprecated: no task or actor can ask for it",
            DeprecationWarning,
            stacklevel=2,
        )
    attached.ensure()
    wanted = [{resource: float(amount) for resource, amount in bundle.items() if amount} for bundle in bundles]
    group = placement.new_id()
    domains = [label for label in topology_strategy or {} if label not in _NODE_KEYS]
    placement.create(
        CreateGroup(
            group,
            wanted,
            chosen,
            name,
            state.namespace,
            lifetime == "detached",
            bundle_label_selector or [],
            domains[0] if domains else "",
        )
    )
    return PlacementGroup(PlacementGroupID(group), wanted)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Give its resources back. What runs in it ends: tasks fail with TaskPlacementGroupRemoved, actors with
    ActorPlacementGroupRemoved. Removing it again does nothing. Other processes learn of it a moment later.

    >>> group = placement_group([{"CPU": 1}])
    >>> remove_placement_group(group)
    """
    placement.remove(_checked(placement_group).id.binary())


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group of that name in this namespace; ValueError when there is none.

    >>> made = placement_group([{"CPU": 1}], name="by_name")
    >>> get_placement_group("by_name") == made
    True
    >>> remove_placement_group(made)
    """
    if not isinstance(placement_group_name, str) or not placement_group_name:
        raise ValueError(f"Please supply a non-empty value to get_placement_group, but got {placement_group_name!r}")
    row = placement.find(name=placement_group_name)
    if row is None:
        raise ValueError(f"Failed to look up placement group with name: {placement_group_name}")
    return PlacementGroup(PlacementGroupID(bytes.fromhex(row["group"])), row["bundles"])


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """State, bundles and nodes of one group, empty when it is not known; of all groups by id when none is given.

    >>> group = placement_group([{"CPU": 1}])
    >>> group.wait(10)
    True
    >>> placement_group_table(group)["state"]
    'CREATED'
    >>> remove_placement_group(group)
    """
    if placement_group is None:
        return {row["group"]: _table(row) for row in placement.rows()}
    row = placement.find(group=_checked(placement_group).id.binary())
    return _table(row) if row is not None else {}


def get_current_placement_group() -> PlacementGroup | None:
    """The group that the calling task or actor is in; None for a driver and for what is in none.

    >>> get_current_placement_group() is None  # this is the driver
    True
    """
    group = placement.current()
    return PlacementGroup(PlacementGroupID(bytes.fromhex(group))) if group else None


def _checked(group: Any) -> PlacementGroup:
    if not isinstance(group, PlacementGroup):
        raise TypeError(f"placement_group must be a PlacementGroup, but got {group!r}")
    return group


def _table(row: Mapping[str, Any]) -> dict[str, Any]:
    """In Ray's words."""
    return {
        "placement_group_id": row["group"],
        "name": row["name"],
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": dict(enumerate(row["nodes"])),
        "strategy": row["strategy"],
        "state": row["state"],
        "is_detached": row["detached"],
        "stats": {"scheduling_state": _scheduling_state(row)},
    }


def _scheduling_state(row: Mapping[str, Any]) -> str:
    """INFEASIBLE: whatever becomes free, the nodes that there are cannot hold it."""
    if row["state"] != "PENDING":
        return "FINISHED" if row["state"] == "CREATED" else str(row["state"])
    bundles: Sequence[Mapping[str, float]] = row["bundles"]
    if row["strategy"] == "STRICT_PACK":
        together: collections.Counter[str] = collections.Counter()
        for bundle in bundles:
            together.update(bundle)
        bundles = [together]
    nodes = [node["Resources"] for node in cluster.nodes() if node["Alive"]]
    holds = [[all(node.get(name, 0) >= need for name, need in one.items()) for node in nodes] for one in bundles]
    is_short = row["strategy"] == "STRICT_SPREAD" and len(bundles) > len(nodes)
    return "INFEASIBLE" if is_short or not all(map(any, holds)) else "NO_RESOURCES"


# ---- what can be meant -----------------------------------------------------------------------------


def validate_placement_group(
    bundles: Any,
    strategy: str | None = None,
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: Any = None,
    topology_strategy: Any = None,
) -> str:
    """The strategy over nodes that is meant; ValueError for what is wrong."""
    if strategy is not None and topology_strategy is not None:
        raise ValueError("`strategy` and `topology_strategy` cannot both be specified.")
    if topology_strategy is not None:
        strategy = _validate_topology_strategy(topology_strategy)
    strategy = strategy or "PACK"
    if _soft_target_node_id and strategy != "STRICT_PACK":
        raise ValueError(f"_soft_target_node_id currently only works with STRICT_PACK but got {strategy}")
    if _soft_target_node_id and not isinstance(_soft_target_node_id, str):
        raise ValueError(f"_soft_target_node_id must be a string, but got {_soft_target_node_id!r}")
    _validate_bundles(bundles)
    if bundle_label_selector is not None:
        _validate_bundle_label_selector(bundle_label_selector)
        if bundle_label_selector and len(bundle_label_selector) != len(bundles):
            raise ValueError(
                f"Invalid bundle label selector {bundle_label_selector}. The length of `bundle_label_selector` should "
                f"equal the length of `bundles`, {len(bundles)}."
            )
    if strategy not in VALID_PLACEMENT_GROUP_STRATEGIES:
        raise ValueError(
            f"Invalid placement group strategy {strategy}. Supported strategies are: "
            f"{sorted(VALID_PLACEMENT_GROUP_STRATEGIES)}."
        )
    if lifetime not in (None, "detached"):
        raise ValueError(f"Placement group `lifetime` argument must be either `None` or 'detached'. Got {lifetime!r}.")
    return strategy


def _validate_topology_strategy(topology_strategy: Any) -> str:
    """Of nodes: the strategy; of other labels: all bundles on nodes with one value of it."""
    if not isinstance(topology_strategy, dict):
        raise ValueError(f"`topology_strategy` must be a dict of labels and strategies, but got {topology_strategy!r}")
    strategy = "PACK"
    domains = 0
    for key, value in topology_strategy.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"`topology_strategy` keys must be non-empty strings, but got {key!r}")
        if value not in VALID_PLACEMENT_GROUP_STRATEGIES:
            raise ValueError(
                f"Invalid topology strategy {value!r} of {key!r}. Supported: {sorted(VALID_PLACEMENT_GROUP_STRATEGIES)}"
            )
        if key in _NODE_KEYS:
            strategy = value
            continue
        if value != "STRICT_PACK":
            raise ValueError(f"For the topology label {key!r} only 'STRICT_PACK' is supported, but got {value!r}")
        domains += 1
    if domains > 1:
        raise ValueError(f"`topology_strategy` takes at most one topology label beside the node's: {topology_strategy}")
    return strategy


def _validate_bundles(bundles: Any) -> None:
    if not isinstance(bundles, list):
        raise ValueError(f"Placement group bundles must be a list, but got {type(bundles)}: {bundles!r}")
    if not bundles:
        raise ValueError("Placement group bundles must be a non-empty list of resource dictionaries. Got: [].")
    for bundle in bundles:
        if not isinstance(bundle, Mapping) or not all(
            isinstance(name, str) and isinstance(amount, int | float) and not isinstance(amount, bool)
            for name, amount in bundle.items()
        ):
            raise ValueError(
                "Bundles must be a non-empty list of resource dictionaries. "
                f'For example: `[{{"CPU": 1.0}}, {{"GPU": 1.0}}]`. Got: {bundles}.'
            )
        if not any(bundle.values()):
            raise ValueError(
                f"Bundles cannot be an empty dictionary or resources with only 0 values. Bundles: {bundles}."
            )
        for name, amount in bundle.items():
            if name == _RESERVED:
                raise ValueError(
                    f"The resource name {_RESERVED!r} is reserved and cannot be used in bundles: {bundles}"
                )
            if amount < 0 or amount != amount or amount == float("inf"):
                raise ValueError(f"The amount of {name} in a bundle must be zero or more, but got {amount}: {bundles}")


def _validate_bundle_label_selector(bundle_label_selector: Any) -> None:
    if not isinstance(bundle_label_selector, list):
        raise ValueError(f"`bundle_label_selector` must be a list, but got {type(bundle_label_selector)}.")
    for selector in bundle_label_selector:
        if not isinstance(selector, dict) or not all(
            isinstance(key, str) and isinstance(value, str) for key, value in selector.items()
        ):
            raise ValueError(
                f"Bundle label selector must be a list of string dictionary label selectors. Got {selector!r} in "
                f"{bundle_label_selector}."
            )
        try:
            _check_label_selector("bundle_label_selector", selector)
        except ValueError as error:
            raise ValueError(
                f"Invalid label selector provided in bundle_label_selector list. Detail: {error}"
            ) from None


class _CallableModule(types.ModuleType):
    """`weft.util.placement_group` is this module and the function in it, whichever was asked for first."""

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _CallableModule
