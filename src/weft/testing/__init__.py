"""What tests of programs that use Weft need."""

from __future__ import annotations

from weft.testing.cluster import Cluster
from weft.testing.network import Network

__all__ = ["Cluster", "Network"]
