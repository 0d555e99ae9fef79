"""The config that a run was begun with, kept beside its reports, and whether another is the same."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from weft import cloudpickle
from weft.library.storage import Storage

__all__ = ["changed_config", "keep_config"]

CONFIG = "config.pkl"
_ABSENT = object()
_LONGEST_VALUE = 60


def keep_config(storage: Storage, config: Mapping[str, Any]) -> None:
    storage.write(CONFIG, cloudpickle.dumps(dict(config)))


def changed_config(storage: Storage, config: Mapping[str, Any]) -> str:
    """What is other in it than in the run's, in words; nothing if nothing is, or if the run has none."""
    data = storage.read(CONFIG)
    if data is None or data == cloudpickle.dumps(dict(config)):
        return ""
    try:
        old = pickle.loads(data)
    except Exception as error:
        return f"the old one cannot be read any more ({error!r})"
    for name in sorted({*old, *config}, key=str):
        was, now = old.get(name, _ABSENT), config.get(name, _ABSENT)
        if not _is_same(was, now):
            return f"{name!r} is {_shown(now)}, but was {_shown(was)}"
    return ""


def _is_same(one: Any, other: Any) -> bool:
    try:
        if bool(one == other):
            return True
    except Exception:  # arrays have no single answer
        pass
    return bool(cloudpickle.dumps(one) == cloudpickle.dumps(other))


def _shown(value: Any) -> str:
    return "not there" if value is _ABSENT else repr(value)[:_LONGEST_VALUE]
