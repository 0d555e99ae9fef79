"""`ray.util` in the words of Ray 2.60: Weft's own of that name, and what only Ray has."""

from __future__ import annotations

from typing import Any

import weft.util

_OWN = {
    "ActorGroup": "weft.compat.ray.util.actor_group",
    "connect": "weft.compat.ray.util.client",
    "disconnect": "weft.compat.ray.util.client",
}
_SUBMODULES = frozenset(("client", "collective", "dask", "multiprocessing"))

__all__ = [*_OWN, *(name for name in dir(weft.util) if not name.startswith("_"))]


def __getattr__(name: str) -> Any:
    import importlib

    value: Any
    if name in _OWN:
        value = getattr(importlib.import_module(_OWN[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        try:
            value = getattr(weft.util, name)
        except AttributeError as error:
            raise AttributeError(str(error).replace("weft", "ray")) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *dir(weft.util)})
