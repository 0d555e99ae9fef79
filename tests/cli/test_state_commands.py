"""`weft list`, `summary`, `memory`, `explain`, `logs`, `stack`, `top`, `dashboard` and `timeline` against a cluster."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Head

import weft
from waiting import wait_until
from weft.engine.process.telling import progress
from weft.util import placement_group, remove_placement_group

HOSTILE = "evil\x1b[2J<script>"


@weft.remote(num_cpus=0)
class Gate:
    def __init__(self) -> None:
        self.opened = threading.Event()

    def enter(self) -> None:
        print("waits at the gate")
        self.opened.wait()

    def open(self) -> None:
        self.opened.set()


@weft.remote(num_cpus=0)
def fails() -> None:
    raise ValueError("on purpose")


@weft.remote(num_cpus=0)
def takes(value: Any) -> Any:
    return value


@pytest.fixture(scope="module")
def gate(head: Head) -> Iterator[Any]:
    """An actor with a call that waits."""
    made = Gate.options(max_concurrency=3, name="gate").remote()
    waiting = made.enter.options(name=HOSTILE).remote()
    wait_until(lambda: any(row["name"] == HOSTILE for row in rows(head, "tasks")))
    yield made
    weft.get([made.open.remote(), waiting])


def rows(head: Head, what: str, *options: str) -> list[dict[str, Any]]:
    ended = head.cli("list", what, "--json", *options)
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def test_every_kind_is_listed_for_people_and_for_programs(head: Head, gate: Any) -> None:
    kept = weft.put(b"x" * (1 << 20))
    for kind in ("tasks", "actors", "objects", "nodes", "jobs", "workers", "placement-groups", "cluster-events"):
        ended = head.cli("list", kind)
        assert ended.returncode == 0 and ended.stdout, (kind, ended.stderr)
        assert "\x1b" not in ended.stdout
        rows(head, kind)
    assert "evil?[2J<script>" in head.cli("list", "tasks").stdout
    assert "1.0 MiB" in head.cli("list", "objects").stdout
    del kept


def test_all_tells_what_the_control_store_has_and_refuses_the_rest(head: Head, gate: Any) -> None:
    weft.put("x", name="stored")
    (row,) = [row for row in rows(head, "objects", "--all") if row["named_by"]]
    assert (row["pid"], row["owner_state"]) == (os.getpid(), "ALIVE") and row["named_by"][0].endswith("/stored")
    assert rows(head, "objects", "--all", "--filter", "owner_state=DEAD") == []
    weft.delete_object("stored")
    assert "--all is for objects and tasks, but got nodes" in head.cli("list", "nodes", "--all").stderr
    assert "--store is an option of --all" in head.cli("list", "objects", "--store", "x").stderr
    folder = str(head.state_folder)
    assert f"{folder} is no folder of a store" in head.cli("list", "objects", "--all", "--store", folder).stderr


def test_listings_are_filtered_and_cut(head: Head, gate: Any) -> None:
    assert [row["name"] for row in rows(head, "actors", "--filter", "state=ALIVE")] == ["gate"]
    assert rows(head, "actors", "--filter", "state!=ALIVE") == []
    assert len(rows(head, "workers", "--limit", "1")) == 1
    wrong = head.cli("list", "actors", "--filter", "colour=red")
    assert wrong.returncode == 1 and "there is no 'colour' to filter by" in wrong.stderr


def test_sums_are_by_name_and_by_owner(head: Head, gate: Any) -> None:
    kept = weft.put(b"x" * (1 << 20))
    assert json.loads(head.cli("summary", "actors", "--json").stdout) == {"Gate": {"ALIVE": 1}}
    assert "evil?[2J" in head.cli("summary", "tasks").stdout
    assert f"driver {os.getpid()}" in head.cli("summary", "objects").stdout
    memory = head.cli("memory")
    assert "of the object store in use" in memory.stdout and f"driver {os.getpid()} on" in memory.stdout
    assert "(not recorded)" in head.cli("memory", "--group-by", "site").stdout
    del kept


def test_a_thing_is_explained_by_the_beginning_of_its_id(head: Head, gate: Any) -> None:
    (actor,) = rows(head, "actors")
    assert f"Actor Gate {actor['actor_id']} is ALIVE in process" in head.cli("explain", actor["actor_id"][:12]).stdout
    task = next(row for row in rows(head, "tasks") if row["name"] == HOSTILE)
    assert "runs in the worker" in head.cli("explain", task["task_id"]).stdout
    unknown = head.cli("explain", "0123456789")
    assert unknown.returncode == 1 and "nothing with the id 0123456789" in unknown.stderr


def test_what_pends_is_explained_by_what_it_asks_for_and_what_each_node_has(head: Head, gate: Any) -> None:
    large = fails.options(num_cpus=100, resources={"fpga": 2}, name="large").remote()
    behind = takes.options(name="behind").remote(large)
    actor = Gate.options(num_cpus=7).remote()
    call = actor.enter.remote()
    group = placement_group([{"CPU": 1}, {"CPU": 64}], name="wide", strategy="STRICT_PACK")
    wait_until(lambda: {"large", "behind", "Gate.enter"} <= {row["name"] for row in rows(head, "tasks")})
    told = head.cli("explain", large.hex()[:24]).stdout
    assert "waits for a worker" in told and "it asks for 100 CPU, 2 fpga, which no node can ever hold" in told
    assert "it has 1 CPU in all, and 100 are wanted" in told and "it has 0 fpga in all, and 2 are wanted" in told
    line = progress.describe([large], 3.0)
    assert (
        "wait for a worker: one asks for 100 CPU, 2 fpga, which no node can ever hold as the cluster is), 3 s" in line
    )
    assert f"it waits for {large.hex()}" in head.cli("explain", behind.hex()[:24]).stdout
    for one in (actor._actor_id.hex(), call.hex()[:24]):
        assert "it has 1 CPU in all, and 7 are wanted" in head.cli("explain", one).stdout
    told = head.cli("explain", group.id.hex()).stdout
    assert "wide" in told and "PENDING" in told and "1 CPU in all" in told
    (row,) = [row for row in rows(head, "tasks") if row["name"] == "large"]
    assert row["required_resources"] == {"CPU": 100.0, "fpga": 2.0}
    remove_placement_group(group)
    weft.kill(actor)
    weft.cancel(large)
    weft.wait([large, behind, call], num_returns=3)


def test_a_task_that_failed_is_explained_with_its_traceback(head: Head, gate: Any) -> None:
    ref = fails.remote()
    with pytest.raises(ValueError, match="on purpose"):
        weft.get(ref)
    told = head.cli("explain", ref.hex()[:24])
    assert 'raise ValueError("on purpose")' in told.stdout


def test_logs_of_workers_are_read_also_from_files(head: Head, gate: Any) -> None:
    wait_until(lambda: "waits at the gate" in head.cli("logs").stdout)
    assert head.cli("logs", "--grep", "no such words").stdout == ""
    line = json.loads(head.cli("logs", "--grep", "GATE", "--json").stdout.splitlines()[0])
    assert (line["text"], line["stream"], line["name"]) == ("waits at the gate", "stdout", HOSTILE)
    (node,) = rows(head, "nodes")
    assert "waits at the gate" in head.cli("logs", "--session", node["node_id"]).stdout
    assert "no session of a node ffff" in head.cli("logs", "--session", "ffff").stderr


def test_stacks_show_where_a_call_waits(head: Head, gate: Any) -> None:
    told = head.cli("stack")
    assert told.returncode == 0 and "in enter" in told.stdout and "self.opened.wait()" in told.stdout
    found = json.loads(head.cli("stack", "--json").stdout)["stacks"]
    assert {row["owner_type"] for row in found} == {"DRIVER", "WORKER"}


def test_top_shows_nodes_and_tasks_that_have_not_ended(head: Head, gate: Any) -> None:
    held = takes.remote(1)
    assert weft.get(held) == 1
    told = head.cli("top", "--once")
    assert told.returncode == 0 and "nodes" in told.stdout and "evil?[2J" in told.stdout
    assert "FINISHED" not in told.stdout
    del held


def test_the_dashboard_and_the_timeline_are_a_command_away(head: Head, gate: Any, tmp_path: Path) -> None:
    assert head.cli("dashboard", "--no-open").stdout.startswith("http://127.0.0.1:")
    assert set(json.loads(head.cli("dashboard", "--json").stdout)) == {"address", "token", "url"}
    report = tmp_path / "run.html"
    assert head.cli("report", str(report)).returncode == 0 and "By function" in report.read_text()
    told = head.cli("timeline", str(tmp_path / "trace.json"))
    assert "0 dropped" in told.stdout
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
