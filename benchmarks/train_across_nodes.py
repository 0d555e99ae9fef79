"""All-reduce between two nodes beside a bare socket that moves the same bytes both ways between them, turn by turn.

python benchmarks/train_across_nodes.py [--rounds 7] [--namespaces]

The nodes are on loopback, or each in a network namespace of its own, joined by a bridge; that needs root and iproute2.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator

import numpy as np

import weft
from weft import train
from weft.testing import Cluster
from weft.testing.network import Network
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

SIZES = {"4K": 4 << 10, "4M": 4 << 20, "100M": 100 << 20}


@weft.remote(num_cpus=0)
class Member:
    def __init__(self, meeting: train.Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank

    def join(self) -> None:
        self.group = self.meeting.join(self.rank)

    def listen(self, host: str) -> tuple[str, int]:
        self.listener = socket.create_server((host, 0))
        return self.listener.getsockname()

    def connect(self, address: tuple[str, int]) -> None:
        if self.rank == 0:
            self.link, _ = self.listener.accept()
        else:
            self.link = socket.create_connection(address)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def all_reduce(self, size: int, times: int) -> float:
        array = np.ones(size // 4, np.float32)
        self.group.barrier()
        began = time.perf_counter()
        for _ in range(times):
            self.group.all_reduce(array, "max")
        return (time.perf_counter() - began) / times

    def bare(self, size: int, times: int) -> float:
        out, into = bytearray(size), bytearray(size)
        self.group.barrier()
        began = time.perf_counter()
        for _ in range(times):
            sender = threading.Thread(target=self.link.sendall, args=(out,))
            sender.start()
            view = memoryview(into)
            while view:
                view = view[self.link.recv_into(view) :]
            sender.join()
        return (time.perf_counter() - began) / times


@contextlib.contextmanager
def two_nodes(in_namespaces: bool) -> Iterator[dict[str, str]]:
    """Of a cluster that this process is in: their addresses by their ids."""
    with contextlib.ExitStack() as undo:
        network = undo.enter_context(Network()) if in_namespaces else None
        host = {} if network is None else {"host": network.address}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **host})
        undo.callback(cluster.shutdown)
        for _ in range(2):
            cluster.add_node(num_cpus=1, **({} if network is None else {"place": network.add_place()}))
        weft.init(address=cluster.address)
        undo.callback(weft.shutdown)
        yield {one["NodeID"]: one["NodeManagerAddress"] for one in weft.nodes() if one["Resources"].get("CPU")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--namespaces", action="store_true")
    options = parser.parse_args()
    with two_nodes(options.namespaces) as nodes:
        measure(nodes, options.rounds)


def measure(nodes: dict[str, str], rounds: int) -> None:
    meeting = train.Meeting(2)
    members = [
        Member.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(meeting, rank)
        for rank, node in enumerate(nodes)
    ]
    weft.get([member.join.remote() for member in members])
    address = weft.get(members[0].listen.remote(next(iter(nodes.values()))))
    weft.get([member.connect.remote(address) for member in members])
    print("| size | all-reduce best / median, ms | bare socket best / median, ms | of the socket, best / median |")
    print("|---|---|---|---|")
    for name, size in SIZES.items():
        ours, bare = [], []
        for _ in range(rounds):
            times = max(1, min(200, (20 << 20) // size))
            ours.append(1e3 * max(weft.get([member.all_reduce.remote(size, times) for member in members])))
            bare.append(1e3 * max(weft.get([member.bare.remote(size, times) for member in members])))
        middle = statistics.median(ours), statistics.median(bare)
        print(
            f"| {name} | {min(ours):.3g} / {middle[0]:.3g} | {min(bare):.3g} / {middle[1]:.3g} "
            f"| {min(bare) / min(ours):.0%} / {middle[1] / middle[0]:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
