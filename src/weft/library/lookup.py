"""Nested results seen flat: `info/loss` is `result["info"]["loss"]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten", "value_at"]


def value_at(result: Mapping[str, Any], key: str | None) -> Any:
    """The value of a key, or of a path with slashes; None when there is none."""
    if key is None:
        return None
    if key in result:
        return result[key]
    if "/" not in key:
        return None
    value: Any = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def flatten(result: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One level, with slashes in the keys."""
    flat: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
