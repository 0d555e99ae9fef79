"""Tools that stand on the core API: pools, queues, serializers, named actors. Each is loaded at its first use."""

from weft._lazy import LazyNames

_LAZY = LazyNames(__name__)

__all__ = sorted({*_LAZY.names} - {*_LAZY.submodules})  # `import *` must not replace the builtin iter
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed


def get_node_ip_address() -> str:
    """The address that other machines of the cluster know this one by; loopback's on a machine alone."""
    from weft.engine.process.session.context_state import state

    return state.node_ip
