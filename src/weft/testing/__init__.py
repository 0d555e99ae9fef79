"""What tests of programs that use Weft need."""

from __future__ import annotations

from weft.testing.cluster import Cluster

__all__ = ["Cluster"]
