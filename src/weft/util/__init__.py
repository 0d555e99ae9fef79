"""Tools that stand on the core API: pools, queues, serializers, named actors. Each is loaded at its first use."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than all of this

if TYPE_CHECKING:
    from weft.engine.process.named_actors import list_named_actors as list_named_actors
    from weft.engine.process.serialize import deregister_serializer as deregister_serializer
    from weft.engine.process.serialize import register_serializer as register_serializer
    from weft.util.actor_pool import ActorPool as ActorPool
    from weft.util.check_serialize import inspect_serializability as inspect_serializability
    from weft.util.mapping import as_completed as as_completed
    from weft.util.mapping import map_unordered as map_unordered

_HOMES = {
    "ActorPool": "weft.util.actor_pool",
    "deregister_serializer": "weft.engine.process.serialize",
    "inspect_serializability": "weft.util.check_serialize",
    "list_named_actors": "weft.engine.process.named_actors",
    "as_completed": "weft.util.mapping",
    "map_unordered": "weft.util.mapping",
    "register_serializer": "weft.engine.process.serialize",
}
_SUBMODULES = frozenset(
    "accelerators actor_group actor_pool check_serialize joblib mapping multiprocessing queue "
    "scheduling_strategies".split()
)

__all__ = [*sorted(_HOMES)]


def get_node_ip_address() -> str:
    """The address that others know this machine by."""
    from weft.engine.process.context_state import node_ip

    return node_ip()


def __getattr__(name: str) -> object:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"weft.util.{name}")
    else:
        raise AttributeError(f"module 'weft.util' has no attribute {name!r}")
    globals()[name] = value
    return value
