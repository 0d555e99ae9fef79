"""`ray.experimental` of Ray 2.60."""

from typing import Any

import weft.experimental


def __getattr__(name: str) -> Any:
    import importlib

    if name == "tqdm_ray":
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("get_object_locations", "get_local_object_locations"):
        return getattr(importlib.import_module(f"{__name__}.locations"), name)
    return getattr(weft.experimental, name)
