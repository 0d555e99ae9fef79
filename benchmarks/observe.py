"""What recording costs: the same calls with events on and off, in turns of a tenth of a second.

    python benchmarks/observe.py                        on beside off (WEFT_EVENTS=0)
    python benchmarks/observe.py --before OLD_PYTHON    also beside another build of Weft
    python benchmarks/observe.py --million              memory and dropped events of 1,000,000 tasks
    python benchmarks/observe.py --day                  memory of the dashboard's process after a simulated day

Each side is a process of its own with a session of its own, and one runs at a time. The best of all turns counts: on a
machine with other work it is the turn that was disturbed least. `submit_cpu` is the rate at which the driver's thread
submits, by the CPU time that it took: the figure that other work disturbs least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from typing import Any

CASES = ("submit_cpu", "tasks_async", "tasks_sync", "actor_async", "actor_sync")
TURN_S = 0.1


def serve_turns() -> None:
    """One side: a case by name on each line of standard input, its rate on standard output."""
    import weft

    weft.init(num_cpus=1)

    @weft.remote
    def nothing() -> bytes:
        return b"ok"

    @weft.remote(num_cpus=0)
    class Listener:
        def nothing(self) -> bytes:
            return b"ok"

    actor = Listener.remote()
    actions: dict[str, tuple[Any, int]] = {
        "tasks_async": (lambda: weft.get([nothing.remote() for _ in range(1000)]), 1000),
        "tasks_sync": (lambda: weft.get(nothing.remote()), 1),
        "actor_async": (lambda: weft.get([actor.nothing.remote() for _ in range(1000)]), 1000),
        "actor_sync": (lambda: weft.get(actor.nothing.remote()), 1),
    }
    for action, _ in actions.values():
        action()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "submit_cpu":
            print(1e9 / least_submit_ns(weft, nothing), flush=True)
            continue
        action, amount = actions[line.strip()]
        action()
        calls, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < TURN_S:
            action()
            calls += 1
        print(calls * amount / spent, flush=True)
    weft.shutdown()


def least_submit_ns(weft: Any, nothing: Any) -> float:
    """CPU time of the submitting thread for one task, the least of twenty times a thousand."""
    found = []
    for _ in range(20):
        began_ns = time.thread_time_ns()
        refs = [nothing.remote() for _ in range(1000)]
        found.append((time.thread_time_ns() - began_ns) / 1000)
        weft.get(refs)
    return min(found)


class Side:
    def __init__(self, python: str, **variables: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--serve"],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        assert self._out.readline().strip() == "ready"

    def turn(self, case: str) -> float:
        self._in.write(case + "\n")
        self._in.flush()
        return float(self._out.readline())

    def close(self) -> None:
        self._in.close()
        self._process.wait()
        self._out.close()


def compare(sides: dict[str, Side], cases: list[str], turns: int) -> None:
    for case in cases:
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(turns):
            for name, side in sides.items():
                rates[name].append(side.turn(case))
        base = next(iter(rates))
        for name, found in rates.items():
            ratio = max(found) / max(rates[base])
            pairs = statistics.median(one / two for one, two in zip(found, rates[base], strict=True))
            print(f"{case:12} {name:8} best {max(found):10,.0f}/s  of {base}: best {ratio:.3f}, pairs {pairs:.3f}")


def million() -> None:
    import psutil

    import weft
    from weft.inspection.timeline import record

    weft.init(num_cpus=1)

    @weft.remote
    def nothing() -> None:
        return None

    weft.get([nothing.remote() for _ in range(10_000)])
    for total in (10_000, 500_000, 1_000_000):
        began = time.perf_counter()
        done = 0
        while done < total:
            weft.get([nothing.remote() for _ in range(10_000)])
            done += 10_000
        spent = time.perf_counter() - began
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        memory = sum(process.memory_full_info().pss for process in processes) >> 20
        known = record()["otherData"]
        print(f"{total:9,} more tasks, {total / spent:9,.0f}/s: {memory} MiB in {len(processes)} processes, "
              f"{known['events']:,} events kept, {known['dropped']:,} dropped")  # fmt: skip
    weft.shutdown()


class BusyCluster:
    """A cluster as the dashboard asks it: each second 20 more events in each of two nodes, and now and then a node that
    goes and another that comes, with tasks of ever new names."""

    def __init__(self) -> None:
        self.second = 0

    def ask(self, method: str, timeout_s: float | None = None, **params: Any) -> Any:
        if method == "events":
            return [self._events(number) for number in (0, 1)]
        if method == "errors":
            row = {
                "task_id": "00" * 12,
                "traceback": "x" * 10_000,
                "name": "f",
                "time_s": 0.0,
                "error_type": "ValueError",
            }
            return [{"node_id": "n", "errors": [row] * 200, "left_out": 0, "failures": []}]
        return []

    def _events(self, number: int) -> dict[str, Any]:
        node = f"{number}{self.second // 600:031}"  # another one every ten minutes
        first = 20 * (self.second % 600)
        name = f"task_{self.second}".ljust(56, "x").encode()
        rows = [
            struct.pack("<qq16s16sQIBBHII56s", self.second * 10**9 + at, 10**6,
                        struct.pack("<QQ", 20 * self.second + at, number), bytes(16), 100, self.second % 5000,
                        3 if at % 2 else 1, 0, 0, 1, len(name), name)
            for at in range(20)
        ]  # fmt: skip
        slots = [(self.second % 250, 0, first, first + 20, b"".join(rows))]
        return {
            "node_id": node,
            "time_ns": 0,
            "clock_ns": 0,
            "slots": slots,
            "titles": {str(self.second % 5000): "worker"},
        }


def day(seconds: int) -> None:
    """The dashboard's own collector and pages, looked at each second, without the wait between two looks."""
    import psutil

    from weft.dashboard.collector import Collector
    from weft.dashboard.pages import Pages
    from weft.dashboard.past import Past

    cluster = BusyCluster()
    collector = Collector(cluster)
    pages = Pages(cluster, collector, Past(cluster))
    asked = ("stream", "graph", "graph?by=task", "ended", "errors")
    for cluster.second in range(seconds):
        collector._read_s = 0.0
        collector.look()
        if cluster.second % 600 == 0:
            for path in asked:
                name, _, query = path.partition("?")
                json.dumps(pages.answer(name, dict([query.split("=")]) if query else {}))
        if cluster.second % (seconds // 4) == 0 or cluster.second == seconds - 1:
            memory = psutil.Process().memory_info().rss >> 20
            print(f"{cluster.second / 3600:5.1f} h: {collector.recorded:9,} events read, {memory} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--before", metavar="PYTHON", help="a Python that has another build of Weft")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--day", action="store_true")
    parser.add_argument("--seconds", type=int, default=86_400, help="of the simulated day")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--turns", type=int, default=60)
    given = parser.parse_args()
    if given.serve:
        serve_turns()
    elif given.million:
        million()
    elif given.day:
        day(given.seconds)
    else:
        sides = {"before": Side(given.before)} if given.before else {}
        sides.update(off=Side(sys.executable, WEFT_EVENTS="0"), on=Side(sys.executable))
        try:
            compare(sides, given.cases.split(","), given.turns)
        finally:
            for side in sides.values():
                side.close()


if __name__ == "__main__":
    main()
