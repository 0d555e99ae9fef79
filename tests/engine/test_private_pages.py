"""Private pages and arrays that are being filled, where memory is short, processes die and sessions end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from waiting import wait_until
from weft.cluster_utils import Cluster
from weft.engine.process.session import rpc
from weft.exceptions import ObjectStoreFullError, WorkerCrashedError

MIB = 1 << 20
LARGE = 200_000
HANG_S = 60.0


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def small_store() -> Iterator[None]:
    weft.init(num_cpus=2, object_store_memory=64 * MIB)
    try:
        yield
    finally:
        weft.shutdown()


def used_bytes() -> int:
    return int(rpc.request("statistics")["used_bytes"])


@pytest.mark.usefixtures("small_store")
def test_there_is_an_end_to_object_memory() -> None:
    held = [weft.empty(20 * MIB, np.uint8) for _ in range(3)]
    with pytest.raises(ObjectStoreFullError):
        weft.empty(20 * MIB, np.uint8)
    del held
    assert weft.empty(20 * MIB, np.uint8).nbytes == 20 * MIB


@pytest.mark.usefixtures("small_store")
def test_tensors_come_back_from_disk_as_they_were(torch: Any) -> None:
    refs = [weft.put(torch.full((4 * MIB,), number, dtype=torch.bfloat16)) for number in range(16)]
    assert rpc.request("statistics")["spilled_objects"] > 0
    for number, ref in enumerate(refs):
        value = weft.get(ref)
        assert (value == number).all()
        value.fill_(99)
    assert (weft.get(refs[3]) == 3).all()


@pytest.mark.usefixtures("weft_session")
def test_a_killed_worker_leaves_no_pin_and_no_memory() -> None:
    @weft.remote(max_retries=0)
    def die(array: Any) -> None:
        mine = weft.get(array[0], writable=True)
        filling = weft.empty(LARGE)
        mine[0], filling[0] = 1, 1
        os.kill(os.getpid(), signal.SIGKILL)

    before = used_bytes()
    ref = weft.put(np.zeros(LARGE))
    with pytest.raises(WorkerCrashedError):
        weft.get(die.remote([ref]))
    assert weft.get(ref).sum() == 0
    del ref
    wait_until(lambda: used_bytes() == before, HANG_S)


def test_what_was_read_stays_as_it_is_when_the_driver_leaves_a_node_that_goes_on(torch: Any) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 * MIB})
    try:
        weft.init(address=cluster.address)
        ref = weft.put(torch.ones(LARGE))
        value, filling = weft.get(ref), weft.empty(LARGE)
        value[0], filling[:] = 5, 6
        del ref
        weft.shutdown()
        weft.init(address=cluster.address)  # whose values come to where those were
        others = [weft.put(np.zeros(LARGE)) for _ in range(30)]
        assert value.sum() == LARGE + 4
        assert filling.sum() == 6 * LARGE
        filling[0] = 7
        assert all(weft.get(other).sum() == 0 for other in others)
        assert weft.get(weft.put(filling))[0] == 7
        del value, filling
    finally:
        weft.shutdown()
        cluster.shutdown()
