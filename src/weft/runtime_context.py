"""The runtime context's type; Ray's `ray.runtime_context`."""

from __future__ import annotations

from weft.engine.process.session.context import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
