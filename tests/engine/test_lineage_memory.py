"""Lineage that is on disk takes no memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import psutil

import weft
from weft import _native

MIB = 1 << 20


@weft.remote
def step(before: Any, note: bytes) -> Any:
    return before


def own_bytes() -> int:
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def test_memory_stays_flat_while_a_chain_grows_on_disk(weft_session: ModuleType) -> None:
    _native.limit_lineage(MIB, 1 << 30)
    end = step.remote(np.zeros(20_000), b"")
    weft.wait([end], fetch_local=False)
    before = own_bytes()
    for number in range(800):
        end = step.remote(end, bytes([number % 256]) * 50_000)
        if number % 20 == 0:
            weft.wait([end], fetch_local=False)
    weft.wait([end], fetch_local=False)
    assert _native.statistics()["lineage_disk_bytes"] > 30 * MIB
    assert own_bytes() - before < 15 * MIB
