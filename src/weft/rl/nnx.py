"""Modules of Flax's NNX as a pair of functions (init, apply): parameters apart from the module that holds them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from weft.library.settings import SettingError

Functions = tuple[Callable[..., Any], Callable[..., Any]]


def nnx_functions(network: Any) -> Functions | None:
    """(init, apply) of an NNX module, or of a function of `nnx.Rngs` that makes one; None of anything else."""
    if "flax.nnx" not in sys.modules and not _is_function(network):
        return None
    try:
        from flax import nnx
    except ModuleNotFoundError:
        return None
    if isinstance(network, nnx.Module):
        return _Given(network), _Apply(network)
    if not _is_function(network):
        return None
    module = nnx.eval_shape(lambda: network(nnx.Rngs(0)))
    return (_Made(network), _Apply(module)) if isinstance(module, nnx.Module) else None


class _Given:
    """The first parameters are those that the module has."""

    def __init__(self, module: Any) -> None:
        self._params = _parts(module)[1]

    def __call__(self, key: Any, observations: Any) -> Any:
        return self._params


class _Made:
    """The first parameters are those of a module that is made with the key."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __call__(self, key: Any, observations: Any) -> Any:
        from flax import nnx

        return _parts(self._make(nnx.Rngs(key)))[1]


class _Apply:
    """Calls the module with parameters from elsewhere."""

    def __init__(self, module: Any) -> None:
        self._definition = _parts(module)[0]

    def __call__(self, params: Any, observations: Any) -> Any:
        from flax import nnx

        return nnx.merge(self._definition, params)(observations)


def _parts(module: Any) -> tuple[Any, Any]:
    """The module without its parameters, and the parameters; SettingError where it has more than these."""
    import jax
    from flax import nnx

    split: Any = nnx.split
    definition, params, rest = split(module, nnx.Param, ...)
    others = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(rest)]
    if others:
        raise SettingError(
            f"network: {type(module).__name__} has variables that are no parameters, such as {others[0]}, but only "
            "parameters are learnt and sent to workers; use layers without running statistics or dropout"
        )
    return definition, params


def _is_function(network: Any) -> bool:
    return callable(network) and hasattr(network, "__code__")
