"""Values that name memory of a device, read on other nodes than the holder's, and made again when that has died."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import weft
from weft.devices import machine_id
from weft.testing import Cluster
from weft.testing.fake_device import FakeArray

SIZE = 400_000


@weft.remote(max_retries=3)
def make(number: int) -> tuple[FakeArray, int]:
    return FakeArray.of(np.full(SIZE, number, np.uint8)), os.getpid()


@weft.remote(num_cpus=0)
class Reader:
    def is_elsewhere(self) -> None:
        """From now on this process takes all others for those of another machine."""
        machine_id.of = lambda: f"machine of {os.getpid()}"  # type: ignore[assignment]

    def make(self, number: int, resources: dict[str, float]) -> list[Any]:
        """This process is the owner."""
        self.made = make.options(resources=resources).remote(number)
        weft.wait([self.made])
        return [self.made]

    def read(self, refs: list[Any]) -> tuple[int, int]:
        value, pid = weft.get(refs[0])
        return int(value.array().sum(dtype=np.int64)), pid

    def total(self, made: tuple[FakeArray, int]) -> tuple[int, int]:
        return int(made[0].array().sum(dtype=np.int64)), made[1]


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """The driver's, and "a" and "b"."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"here": 10}})
    try:
        for name in "ab":
            cluster.add_node(num_cpus=2, resources={name: 10})
        weft.init(address=cluster.address)
        yield cluster
    finally:
        weft.shutdown()
        cluster.shutdown()


pytestmark = pytest.mark.usefixtures("three_nodes")


def on(node: str) -> dict[str, Any]:
    return {"resources": {node: 1}}


def end(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    process.wait(60)


@pytest.mark.parametrize("was_read", [True, False])
@pytest.mark.parametrize("owner", ["here", "a", "b"])
@pytest.mark.parametrize("reader", ["here", "a", "b"])
def test_a_reader_on_any_node_has_it_made_again(owner: str, reader: str, was_read: bool) -> None:
    """The holder is on "a": the reader is there, on the owner's node, or on a third one."""
    owning, reading = Reader.options(**on(owner)).remote(), Reader.options(**on(reader)).remote()
    refs = weft.get(owning.make.remote(8, {"a": 1}))
    total, pid = weft.get((reading if was_read else owning).read.remote(refs))
    assert total == 8 * SIZE
    end(pid)
    again, other = weft.get(reading.read.remote(refs), timeout=60)
    assert (again, other != pid) == (8 * SIZE, True)
    assert weft.get(owning.read.remote(refs), timeout=60) == (again, other), "made once for all"


@pytest.mark.parametrize("reader", ["here", "b"])
def test_a_lost_argument_is_made_again_for_a_task_elsewhere(reader: str) -> None:
    reading = Reader.options(**on(reader)).remote()
    ref = make.options(**on("a")).remote(8)
    total, pid = weft.get(reading.total.remote(ref))
    end(pid)
    again, other = weft.get(reading.total.remote(ref), timeout=60)
    assert (total, again, other != pid) == (8 * SIZE, 8 * SIZE, True)


def test_another_machine_has_it_made_again() -> None:
    reading = Reader.options(**on("b")).remote()
    ref = make.options(**on("a")).remote(8)
    weft.get(reading.is_elsewhere.remote())
    total, pid = weft.get(reading.read.remote([ref]))
    end(pid)
    again, other = weft.get(reading.read.remote([ref]), timeout=60)
    assert (total, again, other != pid) == (8 * SIZE, 8 * SIZE, True)


def test_a_node_that_died_with_its_holders_counts_as_they_do(three_nodes: Cluster) -> None:
    """The value's own bytes live on where it was read."""
    died = three_nodes.add_node(num_cpus=1, resources={"c": 1})
    reading = Reader.options(**on("b")).remote()
    ref = make.options(**on("c")).remote(8)
    weft.get(reading.is_elsewhere.remote())
    total, pid = weft.get(reading.read.remote([ref]))
    three_nodes.add_node(num_cpus=1, resources={"c": 1})
    three_nodes.remove_node(died, allow_graceful=False)
    again, other = weft.get(reading.read.remote([ref]), timeout=60)
    assert (total, again, other != pid) == (8 * SIZE, 8 * SIZE, True)


@pytest.mark.parametrize("reader", ["here", "a", "b"])
def test_what_cannot_be_made_again_is_lost_by_name_on_every_node(reader: str) -> None:
    @weft.remote(num_cpus=0)
    class Maker:
        def make(self) -> FakeArray:
            return FakeArray.of(np.full(SIZE, 1, np.uint8))

        def put(self) -> tuple[list[Any], int]:
            return [weft.put(FakeArray.of(np.full(SIZE, 1, np.uint8)))], os.getpid()

    maker, reading = Maker.options(**on("a")).remote(), Reader.options(**on(reader)).remote()
    made = maker.make.remote()
    [put], pid = weft.get(maker.put.remote())
    weft.wait([made])
    end(pid)
    for ref in (made, put):
        with pytest.raises(weft.exceptions.ObjectLostError):
            weft.get(reading.read.remote([ref]), timeout=60)
