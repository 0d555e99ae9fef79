"""Figure 11a: chains of tasks while nodes are taken away and given back.

Each task takes 100 ms and what the task before it in its chain made; each writes a line when it has run, so that a
second run of the same task shows. The driver is on a node without CPUs.
"""

from __future__ import annotations

import collections
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reproduction import Outcome, Row, run

TASK_S = 0.1
NODES, CHAINS_A_NODE = 3, 2
EVENTS = {"a node dies": 0.2, "another": 0.4, "both are back": 0.6}
"""When, as a share of the time that the chains take without a loss."""
Counts = collections.Counter[int]


@contextlib.contextmanager
def failing_cluster(seconds: float) -> Iterator[None]:
    """A session on a cluster whose nodes come and go by `EVENTS`."""
    import weft
    from weft.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=CHAINS_A_NODE) for _ in range(NODES)]
    cluster.wait_for_nodes()

    def add_two() -> None:
        for _ in range(2):
            cluster.add_node(num_cpus=CHAINS_A_NODE)

    actions = (nodes[0].kill, nodes[1].kill, add_two)
    plan = [threading.Timer(share * seconds, act) for share, act in zip(EVENTS.values(), actions, strict=True)]
    weft.init(address=cluster.address)
    try:
        for timer in plan:
            timer.start()
        yield
    finally:
        for timer in plan:
            timer.join()
        weft.shutdown()
        cluster.shutdown()


def run_chains(log: Path, seconds: float) -> None:
    """Submit all chains and wait for them; their length fills the time if no node is lost."""
    import numpy

    import weft

    @weft.remote(max_retries=100)
    def start() -> Any:
        return numpy.zeros(20_000)  # large enough to lie in the store of the node that made it

    @weft.remote(max_retries=100)
    def step(before: Any, chain: int, index: int) -> Any:
        time.sleep(TASK_S)
        with open(log, "a") as file:
            file.write(f"{time.time()} {chain} {index}\n")
        return before + 1

    length = int(seconds / TASK_S)
    links = [start.remote() for _ in range(NODES * CHAINS_A_NODE)]
    for index in range(length):
        links = [step.remote(link, chain, index) for chain, link in enumerate(links)]
    for link in links:
        assert weft.get(link)[0] == length


def by_second(log: Path, began: float) -> tuple[Counts, Counts]:
    """(tasks that ended in each second, those among them that had run before)"""
    all_runs, again = Counts(), Counts()
    seen: set[tuple[str, str]] = set()
    lines = [line.split() for line in log.read_text().splitlines()]
    for at, chain, index in sorted(lines, key=lambda line: float(line[0])):
        second = int(float(at) - began)
        all_runs[second] += 1
        again[second] += (chain, index) in seen
        seen.add((chain, index))
    return all_runs, again


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    seconds = 8.0 if short else 30.0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with failing_cluster(seconds):
            began = time.time()
            run_chains(log, seconds)
            took = time.time() - began
        all_runs, again = by_second(log, began)
    whole_seconds = range(int(took))
    before = max(all_runs[second] for second in range(int(EVENTS["a node dies"] * seconds)))
    after = max(all_runs[second] for second in whole_seconds if second > EVENTS["both are back"] * seconds)
    return Outcome(
        "Figure 11a",
        "Tasks survive the loss of nodes",
        [
            Row(
                "the run",
                "ends, after lost results are made again",
                f"ended after {took:.0f} s; without a loss {seconds:.0f} s at least",
            ),
            Row(
                "tasks a second, when the nodes are back",
                "as many as before",
                f"{after} in the best second; before {before}",
            ),
            Row("tasks that ran again", "curve only", f"{again.total()} of {all_runs.total() - again.total()}"),
        ],
        f"the paper: up to 60 m4.xlarge machines; here: {NODES} node daemons of one machine with {CHAINS_A_NODE} CPUs "
        "each, killed with SIGKILL. Tasks sleep, so that nodes do not compete for cores.",
        [
            chart.lines(
                {
                    "all": [(second, all_runs[second]) for second in whole_seconds],
                    "run again": [(second, again[second]) for second in whole_seconds],
                },
                "Tasks that ended in each second",
                "seconds",
                "tasks",
                marks={name: share * seconds for name, share in EVENTS.items()},
            )
        ],
    )


if __name__ == "__main__":
    run("fault_tasks", measure)
