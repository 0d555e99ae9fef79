"""What `import ray` finds, in the words of Ray 2.60: the names that only Ray has, and behind them all of Weft's.

A module of this package goes before Weft's of the same name; see `weft.compat.alias`.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import weft
from weft.compat import words
from weft.compat.alias import API_LEVEL, ON_ZERO, VARIABLE, stand_before_weft

__version__ = API_LEVEL
__commit__ = ""
logger = logging.getLogger("ray")
os.environ.setdefault(VARIABLE, "1")  # for workers, whose messages and titles say "ray", too
os.environ.setdefault(ON_ZERO, "0")
stand_before_weft()
words.teach()

_HOMES = {
    "weft.compat.session": "init",
    "weft.compat.ray.util.client": "ClientBuilder client",
    "weft.compat.ray.job_config": "JobConfig",
    "weft.compat.ray._private.worker": "LOCAL_MODE RESTORE_WORKER_MODE SCRIPT_MODE SPILL_WORKER_MODE WORKER_MODE",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_SUBMODULES = frozenset(
    "_private _raylet air autoscaler dag data experimental job_config job_submission rllib serve train tune "
    "util".split()
)

__all__ = ["__version__", *_HOME_OF, *(name for name in weft.__all__ if name not in ("__version__", *_HOME_OF))]


def __getattr__(name: str) -> Any:
    import importlib

    value: Any
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        try:
            value = getattr(weft, name)
        except AttributeError as error:
            raise AttributeError(str(error).replace("weft", "ray")) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *dir(weft), "__name__", "__doc__"})
