"""Figure 10b: memory of daemons and of the control store while tasks come and go, of which one in a hundred escapes.

A ref that escapes is held by a process of another node for some seconds, so that its row, with its lineage, reaches the
control store; then it is dropped, and the row goes. Memory is what each process has for itself (USS). The run ends
after 50 million tasks, or after `MOST_S`.
"""

from __future__ import annotations

import collections
import time
from typing import Any

import psutil
from reproduction import Outcome, Row, run

BATCH = 50_000
ESCAPES = 100
"""One in so many."""
HELD_S = 2.5
EVERY_S = 2.0
"""Between two looks at the memory."""
MOST_S = 560.0


def measure(short: bool) -> Outcome:
    import weft
    from weft.demos import chart
    from weft.testing import Cluster

    @weft.remote
    def nothing() -> None:
        return None

    @weft.remote(num_cpus=0, resources={"there": 1})
    class Holder:
        """Holds refs for `HELD_S`."""

        def __init__(self) -> None:
            self.held: collections.deque[tuple[float, list[Any]]] = collections.deque()

        def hold(self, refs: list[Any]) -> int:
            now = time.monotonic()
            self.held.append((now, refs))
            while self.held and self.held[0][0] < now - HELD_S:
                self.held.popleft()
            return sum(len(refs) for _, refs in self.held)

        def drop(self) -> None:
            self.held.clear()

    wanted = 1_000_000 if short else 50_000_000
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    cluster.add_node(num_cpus=1, resources={"there": 1})
    cluster.add_node(num_cpus=1)
    weft.init(address=cluster.address)
    holder = Holder.remote()
    points: dict[str, list[tuple[float, float]]] = {}
    most_held, began, looked, tasks = 0, time.perf_counter(), 0.0, 0
    while tasks < wanted and time.perf_counter() - began < MOST_S:
        refs = [nothing.remote() for _ in range(BATCH)]
        held = holder.hold.remote(refs[::ESCAPES])
        weft.get(refs)
        most_held = max(most_held, weft.get(held))
        tasks += BATCH
        if time.perf_counter() - looked > EVERY_S or tasks == wanted:
            looked = time.perf_counter()
            for name, mib in memory_mib(cluster).items():
                points.setdefault(name, []).append((tasks / 1e6, mib))
    elapsed = time.perf_counter() - began
    rows = stored(cluster)
    del refs
    weft.get(holder.drop.remote())
    left = wait_until_gone(cluster)
    weft.shutdown()
    cluster.shutdown()
    return Outcome(
        "Figure 10b",
        "Memory over 50 million tasks",
        [Row(name, "stays below a limit that is set", told(found)) for name, found in points.items()]
        + [
            Row(
                "rows of objects in the store",
                "curve only",
                f"{rows:,} at the end; {left:,} when nobody refers to the objects any more",
            )
        ],
        f"the paper: 50 million empty tasks; here: {tasks:,}, {tasks / elapsed:,.0f} a second, and three node daemons "
        f"on one machine. A ref that does not leave its node has no row. One in {ESCAPES} does, {tasks // ESCAPES:,} "
        f"in all, and is held by a process of another node for {HELD_S} s, at most {most_held:,} at once. A row is "
        "written a second after its ref has left, and goes with its object.",
        [chart.lines(points, "Memory of each process (USS)", "million tasks", "MiB")],
    )


def memory_mib(cluster: Any) -> dict[str, float]:
    """Of this process, the daemons and the servers of the control store."""
    daemons = [psutil.Process(node.pid) for node in cluster.list_all_nodes()]
    found = {"driver": own_mib(psutil.Process())}
    for number, daemon in enumerate(daemons):
        found["daemon of the driver's node" if number == 0 else f"daemon {number + 1}"] = own_mib(daemon)
    servers = [one for daemon in daemons for one in daemon.children() if "weft.store" in " ".join(one.cmdline())]
    for number, server in enumerate(servers):
        found[f"server {number + 1} of the store"] = own_mib(server)
    return found


def own_mib(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss) / 2**20


def stored(cluster: Any) -> int:
    """How many objects the control store knows of."""
    from weft.engine.cluster.client import Client

    client = Client(cluster.list_all_nodes()[0].local_address)
    return len(client.ask("stored_rows", what="objects", limit=10_000_000))


def wait_until_gone(cluster: Any) -> int:
    """Rows that are left in the store, once their number does not fall any more."""
    rows, since = stored(cluster), time.monotonic()
    while rows and time.monotonic() - since < 15:
        time.sleep(0.5)
        now = stored(cluster)
        if now < rows:
            rows, since = now, time.monotonic()
    return rows


def told(found: list[tuple[float, float]]) -> str:
    tenth, last = found[len(found) // 10], found[-1]
    most = max(mib for _, mib in found)
    return (
        f"{tenth[1]:.1f} MiB after {tenth[0]:.1f} million tasks, {last[1]:.1f} after {last[0]:.1f}; {most:.1f} at most"
    )


if __name__ == "__main__":
    run("flushing", measure)
