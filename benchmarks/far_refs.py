"""What refs between nodes cost, and what a node's death does to them: python benchmarks/far_refs.py [--count 5000].

Two nodes, real daemons on this machine. Printed: operations per second and the CPU time of all processes for each,
for refs of one node's process that another's reads, and for tasks whose argument is an object of another node; then how
long it takes from the moment at which a node is known to be dead until 10,000 objects that its process owned are read.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import psutil

import weft
from weft.testing import Cluster

INHERITED = 10_000
ROUNDS = 3


@weft.remote(num_cpus=0)
class Holder:
    def make(self, count: int) -> list[Any]:
        return [weft.put(number) for number in range(count)]

    def read(self, refs: list[Any]) -> int:
        return sum(weft.get(refs))


@weft.remote(resources={"there": 0.01}, num_cpus=0.01)
def add(number: int) -> int:
    return number + 1


def cpu_s(cluster: Cluster) -> float:
    """Of all processes of the cluster and of this one."""
    roots = [psutil.Process(node.pid) for node in cluster.list_all_nodes()]
    processes = [one for root in roots for one in (root, *root.children(recursive=True))]
    times = [os.times(), *(one.cpu_times() for one in processes)]
    return sum(one.user + one.system for one in times)


def measure(cluster: Cluster, name: str, count: int, call: Callable[[int], None]) -> None:
    call(count // 5)
    found = []
    for _ in range(ROUNDS):
        cpu, began = cpu_s(cluster), time.perf_counter()
        call(count)
        found.append((count / (time.perf_counter() - began), (cpu_s(cluster) - cpu) / count * 1e6))
    rate, cost = max(one[0] for one in found), min(one[1] for one in found)
    print(f"{name}: {rate:,.0f}/s, {cost:.0f} us of CPU each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    count = parser.parse_args().count
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    other = cluster.add_node(num_cpus=2, resources={"there": 10})
    weft.init(address=cluster.address)
    there, here = Holder.options(resources={"there": 1}).remote(), Holder.remote()

    def pass_refs(wanted: int) -> None:
        weft.get(here.read.remote(weft.get(there.make.remote(wanted))))

    def far_arguments(wanted: int) -> None:
        weft.get([add.remote(weft.put(number)) for number in range(wanted)])

    measure(cluster, "refs passed between nodes and read", count, pass_refs)
    measure(cluster, "tasks with a far argument", count, far_arguments)
    refs = weft.get(there.make.remote(INHERITED))
    cluster.remove_node(other, allow_graceful=False)  # until the others know
    began = time.perf_counter()
    assert weft.get(refs, timeout=120) == list(range(INHERITED))
    print(f"{INHERITED:,} objects of a dead node, until all are read: {time.perf_counter() - began:.2f} s")
    weft.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
