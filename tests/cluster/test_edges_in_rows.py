"""What the control store tells of tasks: who submitted each, and which call of the same actor came before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
from clusters import SIZE, THERE, TwoNodes, double, make

import weft
from waiting import wait_until
from weft.dashboard import graph
from weft.engine.cluster.client import Client


@weft.remote(num_cpus=0, max_task_retries=-1, max_restarts=-1)
class Source:
    def array(self, value: int) -> Any:
        return np.full(SIZE, value)


@weft.remote(num_cpus=0)
class Owner:
    """A process of its own, which owns what its calls have made."""

    def make(self, source: Any) -> list[Any]:
        self.made = [source.array.remote(value) for value in range(3)]
        self.made.append(double.remote(make.remote(4)))
        weft.wait(self.made, num_returns=4, fetch_local=False)
        return self.made

    def keep(self, refs: list[Any]) -> None:
        self.made = refs

    def pid(self) -> int:
        return os.getpid()


def rows_of(nodes: TwoNodes, refs: list[Any]) -> dict[str, dict[str, Any]]:
    """Tasks in the control store, by the object that they made, once those of these objects are there."""
    client = Client(nodes.cluster.address)
    found: list[dict[str, Any]] = []

    def has_all() -> bool:
        found[:] = client.ask("stored_rows", what="tasks", limit=100)
        return {ref.hex() for ref in refs} <= {result for row in found for result in row["results"]}

    wait_until(has_all)
    return {result: row for row in found for result in row["results"]}


def assert_edges(rows: dict[str, dict[str, Any]], calls: list[Any], doubled: Any) -> None:
    first, second, third = (rows[call.hex()] for call in calls)
    assert first["previous_call_id"] is None
    assert second["previous_call_id"] == first["task_id"] and third["previous_call_id"] == second["task_id"]
    parents = {row["parent_task_id"] for row in rows.values()}
    assert len(parents) == 1, "one call of the owner has submitted them all"
    last = rows[doubled.hex()]
    (source,) = last["needs"]
    assert last["previous_call_id"] is None and rows[source]["name"] == "make"
    edges = graph.edges([graph.from_store(row) for row in rows.values()])
    assert sorted(edges) == sorted(
        [
            (first["task_id"], second["task_id"], "state"),
            (second["task_id"], third["task_id"], "state"),
            (rows[source]["task_id"], last["task_id"], "data"),
        ]
    )


def explained(nodes: TwoNodes, task: str) -> str:
    command = [sys.executable, "-m", "weft.cli", "explain", task, "--address", nodes.cluster.address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_rows_have_the_edges_of_their_tasks_before_and_after_they_are_inherited(two_nodes: TwoNodes) -> None:
    source, owner, keeper = Source.remote(), Owner.options(**THERE).remote(), Owner.options(**THERE).remote()
    refs = weft.get(owner.make.remote(source))
    weft.get(keeper.keep.remote(refs))  # the heir has a borrower on the other node, so its objects have rows, too
    *calls, doubled = refs
    before = rows_of(two_nodes, refs)
    assert_edges(before, calls, doubled)
    assert all(row["former_owners"] == [] for row in before.values())
    process = weft.get(owner.pid.remote())
    os.kill(process, signal.SIGKILL)

    def is_inherited() -> bool:
        rows = rows_of(two_nodes, refs)
        return all(rows[ref.hex()]["former_owners"] for ref in refs)

    wait_until(is_inherited)
    after = rows_of(two_nodes, refs)
    assert_edges(after, calls, doubled)
    assert {row["owner_state"] for row in after.values()} == {"ALIVE"}
    told = explained(two_nodes, after[calls[1].hex()]["task_id"])
    assert f"call {before[calls[0].hex()]['task_id']} on the same actor" in told
    assert "(dead), and passed on when that one had died" in told
    assert [int(weft.get(ref)[0]) for ref in refs] == [0, 1, 2, 8]
