"""How long a node's death disturbs a stream of tasks: python benchmarks/node_death.py [--seconds 6] [--rounds 5].

A driver keeps tasks of 5 ms under way on three nodes (two CPUs each, real daemons on this machine). One node is killed
with SIGKILL. What is left has two thirds of the CPUs, so the level to return to is two thirds of what it was. Printed:
the rate before, the rate from one second after the death on, and when the first window of 100 ms reached that level.
"""

from __future__ import annotations

import argparse
import statistics
import time

import weft
from weft.testing import Cluster

WINDOW_S = 0.1
AHEAD = 60
LEFT = 2 / 3


@weft.remote
def work() -> None:
    time.sleep(0.005)


def measure(seconds: float) -> tuple[float, float, float]:
    """(tasks/s before, tasks/s from a second after the death on, seconds until the level was reached again)."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=2) for _ in range(3)]
        weft.init(address=cluster.address, log_to_driver=False)
        running = [work.remote() for _ in range(AHEAD)]
        ends: list[float] = []
        began = time.monotonic()
        died = 0.0
        while (now := time.monotonic()) < began + 2 * seconds:
            if not died and now > began + seconds:
                nodes[0].kill(allow_graceful=False)
                died = time.monotonic()
            done, running = weft.wait(running, num_returns=1)
            weft.get(done)
            ends += [time.monotonic()] * len(done)
            running += [work.remote() for _ in done]
    finally:
        weft.shutdown()
        cluster.shutdown()
    before = sum(began + 1 < end < died for end in ends) / (died - began - 1)
    after = sum(end > died + 1 for end in ends) / (ends[-1] - died - 1)
    windows = [died + index * WINDOW_S for index in range(int(seconds / WINDOW_S) - 1)]
    level = LEFT * before * WINDOW_S * 0.9
    reached = (at + WINDOW_S - died for at in windows if sum(at <= end < at + WINDOW_S for end in ends) >= level)
    return before, after, next(reached, float("inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="before the death, and after it")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("| round | before, tasks/s | a second after on | of two thirds | back at 90% of two thirds after |")
    print("|---|---|---|---|---|")
    times = []
    for number in range(given.rounds):
        before, after, reached_s = measure(given.seconds)
        times.append(reached_s)
        print(
            f"| {number + 1} | {before:,.0f} | {after:,.0f} | {after / before / LEFT:.0%} | {reached_s:.1f} s |",
            flush=True,
        )
    print(f"\nmedian {statistics.median(times):.1f} s, slowest {max(times):.1f} s")


if __name__ == "__main__":
    main()
