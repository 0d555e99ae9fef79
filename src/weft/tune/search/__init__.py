"""Search algorithms: which configuration to try next. Optional libraries are imported when one is made."""

from __future__ import annotations

from weft._lazy import LazyNames

_LAZY = LazyNames(__name__)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
