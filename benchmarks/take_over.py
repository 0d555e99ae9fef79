"""How long the head's death is felt: from `kill -9` to answers, on a cluster of real nodes on this machine.

    python benchmarks/take_over.py --rounds 5

Each round starts a head and three nodes, waits for the control store's replicas, and kills the head while the driver,
on another node, works. Prints the slowest answer of each kind after the kill.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import weft
from weft.cluster_utils import Cluster
from weft.engine.cluster.client import Client

AWAY = {"resources": {"away": 1}}


@weft.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def one_round() -> dict[str, float]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        others = [cluster.add_node(num_cpus=1, resources={"away": 4}) for _ in range(3)]
        weft.init(address=others[-1].local_address)
        asked = Client(others[-1].local_address)
        while asked.ask("head")["store"]["replicas"] < 3:
            time.sleep(0.05)
        counter = Counter.options(**AWAY).remote()
        weft.get(counter.add.remote())
        assert cluster.head_node is not None
        killer = threading.Thread(target=cluster.remove_node, args=(cluster.head_node, False))
        killer.start()
        slowest_call = 0.0
        begin = time.perf_counter()
        while killer.is_alive() or time.perf_counter() - begin < 0.5:
            before = time.perf_counter()
            weft.get(counter.add.remote())
            slowest_call = max(slowest_call, time.perf_counter() - before)
            if not killer.is_alive() and "actor" not in locals():
                before = time.perf_counter()
                actor = Counter.options(**AWAY).remote()
                weft.get(actor.add.remote())
                next_actor = time.perf_counter() - before
        return {"a call on a living actor": slowest_call, "an actor that is created then": next_actor}
    finally:
        weft.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = [one_round() for _ in range(parser.parse_args().rounds)]
    for name in rounds[0]:
        times = sorted(one[name] for one in rounds)
        print(f"{name}: median {statistics.median(times) * 1000:.0f} ms, longest {times[-1] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
