"""Objects that are on the disk of another node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from waiting import comes_true
from weft.cluster_utils import Cluster
from weft.engine.process.session import rpc

MIB = 1 << 20
HANG_S = 60.0


@weft.remote(resources={"there": 1}, max_retries=0)
def make(size: int) -> Any:
    """It cannot be made again."""
    return np.zeros(size, dtype=np.uint8)


@weft.remote(resources={"there": 1}, num_cpus=0)
class Holder:
    """Owns objects of its node, and reads some."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._read: list[Any] = []

    def put(self, size: int) -> list[Any]:
        self._kept.append(weft.put(np.full(size, len(self._kept), dtype=np.uint8)))
        return self._kept[-1:]

    def read(self) -> None:
        self._read.append(weft.get(self._kept[-1]))

    def let_go(self) -> None:
        self._read.clear()

    def spilled_objects(self) -> int:
        return int(rpc.request("statistics")["spilled_objects"])


@pytest.fixture
def holder() -> Iterator[Any]:
    """On a node whose store has 64 MiB; the driver is on another."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1, resources={"there": 2}, object_store_memory=64 * MIB)
        weft.init(address=cluster.address)
        yield Holder.remote()
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_an_object_on_the_disk_of_its_node_comes_once_that_has_room_to_read_it(holder: Any) -> None:
    spilled = make.remote(24 * MIB)
    weft.wait([spilled], fetch_local=False)
    for _ in range(3):
        weft.get(holder.put.remote(16 * MIB))
        weft.get(holder.read.remote())
    assert weft.get(holder.spilled_objects.remote()) == 1
    letting_go = threading.Timer(0.5, lambda: weft.get(holder.let_go.remote()))
    letting_go.start()
    value = weft.get(spilled, timeout=HANG_S)
    letting_go.join()
    assert len(value) == 24 * MIB and not value.any()


def test_more_than_the_store_of_their_node_holds_comes_from_its_disk(holder: Any) -> None:
    refs = [weft.get(holder.put.remote(16 * MIB))[0] for _ in range(10)]
    assert comes_true(lambda: weft.get(holder.spilled_objects.remote()) > 5)
    for number, ref in enumerate(refs):
        value = weft.get(ref, timeout=HANG_S)
        assert len(value) == 16 * MIB and bool((value == number).all())
