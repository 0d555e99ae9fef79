"""How long the head's end is felt: from its death, or from when it is asked to end, to answers, on real nodes here.

    python benchmarks/take_over.py --rounds 5

Each round starts a head and other nodes, waits for the control store's replicas, and ends the head while the driver, on
another node, works. `kill -9` and SIGTERM (it hands over), three other nodes and one, take turns. Prints the slowest
answer of each kind after that.
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


def one_round(others_count: int, is_asked: bool) -> dict[str, float]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        others = [cluster.add_node(num_cpus=1, resources={"away": 4}) for _ in range(others_count)]
        weft.init(address=others[-1].local_address)
        asked = Client(others[-1].local_address)
        while asked.ask("head")["store"]["replicas"] < min(3, 1 + others_count):
            time.sleep(0.05)
        counter = Counter.options(**AWAY).remote()
        weft.get(counter.add.remote())
        assert cluster.head_node is not None
        killer = threading.Thread(target=cluster.remove_node, args=(cluster.head_node, is_asked))
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
    cases = [(3, False), (3, True), (1, False), (1, True)]
    rounds = [{case: one_round(*case) for case in cases} for _ in range(parser.parse_args().rounds)]
    for others_count, is_asked in cases:
        print(f"{others_count} other nodes, the head is {'asked to end' if is_asked else 'killed'}")
        for name in rounds[0][others_count, is_asked]:
            times = sorted(one[others_count, is_asked][name] for one in rounds)
            print(f"  {name}: median {statistics.median(times) * 1000:.0f} ms, longest {times[-1] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
