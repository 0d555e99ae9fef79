"""Figure 11b: actors whose node dies, with checkpoints and without: how many calls have to run again.

Each actor counts its calls and writes a line for each that it runs. The state after the death must be exact.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from reproduction import Outcome, Row, run

NODES = 3


def lose_nodes(actors: int, calls: int, every: int) -> tuple[int, float]:
    """(calls that ran again, seconds from the kill to the last answer)."""
    import weft
    from weft.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=actors) for _ in range(NODES)]
    cluster.wait_for_nodes()
    weft.init(address=cluster.address)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"

        @weft.remote(num_cpus=1, checkpoint=every, scheduling_strategy="SPREAD")
        class Counter:
            def __init__(self, log: str) -> None:
                self.total, self.log = 0, log

            def add(self) -> int:
                with open(self.log, "a") as file:
                    file.write("x")
                self.total += 1
                return self.total

        try:
            counters: list[Any] = [Counter.remote(str(log)) for _ in range(actors)]
            for _ in range(calls):
                weft.get([counter.add.remote() for counter in counters])
            nodes[0].kill()
            began = time.perf_counter()
            totals = weft.get([counter.add.remote() for counter in counters])
            took = time.perf_counter() - began
            assert totals == [calls + 1] * actors, totals
            return log.stat().st_size - actors * (calls + 1), took
        finally:
            weft.shutdown()
            cluster.shutdown()


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    actors, calls, every = (6, 25, 10) if short else (60, 190, 20)
    with_some, some_s = lose_nodes(actors, calls, every)
    with_none, none_s = lose_nodes(actors, calls, 1_000_000)
    return Outcome(
        "Figure 11b",
        "Actors survive the loss of a node",
        [
            Row(f"calls run again, a checkpoint every {every}", "500", f"{with_some}; all back after {some_s:.1f} s"),
            Row(
                "calls run again, no checkpoint but the first", "10,000", f"{with_none}; all back after {none_s:.1f} s"
            ),
        ],
        f"the paper: 2,000 actors on 10 machines, of which 2 die, so 400 actors come back; here: {actors} actors on "
        f"{NODES} node daemons of one machine, of which one is killed, after {calls} calls of each. Every actor's "
        "state was exact.",
        [chart.bars({"Weft, with checkpoints": with_some, "Weft, without": with_none}, "Calls run again", "calls")],
    )


if __name__ == "__main__":
    run("fault_actors", measure)
