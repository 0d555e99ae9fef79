"""Figure 8b: empty tasks a second against nodes, submitted on every node at once.

Real node daemons on this machine up to four, which share its cores; beyond, the simulator runs the same scheduler in
virtual time with the cost of a task as measured on one node.
"""

from __future__ import annotations

import os
import time
from typing import Any

from reproduction import Outcome, Row, run

REAL = (1, 2, 3, 4)
SIMULATED = {1: 200_000, 10: 100_000, 60: 20_000, 100: 20_000, 1_000: 4_000}
"""Tasks on each of so many nodes."""
PAPER = {1: "curve only", 10: "curve only", 60: "1 million tasks/s", 100: "1.8 million tasks/s"}


def real(side: Any, nodes: int, batches: int) -> float:
    weft = side.rt

    @weft.remote
    def nothing() -> bytes:
        return b"ok"

    @weft.remote(num_cpus=0)
    def submit(node: int, batches: int) -> int:
        """A driver of its own on its node, as in the paper."""
        local = nothing.options(num_cpus=1, resources={f"n{node}": 0.01})
        for _ in range(batches):
            weft.get([local.remote() for _ in range(1000)])
        return batches * 1000

    with side.cluster(nodes):
        there = [submit.options(resources={f"n{node}": 0.01}) for node in range(nodes)]
        weft.get([one.remote(node, 2) for node, one in enumerate(there)])
        began = time.perf_counter()
        done = sum(weft.get([one.remote(node, batches) for node, one in enumerate(there)]))
        return done / (time.perf_counter() - began)


def measure(short: bool) -> Outcome:
    import simulate

    from cluster import Side
    from weft.demos import chart

    side = Side("weft")
    measured = [(nodes, real(side, nodes, 20 if short else 300)) for nodes in REAL]
    sizes = list(SIMULATED)[:2] if short else SIMULATED
    virtual = [(nodes, float(simulate.simulate(nodes, SIMULATED[nodes])["tasks_per_s"])) for nodes in sizes]
    rows = [
        Row(f"{nodes} real node{'s' * (nodes > 1)}", "curve only", f"{rate:,.0f} tasks/s") for nodes, rate in measured
    ]
    rows += [Row(f"{nodes:,} simulated", PAPER.get(nodes, "–"), f"{rate:,.0f} tasks/s") for nodes, rate in virtual]
    return Outcome(
        "Figure 8b",
        "Throughput against nodes",
        rows,
        f"the paper: up to 100 machines; here: up to four node daemons that share {os.cpu_count()} cores, so that more "
        "of them add nothing but contention; the simulator runs the real decisions in virtual time "
        "([how](design/0008-simulator.md)), with nodes of 2 CPUs: it says what the scheduler allows, not what a "
        "cluster did. Ten thousand simulated nodes are in `benchmarks/simulate.py`.",
        [
            chart.lines(
                {"real, sharing this machine": measured, "simulated": virtual},
                "Empty tasks a second",
                "nodes",
                "tasks/s",
                log_x=True,
                log_y=True,
            )
        ],
    )


if __name__ == "__main__":
    run("scaling", measure)
