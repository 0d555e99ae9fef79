"""What a cluster says of itself: `weft status` and `weft demand`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from clusters import THERE, TwoNodes

import weft
from waiting import comes_true, wait_until
from weft.engine.cluster.client import Client


def ask(nodes: TwoNodes, what: str = "status") -> dict[str, Any]:
    found: dict[str, Any] = Client(nodes.cluster.address).ask(what)
    return found


def run(nodes: TwoNodes, *arguments: str) -> str:
    command = [sys.executable, "-m", "weft.cli", *arguments, "--address", nodes.cluster.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def test_the_nodes_and_their_resources_are_listed(shared_two_nodes: TwoNodes) -> None:
    found = ask(shared_two_nodes)
    head, other = found["nodes"]
    assert (head["is_head"], other["is_head"]) == (True, False)
    assert other["node_id"] == shared_two_nodes.other.node_id
    assert (other["state"], other["total"]["there"], other["available"]["there"]) == ("alive", 10.0, 10.0)
    assert not any(name.startswith("node:") for name in head["total"])
    assert [(job["pid"], job["node_id"]) for job in found["jobs"]] == [(os.getpid(), head["node_id"])]
    assert found["demands"] == []


def test_what_waits_is_told_with_what_is_missing_where(shared_two_nodes: TwoNodes) -> None:
    @weft.remote(resources={"there": 6})
    class Holder:
        def ready(self) -> bool:
            return True

    @weft.remote
    def work() -> None: ...

    holder = Holder.remote()
    weft.get(holder.ready.remote())
    waiting = [
        work.options(resources={"there": 6}).remote(),
        work.options(resources={"nowhere": 1}).remote(),
        Holder.options(resources={"there": 7}).remote(),
    ]
    other = shared_two_nodes.other.node_id

    def demands() -> tuple[list[Any], Any, Any]:
        rows = ask(shared_two_nodes, "demand")["demands"]
        row = next((row for row in rows if "there" in row["resources"] and row["kind"] == "task"), {"nodes": []})
        return rows, row, next((node for node in row["nodes"] if node["node_id"] == other), {})

    # What a node has free reaches the head a moment after what waits.
    wait_until(lambda: len(demands()[0]) == 3 and demands()[2].get("missing") == {"there": 2.0})
    rows, later, there = demands()
    never = next(row for row in rows if "nowhere" in row["resources"])
    assert (later["fits"], there["fits"]) == ("later", "later")
    assert there["why"] == "it has 4 there free, and 6 are wanted"
    assert never["fits"] == "never"
    assert sorted(row["kind"] for row in rows) == ["actor", "task", "task"]
    shown = run(shared_two_nodes, "status")
    assert f"node {shared_two_nodes.other.node_id[:8]}: it has 4 there free, and 6 are wanted" in shown
    assert "no node can ever hold it as the cluster is" in shown
    assert json.loads(run(shared_two_nodes, "demand", "--json"))["demands"]
    weft.cancel(waiting[1])
    weft.kill(holder)
    weft.get(waiting[0])
    del waiting
    assert comes_true(lambda: not ask(shared_two_nodes, "demand")["demands"])


def test_a_node_other_than_the_head_passes_the_question_on(shared_two_nodes: TwoNodes) -> None:
    local = shared_two_nodes.other._running.up.local_address
    assert Client(local).ask("status")["nodes"] == ask(shared_two_nodes)["nodes"] or comes_true(
        lambda: len(Client(local).ask("status")["nodes"]) == 2
    )


def test_a_busy_node_is_not_idle(shared_two_nodes: TwoNodes) -> None:
    address = shared_two_nodes.cluster.address

    def idle_s() -> float:
        return float(next(n for n in Client(address).ask("status")["nodes"] if not n["is_head"])["idle_s"])

    assert comes_true(lambda: idle_s() > 0.2)

    @weft.remote(**THERE)
    def busy() -> float:
        return idle_s()

    assert weft.get(busy.remote()) == pytest.approx(0, abs=0.1)


def test_failures_are_remembered(shared_two_nodes: TwoNodes) -> None:
    @weft.remote(max_retries=0, **THERE)
    def crash() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(weft.exceptions.WorkerCrashedError):
        weft.get(crash.remote())
    assert comes_true(lambda: any("SIGKILL" in row["what"] for row in ask(shared_two_nodes)["failures"]))
    assert "recent failures" in run(shared_two_nodes, "status")
