"""`weft status` and `weft demand`: what a cluster does now, and what it would need."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from weft.cli.options import Commands, add_address, add_command, add_json, clock, print_json, table
from weft.engine.cluster import launch
from weft.engine.cluster.client import Client, named_address
from weft.net.shown import printable

_BYTES = ("memory", "object_store_memory")
_NODES_SHOWN = 4
HEALTH_S = 5.0


def add(commands: Commands) -> None:
    status = add_command(
        commands,
        "status",
        _status,
        "nodes, resources, what waits and why, jobs, recent failures",
        "What the cluster does now: its nodes, what is used of each resource, which work waits and what is missing for "
        "it on which node, the drivers and jobs, what has failed lately.",
        "weft status\nweft status --json --address 10.0.0.1:6379 --token-file token",
    )
    add_address(status)
    add_json(status)
    demand = add_command(
        commands,
        "demand",
        _demand,
        "the work that waits for resources, per shape: what an autoscaler needs",
        "The work that waits, per shape of resources, and what each node has free: what decides whether a cluster is "
        "to grow, or which node can be drained. deploy/README.md describes the JSON.",
        "weft demand --json",
    )
    add_address(demand)
    add_json(demand)
    health = add_command(
        commands,
        "health",
        _health,
        "whether this machine's node answers; for probes",
        "Ends with 0 when the newest node of this user on this machine (or the one named) answers, else with 1.",
        "weft health && echo up",
    )
    add_address(health)


def _status(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    found = client.ask("status")
    if options.json:
        print_json(found)
        return 0
    others = launch.others(client.address) if (options.address or named_address()) is None else []
    if others:
        print(f"other sessions of this user run here too, shown by --address: {', '.join(others)}\n")
    nodes = found["nodes"]
    print(f"cluster {found['address']}: {sum(n['state'] != 'dead' for n in nodes)} of {len(nodes)} nodes are alive")
    print(table(["node", "address", "state", "tasks", "actors", "idle"], [_node(node) for node in nodes]))
    print("\nresources in use")
    print(table(["resource", "used", "of", "free"], _resources(nodes)))
    _print_demands(found["demands"])
    _print_jobs(found)
    if found["failures"]:
        print("\nrecent failures")
        print("\n".join(f"  {clock(row['time_s'])}  {printable(row['what'], 500)}" for row in found["failures"]))
    return 0


def _node(node: Mapping[str, Any]) -> list[str]:
    state = node["state"] + (f": {node['why']}" if node["why"] else "")
    numbers = ["-" if node[name] is None else str(node[name]) for name in ("tasks_running", "actors")]
    idle = "-" if not node["idle_s"] or node["state"] == "dead" else f"{node['idle_s']:.0f} s"
    return [node["node_id"][:8] + (" (head)" if node["is_head"] else ""), node["address"], state, *numbers, idle]


def _resources(nodes: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    total: dict[str, float] = {}
    free: dict[str, float] = {}
    for node in nodes:
        for name, amount in node["total"].items():
            total[name] = total.get(name, 0.0) + amount
            free[name] = free.get(name, 0.0) + node["available"].get(name, 0.0)
    return [
        [name, *(_amount(name, value) for value in (total[name] - free[name], total[name], free[name]))]
        for name in sorted(total)
    ]


def _amount(name: str, value: float) -> str:
    return f"{value / (1 << 30):.2f} GiB" if name in _BYTES else f"{value:g}"


def _print_demands(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        print("\nnothing waits for resources")
        return
    print("\nwaits for resources")
    for row in rows:
        wanted = ", ".join(f"{_amount(name, value)} {name}" for name, value in row["resources"].items()) or "nothing"
        print(f"  {printable(_demanded(row, wanted), 500)}, for {row['waits_s']} s")
        if row["fits"] == "never":
            print("    no node can ever hold it as the cluster is: it runs once a node joins that can")
        for node in row["nodes"][:_NODES_SHOWN]:
            print(f"    node {node['node_id'][:8]}: {printable(node['why'], 500)}")
        if len(row["nodes"]) > _NODES_SHOWN:
            print(f"    and {len(row['nodes']) - _NODES_SHOWN} more nodes (--json shows all)")


def _demanded(row: Mapping[str, Any], wanted: str) -> str:
    """A driver asks for a worker or a few, not for one a task: how many tasks wait, `weft summary tasks` says.

    >>> _demanded({"kind": "task", "count": 2, "job": 1}, "1 CPU")
    'tasks of job 1, 1 CPU each: some 2 workers are asked for'
    >>> _demanded({"kind": "actor", "count": 2, "job": 1}, "1 CPU")
    '2 actors of job 1, 1 CPU each'
    """
    if row["count"] == 1:
        return f"{row['kind']} of job {row['job']}, {wanted}"
    if row["kind"] == "task":
        return f"tasks of job {row['job']}, {wanted} each: some {row['count']} workers are asked for"
    return f"{row['count']} {row['kind']}s of job {row['job']}, {wanted} each"


def _print_jobs(found: Mapping[str, Any]) -> None:
    if found["jobs"]:
        print("\ndrivers")
        rows = [
            [str(row["job"]), str(row["pid"]), row["node_id"][:8], str(row["workers"]), row["submission_id"] or "-"]
            for row in found["jobs"]
        ]
        print(table(["job", "pid", "node", "workers here", "submitted as"], rows))
    running = [row for row in found["submissions"] if row["end_s"] is None]
    if found["submissions"]:
        print(f"\nsubmitted jobs: {len(running)} run, {len(found['submissions']) - len(running)} are over")
        print(table(["job", "status", "command"], [_submission(row) for row in found["submissions"][-10:]]))


def _submission(row: Mapping[str, Any]) -> list[str]:
    return [row["submission_id"], row["status"], row["entrypoint"].replace("\n", " ")[:60]]


def _demand(options: argparse.Namespace) -> int:
    found = Client(options.address, options.token_file).ask("demand")
    if options.json:
        print_json(found)
    else:
        _print_demands(found["demands"])
    return 0


def _health(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    report = client.ask("node_report", timeout_s=HEALTH_S)
    print(f"the node of {client.address} is alive: {report['workers']} workers, idle for {report['idle_s']:.0f} s")
    return 0
