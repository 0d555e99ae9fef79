"""What Modin spends on every call of every method, whatever the engine, cut from outside.

- Its wrapper around each method makes a new class by `namedtuple` in every call, some 0.1 to 0.3 ms, and one call of a
  user makes dozens of such calls. The class is always the same: it is made once.
- Metrics are checked by a regular expression in every call, also where nobody listens: they are off unless the
  environment says otherwise. `modin.config.MetricsMode.put("enable")` brings them back.
"""

from __future__ import annotations

import functools
import os
from collections import namedtuple
from typing import Any


def keep_classes() -> None:
    """For all of Modin in this process; a second call changes nothing."""
    from modin.core.storage_formats.pandas import query_compiler_caster as caster

    if getattr(caster, "namedtuple", None) is namedtuple:
        caster.namedtuple = _namedtuple


def switch_metrics_off() -> None:
    from modin.config import MetricsMode

    if MetricsMode.varname not in os.environ:
        MetricsMode.put("disable")


def _namedtuple(name: str, fields: Any) -> Any:
    return _kept_namedtuple(name, tuple(fields))


@functools.cache
def _kept_namedtuple(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)
