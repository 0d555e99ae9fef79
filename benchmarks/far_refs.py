"""What refs between nodes cost, and what a node's death does to them: python benchmarks/far_refs.py [--count 5000].

Two nodes, real daemons on this machine. Printed: operations per second and the CPU time of all processes for each,
for refs of one node's process that another's reads, and for tasks whose argument is an object of another node; then how
long it takes from the moment at which a node is known to be dead until 10,000 objects that its process owned are read.
With `--against FOLDER` that checkout and this one take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import weft
from weft.cluster_utils import Cluster

INHERITED = 10_000
ROUNDS = 3
REFS, ARGUMENTS = "refs passed between nodes and read", "tasks with a far argument"
DEATH = f"{INHERITED:,} objects of a dead node, until all are read"


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


def measure(cluster: Cluster, count: int, call: Callable[[int], None]) -> tuple[float, float]:
    """Operations per second, and the CPU of each in us: the best of some rounds."""
    call(count // 5)
    found = []
    for _ in range(ROUNDS):
        cpu, began = cpu_s(cluster), time.perf_counter()
        call(count)
        found.append((count / (time.perf_counter() - began), (cpu_s(cluster) - cpu) / count * 1e6))
    return max(one[0] for one in found), min(one[1] for one in found)


def run(count: int) -> dict[str, tuple[float, float]]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    other = cluster.add_node(num_cpus=2, resources={"there": 10})
    weft.init(address=cluster.address)
    there, here = Holder.options(resources={"there": 1}).remote(), Holder.remote()

    def pass_refs(wanted: int) -> None:
        weft.get(here.read.remote(weft.get(there.make.remote(wanted))))

    def far_arguments(wanted: int) -> None:
        weft.get([add.remote(weft.put(number)) for number in range(wanted)])

    found = {REFS: measure(cluster, count, pass_refs), ARGUMENTS: measure(cluster, count, far_arguments)}
    refs = weft.get(there.make.remote(INHERITED))
    cluster.remove_node(other, allow_graceful=False)  # until the others know
    began = time.perf_counter()
    assert weft.get(refs, timeout=120) == list(range(INHERITED))
    found[DEATH] = (0.0, (time.perf_counter() - began) * 1e6)
    weft.shutdown()
    cluster.shutdown()
    return found


def compare(other: Path, count: int, turns: int) -> None:
    """This checkout and another one, which is built, in turns."""
    pythons = {"here": Path(sys.executable), "there": other / ".venv/bin/python"}
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(turns):
        for where in ("here", "there") if turn % 2 else ("there", "here"):
            command = [str(pythons[where]), __file__, "--count", str(count), "--json"]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name, (_, cost) in json.loads(told).items():
                found.setdefault(name, {}).setdefault(where, []).append(cost)
    for name, costs in found.items():
        here, there = statistics.median(costs["here"]), statistics.median(costs["there"])
        shown = "; ".join(f"{where} " + " ".join(f"{one:.0f}" for one in all_) for where, all_ in costs.items())
        print(f"{name}: {here:.0f} us against {there:.0f}, {here / there:.2f} times ({shown})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--json", action="store_true", help="print figures for programs")
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="another checkout, built, in turns with this one"
    )
    parser.add_argument("--turns", type=int, default=6)
    options = parser.parse_args()
    if options.against:
        compare(options.against, options.count, options.turns)
        return
    found = run(options.count)
    if options.json:
        print(json.dumps(found))
        return
    for name in (REFS, ARGUMENTS):
        print(f"{name}: {found[name][0]:,.0f}/s, {found[name][1]:.0f} us of CPU each")
    print(f"{DEATH}: {found[DEATH][1] / 1e6:.2f} s")


if __name__ == "__main__":
    main()
