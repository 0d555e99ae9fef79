"""`ray.tune.logger` of Ray 2.60."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from weft.tune import Callback as LoggerCallback
from weft.tune.loggers import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback", "pretty_print"]


def pretty_print(result: Mapping[str, Any], exclude: set[str] | None = None) -> str:
    """A result in lines, without what is excluded."""
    shown = {name: value for name, value in result.items() if value is not None and name not in (exclude or ())}
    return json.dumps(shown, indent=2, sort_keys=True, default=str)
