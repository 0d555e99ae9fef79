"""Figure 11a: chains of tasks while nodes are taken away and given back.

Each task takes 100 ms and what the task before it in its chain made; each writes a line when it has run, so that a
second run of the same task shows. The driver is on a node without CPUs.
"""

from __future__ import annotations

import collections
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from reproduction import Outcome, Row, run

TASK_S = 0.1
NODES, CHAINS_A_NODE = 3, 2


def chains(weft: Any, log: str, seconds: float) -> None:
    """Submit all chains and wait for them; their length fills the time if no node is lost."""
    import numpy

    @weft.remote(max_retries=100)
    def start() -> Any:
        return numpy.zeros(20_000)  # large enough to lie in the store of the node that made it

    @weft.remote(max_retries=100)
    def step(before: Any, chain: int, index: int) -> Any:
        time.sleep(TASK_S)
        with open(log, "a") as file:
            file.write(f"{time.time()} {chain} {index}\n")
        return before + 1

    count = NODES * CHAINS_A_NODE
    links = [start.remote() for _ in range(count)]
    for index in range(int(seconds / TASK_S / CHAINS_A_NODE)):
        links = [step.remote(link, chain, index) for chain, link in enumerate(links)]
    for link in links:
        assert weft.get(link)[0] == int(seconds / TASK_S / CHAINS_A_NODE)


def measure(short: bool) -> Outcome:
    import weft
    from weft.cluster_utils import Cluster
    from weft.demos import chart

    seconds = 8.0 if short else 60.0
    times = {
        name: seconds * share for name, share in (("a node dies", 0.25), ("another", 0.5), ("both are back", 0.75))
    }
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=CHAINS_A_NODE) for _ in range(NODES)]
    cluster.wait_for_nodes()
    plan = [
        threading.Timer(times["a node dies"], nodes[0].kill),
        threading.Timer(times["another"], nodes[1].kill),
        threading.Timer(times["both are back"], lambda: [cluster.add_node(num_cpus=CHAINS_A_NODE) for _ in "ab"]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        weft.init(address=cluster.address)
        try:
            began = time.time()
            for timer in plan:
                timer.start()
            chains(weft, str(log), seconds)
            took = time.time() - began
        finally:
            for timer in plan:
                timer.join()
            weft.shutdown()
            cluster.shutdown()
        lines = [line.split() for line in log.read_text().splitlines()]
    first: set[tuple[str, str]] = set()
    originals: collections.Counter[int] = collections.Counter()
    again: collections.Counter[int] = collections.Counter()
    for at, chain, index in sorted(lines, key=lambda line: float(line[0])):
        into = again if (chain, index) in first else originals
        into[int(float(at) - began)] += 1
        first.add((chain, index))
    ends = range(int(took) + 1)
    return Outcome(
        "Figure 11a",
        "Tasks survive the loss of nodes",
        [
            Row(
                "the run",
                "ends, after lost results are made again",
                f"ended after {took:.0f} s; without a loss {seconds:.0f} s at least",
            ),
            Row("tasks that ran again", "curve only", f"{sum(again.values())} of {len(first)}"),
        ],
        f"the paper: up to 60 m4.xlarge machines; here: {NODES} node daemons of one machine with "
        f"{CHAINS_A_NODE} CPUs each, "
        "killed with SIGKILL. Tasks sleep, so that nodes do not compete for cores.",
        chart.lines(
            {"tasks": [(at, originals[at]) for at in ends], "run again": [(at, again[at]) for at in ends]},
            "Tasks that ended in each second",
            "seconds",
            "tasks",
            marks=times,
        ),
    )


if __name__ == "__main__":
    run("fault_tasks", measure)
