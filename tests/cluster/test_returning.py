"""A node that its cluster goes on without looks for the others; the worlds of `cut_worlds` show it with real ones."""

from __future__ import annotations

import time
from typing import Any

import pytest

from weft.engine.cluster import returning
from weft.engine.node.config import ClusterConfig, NodeConfig


def test_a_node_looks_for_its_cluster_also_when_the_time_of_day_leaps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    times = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(time, "time", lambda: next(times))
    monkeypatch.setattr(returning.signal, "signal", lambda *_: None)
    monkeypatch.setattr(returning, "ASK_S", 0.0)
    monkeypatch.setattr(returning, "RETURN_S", 0.05)

    def ask(address: str, token: bytes) -> Any:
        asked.append(address)
        raise ConnectionRefusedError(address)

    monkeypatch.setattr(returning, "ask_nodes", ask)
    returning.come_back(
        NodeConfig(cluster=ClusterConfig(head="here:1", launcher_fd=-1)), b"", "cluster", ["here:1", "there:2"]
    )
    assert asked[:2] == ["here:1", "there:2"]
