"""All-reduce between two nodes over loopback beside a bare socket that moves the same bytes both ways, turn by turn.

python benchmarks/train_across_nodes.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import threading
import time

import numpy as np

import weft
from weft import train
from weft.testing import Cluster
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

SIZES = {"4K": 4 << 10, "4M": 4 << 20, "100M": 100 << 20}


@weft.remote(num_cpus=0)
class Member:
    def __init__(self, meeting: train.Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank

    def join(self) -> None:
        self.group = self.meeting.join(self.rank)

    def listen(self) -> int:
        self.listener = socket.create_server(("127.0.0.1", 0))
        return self.listener.getsockname()[1]

    def connect(self, port: int) -> None:
        if self.rank == 0:
            self.link, _ = self.listener.accept()
        else:
            self.link = socket.create_connection(("127.0.0.1", port))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    weft.init(address=cluster.address)
    nodes = [node["NodeID"] for node in weft.nodes()]
    meeting = train.Meeting(2)
    members = [
        Member.options(scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[rank], soft=False)).remote(
            meeting, rank
        )
        for rank in range(2)
    ]
    weft.get([member.join.remote() for member in members])
    port = weft.get(members[0].listen.remote())
    weft.get([member.connect.remote(port) for member in members])
    print("| size | all-reduce best / median, ms | bare socket best / median, ms | of the socket, best / median |")
    print("|---|---|---|---|")
    for name, size in SIZES.items():
        ours, bare = [], []
        for _ in range(options.rounds):
            times = max(1, min(200, (20 << 20) // size))
            ours.append(1e3 * max(weft.get([member.all_reduce.remote(size, times) for member in members])))
            bare.append(1e3 * max(weft.get([member.bare.remote(size, times) for member in members])))
        middle = statistics.median(ours), statistics.median(bare)
        print(
            f"| {name} | {min(ours):.3g} / {middle[0]:.3g} | {min(bare):.3g} / {middle[1]:.3g} "
            f"| {min(bare) / min(ours):.0%} / {middle[1] / middle[0]:.0%} |",
            flush=True,
        )
    weft.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
