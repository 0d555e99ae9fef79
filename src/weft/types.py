"""Types for annotations; Ray's `ray.types`."""

from __future__ import annotations

from weft._native import ObjectRef

__all__ = ["ObjectRef"]
