"""How busy each node was, so that a page that is opened shows more than the present.

What was before this process began the nodes have kept (`observe/node_past.py`). A thread asks them: each second while
somebody looks, each ten seconds otherwise. A bounded number of points is kept per chart and node. Used by many threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Any, TypeAlias

from weft.observe.collect import Asks

WATCHED_S = 1.0
UNWATCHED_S = 10.0
LOOKED_S = 60.0
"""So long after an answer somebody still looks."""
MOST_POINTS = 600
"""Of a line: ten minutes that were watched, or 100 that were not, beside what the nodes have kept."""
MOST_KEPT = 300
"""Points of a line of what a node has kept; of more, each so-manyth is shown."""
MOST_LINES = 50
"""Of a chart, in what a page is told of the past; of the present it hears all."""
GONE_MS = 600_000.0
Machine: TypeAlias = dict[str, Any]
Point: TypeAlias = tuple[float, float]
"""The time in milliseconds, and the value."""


class Past:
    def __init__(self, client: Asks) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._machines: list[Machine] = []
        self._before: dict[str, Machine] = {}
        self._lines: dict[str, dict[str, deque[Point]]] = {}
        self._kept: dict[str, dict[str, list[Point]]] = {}
        """What the nodes knew when they were first seen: points of each line that are older than all of `_lines`."""
        self._read_s = 0.0
        self._asked_s = 0.0

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="weft-past").start()

    def _run(self) -> None:
        while True:
            is_watched = time.monotonic() - self._asked_s < LOOKED_S
            time.sleep(WATCHED_S if is_watched else UNWATCHED_S)
            with contextlib.suppress(OSError):  # it is busy, or ending: then this process ends, too
                self._look()

    def since(self, time_ms: float) -> tuple[list[Machine], dict[str, dict[str, list[Point]]]]:
        """The machines as they are now, and what is newer than that of each line, by chart and node."""
        self._asked_s = time.monotonic()
        self._look()
        with self._lock:
            charts = {
                chart: {
                    node: newer
                    for node, line in list(lines.items())[: None if time_ms else MOST_LINES]
                    if (newer := [point for point in self._whole(chart, node, line) if point[0] > time_ms])
                }
                for chart, lines in self._lines.items()
            }
            return self._machines, charts

    def _whole(self, chart: str, node: str, line: Iterable[Point]) -> Iterator[Point]:
        return chain(self._kept.get(chart, {}).get(node, ()), line)

    def _look(self) -> None:
        """Ask the nodes, unless that was done a moment ago."""
        if time.monotonic() - self._read_s < WATCHED_S / 2:
            return
        machines = self._client.ask("machines")
        is_new = any(machine["node_id"] not in self._before for machine in machines)
        kept = self._client.ask("past") if is_new else []
        with self._lock:
            self._read_s = time.monotonic()
            self._machines = machines
            for one in kept:
                if one["node_id"] not in self._before:
                    self._keep(one["node_id"], [stretch["machine"] for stretch in one["stretches"]])
            for machine in machines:
                self._add(machine)
            self._forget({machine["node_id"] for machine in machines})

    def _keep(self, node: str, machines: list[Machine]) -> None:
        """Of a node that was not known: its past, each so-manyth point of it."""
        chosen = machines[:: -(-len(machines) // MOST_KEPT) or 1]
        for old, now in pairwise(chosen):
            for chart, value in {**_levels(now), **_rates(old, now)}.items():
                self._kept.setdefault(chart, {}).setdefault(node, []).append((1000 * now["time_s"], value))
        if chosen:
            self._before[node] = chosen[-1]

    def _forget(self, there: set[str]) -> None:
        """Nodes that have gone, once nothing of them is recent."""
        self._before = {node: machine for node, machine in self._before.items() if node in there}
        for lines in self._lines.values():
            newest = max(line[-1][0] for line in lines.values())
            for node in [one for one, line in lines.items() if one not in there and line[-1][0] < newest - GONE_MS]:
                del lines[node]
                for kept in self._kept.values():
                    kept.pop(node, None)

    def _add(self, now: Machine) -> None:
        node = now["node_id"]
        old = self._before.get(node)
        if old is not None and now["time_s"] <= old["time_s"]:
            return
        self._before[node] = now
        for chart, value in {**_levels(now), **({} if old is None else _rates(old, now))}.items():
            line = self._lines.setdefault(chart, {}).setdefault(node, deque(maxlen=MOST_POINTS))
            line.append((1000 * now["time_s"], value))


def _levels(now: Mapping[str, Any]) -> dict[str, float]:
    found = {"memory": 100 * now["memory_used_bytes"] / now["memory_total_bytes"], "arena": now["arena_used_bytes"]}
    busy = [gpu["utilisation_percent"] for gpu in now.get("gpus") or [] if gpu["utilisation_percent"] is not None]
    if busy:
        found["gpu"] = sum(busy) / len(busy)
    return found


def _rates(old: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, float]:
    spent_s = now["time_s"] - old["time_s"]
    run = sum(now["tallies"][name] - old["tallies"][name] for name in ("finished", "failed"))
    moved = sum(now[name] - old[name] for name in ("network_received_bytes", "network_sent_bytes"))
    found = {"tasks": run / spent_s, "network": moved / spent_s}
    total_s = now["cpu_total_s"] - old["cpu_total_s"]
    if total_s > 0:
        found["cpu"] = 100 * (now["cpu_busy_s"] - old["cpu_busy_s"]) / total_s
    return found
