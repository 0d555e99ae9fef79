"""Work goes on while workers and nodes are killed, and afterwards nothing is held."""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import Any

import numpy as np

import weft
from waiting import comes_true
from weft.cluster_utils import Cluster
from weft.engine.process.session import rpc

NOTHING = {"objects": 0, "used_bytes": 0, "leases": 0, "demands": 0, "CPUs in use": 0}
DURATION_S = float(os.environ.get("WEFT_STORM_S", "6"))


def left() -> dict[str, float]:
    """What is still held or wanted."""
    found = rpc.request("statistics")
    in_use = weft.cluster_resources()["CPU"] - weft.available_resources().get("CPU", 0)
    return {**{name: found[name] for name in NOTHING if name in found}, "CPUs in use": in_use}


@weft.remote(max_retries=-1)
def work(index: int, array: Any) -> int:
    time.sleep(0.005)
    return index + int(array[0])


@weft.remote(max_retries=-1)
def nested(index: int) -> int:
    return weft.get(work.remote(index, np.zeros(20_000)))


@weft.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Echo:
    def say(self, index: int) -> int:
        return index

    def pid(self) -> int:
        return os.getpid()


def test_a_storm_of_deaths_loses_nothing() -> None:
    choose = random.Random(7)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
        weft.init(address=cluster.address)
        actors = [Echo.options(scheduling_strategy="SPREAD").remote() for _ in range(4)]
        end = time.monotonic() + DURATION_S
        while time.monotonic() < end:
            shared = weft.put(np.zeros(20_000))
            tasks = [work.remote(index, shared) for index in range(40)] + [nested.remote(index) for index in range(10)]
            calls = [choose.choice(actors).say.remote(index) for index in range(40)]
            chance = choose.random()
            if chance < 0.4:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(weft.get(choose.choice(actors).pid.remote(), timeout=30), 9)
            elif chance < 0.6:
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
                nodes.append(cluster.add_node(num_cpus=2))
            assert weft.get(tasks, timeout=60) == [*range(40), *range(10)]
            assert weft.get(calls, timeout=60) == list(range(40))
        del shared, tasks, calls, actors
        assert comes_true(lambda: left() == NOTHING), left()
    finally:
        weft.shutdown()
        cluster.shutdown()
