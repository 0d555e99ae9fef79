"""Joining environments: what is submitted inherits from where it is submitted. Pure.

>>> merge({"env_vars": {"A": "1", "B": "1"}, "pip": {}}, {"env_vars": {"B": "2"}})
{'env_vars': {'A': '1', 'B': '2'}, 'pip': {}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_EITHER = ("pip", "uv")


def merge(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """The child's fields win as a whole; variables are joined one by one."""
    merged = {**parent, **child}
    if any(name in child for name in _EITHER):
        for name in _EITHER:
            if name not in child:
                merged.pop(name, None)
    if "env_vars" in parent and "env_vars" in child:
        merged["env_vars"] = {**parent["env_vars"], **child["env_vars"]}
    return merged


def canonical(env: Mapping[str, Any] | None) -> str:
    """As JSON that is equal for equal environments; empty for none."""
    return json.dumps(env, sort_keys=True, separators=(",", ":")) if env else ""


def parse(text: str) -> dict[str, Any]:
    """What `canonical` wrote."""
    found: dict[str, Any] = json.loads(text) if text else {}
    return found
