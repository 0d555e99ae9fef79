"""Tools that stand on the core API: pools, queues, serializers, named actors. Each is loaded at its first use."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than all of this

if TYPE_CHECKING:
    from weft.engine.process.actors.named_actors import list_named_actors as list_named_actors
    from weft.engine.process.objects.late_array import LateArray as LateArray
    from weft.engine.process.objects.serialize import deregister_serializer as deregister_serializer
    from weft.engine.process.objects.serialize import register_serializer as register_serializer
    from weft.util.actor_pool import ActorPool as ActorPool
    from weft.util.check_serialize import inspect_serializability as inspect_serializability
    from weft.util.debug import disable_log_once_globally as disable_log_once_globally
    from weft.util.debug import enable_periodic_logging as enable_periodic_logging
    from weft.util.debug import log_once as log_once
    from weft.util.executor import Executor as Executor
    from weft.util.mapping import as_completed as as_completed
    from weft.util.mapping import map_unordered as map_unordered
    from weft.util.placement_group import PlacementGroup as PlacementGroup
    from weft.util.placement_group import get_current_placement_group as get_current_placement_group
    from weft.util.placement_group import get_placement_group as get_placement_group
    from weft.util.placement_group import placement_group as placement_group
    from weft.util.placement_group import placement_group_table as placement_group_table
    from weft.util.placement_group import remove_placement_group as remove_placement_group
    from weft.util.progress_bar import progress as progress

_HOMES = {
    "PlacementGroup": "weft.util.placement_group",
    "get_current_placement_group": "weft.util.placement_group",
    "get_placement_group": "weft.util.placement_group",
    "placement_group": "weft.util.placement_group",
    "placement_group_table": "weft.util.placement_group",
    "remove_placement_group": "weft.util.placement_group",
    "ActorPool": "weft.util.actor_pool",
    "Executor": "weft.util.executor",
    "LateArray": "weft.engine.process.objects.late_array",
    "deregister_serializer": "weft.engine.process.objects.serialize",
    "disable_log_once_globally": "weft.util.debug",
    "enable_periodic_logging": "weft.util.debug",
    "inspect_serializability": "weft.util.check_serialize",
    "log_once": "weft.util.debug",
    "list_named_actors": "weft.engine.process.actors.named_actors",
    "as_completed": "weft.util.mapping",
    "map_unordered": "weft.util.mapping",
    "progress": "weft.util.progress_bar",
    "register_serializer": "weft.engine.process.objects.serialize",
}
_SUBMODULES = frozenset(
    "accelerators actor_group actor_pool annotations check_serialize debug executor iter joblib mapping "
    "multiprocessing progress_bar queue scheduling_strategies state".split()
)

__all__ = [*sorted(_HOMES)]


def get_node_ip_address() -> str:
    """The address that other machines of the cluster know this one by; loopback's on a machine alone."""
    from weft.engine.process.session.context_state import state

    return state.node_ip


def __getattr__(name: str) -> object:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"weft.util.{name}")
    else:
        from weft._lazy import missing

        raise missing("weft.util", name, {*_HOMES, *_SUBMODULES})
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from weft._lazy import listed

    return listed("weft.util", {*_HOMES, *_SUBMODULES})


del annotations  # of __future__: it would hide the submodule of that name
