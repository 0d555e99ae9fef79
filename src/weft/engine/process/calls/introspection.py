"""What editors, shells and `help` ask of submitters: signatures and docs. Nothing of it is kept for each call.

`f.remote` and `handle.method.remote` are native objects without a Python signature. It is found when somebody asks,
from the submitter or the method that holds the object, so that making one costs nothing more.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from weft import _native
from weft.engine.process.calls.parameters import Parameters


def install() -> None:
    """Give the native submitters a signature; again is harmless."""
    for kind in (_native.RemoteCall, _native.ActorCall):
        cls: Any = kind
        cls.__signature__ = property(_of_call)


def _of_call(call: Any) -> Any:
    near: list[Any]
    if isinstance(call, _native.RemoteCall):
        near = [getattr(entry, "__self__", None) for entry in gc.get_referents(call)]
    else:
        near = gc.get_referrers(call)
    for holder in near:
        if type(holder).__name__ in ("ActorMethod", "Submitter") and type(holder).__module__.startswith("weft."):
            return holder.__signature__
    raise AttributeError("__signature__")


def signature_of(function: Any, parameters: Parameters | None, skip: int) -> Any:
    """Of a function without its first `skip` parameters; else of what is known of its parameters."""
    import inspect

    if function is not None:
        try:
            found = inspect.signature(function)
        except (TypeError, ValueError):
            raise AttributeError("__signature__") from None
        return found.replace(parameters=[*found.parameters.values()][skip:])
    if parameters is None:
        raise AttributeError("__signature__")
    return parameters.signature()


def method_of(qualified_name: str, name: str) -> Any:
    """A method of a class or an actor class, found by the class's name among the loaded modules; else None."""
    module, _, path = qualified_name.rpartition(".")
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        path = f"{outer}.{path}"
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = (
            None if found is None else vars(found).get(part) if isinstance(found, type) else getattr(found, part, None)
        )
        found = getattr(found, "__wrapped__", found)
    value = getattr(found, name, None) if isinstance(found, type) else None
    return value if hasattr(value, "__code__") else None
