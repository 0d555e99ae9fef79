"""Names for people: a trial's tag and its folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.tune.space import SampleFrom, domains_of, path_name
from weft.tune.trial import Trial

__all__ = ["tag_of", "trial_dir_of", "varied_keys"]

LONGEST = 100
_UNSAFE = re.compile(r"[^-\w.,=+]+")


def varied_keys(space: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The paths that differ between trials, outermost only."""
    paths = [path for path, domain in domains_of(space)]
    functions = {path for path, domain in domains_of(space) if isinstance(domain, SampleFrom)}
    kept: list[tuple[Any, ...]] = []
    for path in paths:
        if not any(path[: len(outer)] == outer and path != outer for outer in kept):
            kept.append(path)
    return sorted(kept, key=lambda path: path in functions)


def tag_of(keys: list[tuple[Any, ...]], config: Mapping[str, Any]) -> str:
    """`alpha=0.2,beta=1`, of the keys that vary."""
    parts = []
    for path in keys:
        value: Any = config
        try:
            for part in path:
                value = value[part]
        except (KeyError, IndexError, TypeError):
            continue  # another branch of the space was taken
        parts.append(f"{path[-1] if isinstance(path[-1], str) else path_name(path)}={_short(value)}")
    return ",".join(parts)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str | int | bool):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}={_short(each)}" for key, each in value.items()) + "}"
    return getattr(value, "__name__", None) or str(value)


def trial_dir_of(trial: Trial) -> str:
    """A folder name that sorts by number and says what was tried."""
    name = f"{trial.trainable_name}_{trial.trial_id}" + (f"_{trial.tag}" if trial.tag else "")
    return _UNSAFE.sub("_", name)[:LONGEST].rstrip("._")
