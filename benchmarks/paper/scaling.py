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
SIMULATED = (1, 10, 100, 1000, 10_000)


def real(side: Any, nodes: int, batches: int) -> float:
    weft = side.rt

    @weft.remote
    def nothing() -> bytes:
        return b"ok"

    @weft.remote(num_cpus=0)
    def submit(node: int, batches: int) -> int:
        """A driver of its own on its node, as in the paper."""
        local = nothing.options(**side_on(node))
        for _ in range(batches):
            weft.get([local.remote() for _ in range(1000)])
        return batches * 1000

    def side_on(node: int) -> dict[str, Any]:
        return {"num_cpus": 1, "resources": {f"n{node}": 0.01}}

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
    measured = [(nodes, real(side, nodes, 20 if short else 500)) for nodes in REAL]
    sizes = SIMULATED[:2] if short else SIMULATED
    virtual = [(nodes, float(simulate.simulate(nodes)["tasks_per_s"])) for nodes in sizes]
    rows = [
        Row(f"{nodes} real node{'s' * (nodes > 1)}", "curve only", f"{rate:,.0f} tasks/s") for nodes, rate in measured
    ]
    paper = {100: "1.8 million tasks/s", 10: "curve only"}
    rows.append(Row("60 nodes", "1 million tasks/s", "not simulated"))
    rows += [Row(f"{nodes:,} simulated", paper.get(nodes, "–"), f"{rate:,.0f} tasks/s") for nodes, rate in virtual]
    return Outcome(
        "Figure 8b",
        "Throughput against nodes",
        rows,
        f"the paper: up to 100 machines; here: up to four node daemons that share {os.cpu_count()} cores, so that more "
        "of them add nothing but contention; the simulator runs the real decisions in virtual time "
        "([how](design/0008-simulator.md)), with nodes of 2 CPUs.",
        chart.lines(
            {"real, sharing this machine": measured, "simulated": virtual},
            "Empty tasks a second",
            "nodes",
            "tasks/s",
            log_x=True,
            log_y=True,
        ),
        "Sixty nodes of the paper did a million tasks a second; the simulated lines say what the scheduler allows, not "
        "what a cluster did.",
    )


if __name__ == "__main__":
    run("scaling", measure)
