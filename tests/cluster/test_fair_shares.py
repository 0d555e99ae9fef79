"""Two jobs on one cluster: neither is left with the share of one node, and the higher priority goes first."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from clusters import THERE, TwoNodes

import weft
from waiting import comes_true
from weft.engine.cluster.client import Client

OTHER_JOB = """
import sys, time, weft
weft.init(address=sys.argv[1], log_to_driver=False)

@weft.remote
def work():
    time.sleep(0.02)
    return weft.get_runtime_context().get_node_id()

places = weft.get([work.remote() for _ in range(120)], timeout=60)
print(len(set(places)))
"""


def test_a_job_that_comes_later_gets_its_share_on_every_node(two_nodes: TwoNodes) -> None:
    """The first job has filled both nodes with a stream that does not end; the second one's driver is on the head."""

    @weft.remote
    def stream() -> str:
        time.sleep(0.02)
        return weft.get_runtime_context().get_node_id()

    running = [stream.remote() for _ in range(64)]
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_JOB, two_nodes.cluster.address], stdout=subprocess.PIPE, text=True
    ) as other:
        done = 0
        while other.poll() is None:
            ready, running = weft.wait(running, num_returns=8)
            done += len(ready)
            running += [stream.remote() for _ in range(8)]
        assert other.stdout is not None
        assert other.stdout.read().strip() == "2", "it ran on both nodes"
    assert done < 120 * 8, "the first job had some of it, not nearly all"
    weft.wait(running, num_returns=len(running))


def test_on_another_node_too_the_higher_priority_goes_first(two_nodes: TwoNodes, tmp_path: Path) -> None:
    order, begun, go = tmp_path / "order", tmp_path / "begun", tmp_path / "go"

    @weft.remote(resources={"there": 10})
    def hold() -> None:
        begun.touch()
        while not go.exists():
            time.sleep(0.01)

    @weft.remote(resources={"there": 10})
    def note(name: str) -> None:
        with order.open("a") as file:
            file.write(name)

    holding = hold.remote()
    assert comes_true(begun.exists), "else the higher priority may go before it"
    low = [note.options(priority=0).remote("l") for _ in range(3)]
    high = [note.options(priority=5).remote("h") for _ in range(3)]
    client = Client(two_nodes.cluster.address)
    assert comes_true(lambda: len(client.ask("demand")["demands"]) == 2)
    assert comes_true(lambda: two_nodes_queue(client) == 2), "both wait at the node that can hold them"
    go.touch()
    weft.get([holding, *low, *high], timeout=60)
    assert order.read_text() == "hhhlll"


def two_nodes_queue(client: Client) -> int:
    """How many shapes the node that is not the head has been asked for."""
    return int(client.ask("status")["nodes"][1]["demands_queued"])


def test_nested_work_runs_where_it_is_submitted_when_there_is_room(two_nodes: TwoNodes) -> None:
    @weft.remote(num_cpus=0)
    def where() -> str:
        return weft.get_runtime_context().get_node_id()

    @weft.remote(**THERE)
    def parent() -> list[str]:
        return [weft.get_runtime_context().get_node_id(), *weft.get([where.remote() for _ in range(4)])]

    assert set(weft.get(parent.remote(), timeout=60)) == {two_nodes.other.node_id}
