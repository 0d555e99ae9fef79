"""`weft logs`, `weft stack`, `weft top`: what the processes of a cluster write, and where they are."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

from weft.cli.options import Commands, add_address, add_command, add_json, print_json, size
from weft.engine.cluster.client import Client
from weft.net.shown import printable

FOLLOW_S = 0.5
TOP_S = 1.0
SEARCHED_TASKS = 10_000
"""Of which `top` shows the first that wait or run."""


def add(commands: Commands) -> None:
    logs = add_command(
        commands,
        "logs",
        _logs,
        "what workers have written, also those that are dead",
        "The newest lines that workers have written. A node keeps 8 MiB of them. One that `weft start` has started "
        "also keeps them in files, which --session reads when the node is dead.",
        "weft logs --tail 50\nweft logs --grep epoch --follow\nweft logs --session 3f2a91b0",
    )
    logs.add_argument("--pid", type=int, help="only of this process")
    logs.add_argument("--grep", default="", metavar="TEXT", help="only lines, or lines of tasks, that contain it")
    logs.add_argument("--tail", type=int, default=100, metavar="N", help="so many lines (default: 100)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until interrupted")
    logs.add_argument("--session", metavar="NODE", help="from the files of that node, which need not run")
    add_address(logs)
    add_json(logs)
    stack = add_command(
        commands,
        "stack",
        _stack,
        "where all Python threads of the cluster are",
        "The stacks of all threads of all drivers and workers. A process that hangs in native code and keeps Python's "
        "lock does not answer; --py-spy looks at such processes of this machine from outside.",
        "weft stack\nweft stack --pid 4242 --py-spy",
    )
    stack.add_argument("--pid", type=int, help="only of this process")
    stack.add_argument("--py-spy", action="store_true", help="by py-spy (pip install 'weft[observe]'), from outside")
    add_address(stack)
    add_json(stack)
    top = add_command(
        commands,
        "top",
        _top,
        "a live view of nodes and processes in the terminal",
        "Nodes, workers and what they run, renewed every second until interrupted. Needs rich: "
        "pip install 'weft[observe]'.",
        "weft top",
    )
    top.add_argument("--once", action="store_true", help="show it once and end")
    add_address(top)


# ---- logs ------------------------------------------------------------------------------------------


def _logs(options: argparse.Namespace) -> int:
    if options.session:
        return _print_lines(options, _of_session(options))
    client = Client(options.address, options.token_file)
    wanted: dict[str, Any] = {"text": options.grep, "limit": options.tail}
    if options.pid is not None:
        wanted["pid"] = options.pid
    since: dict[str, int] = {}
    while True:
        lines = []
        for node in client.ask("logs", since=since, **wanted):
            lines += [{**line, "node_id": node["node_id"]} for line in node["lines"]]
            if node["lines"]:
                since[node["node_id"]] = node["lines"][-1]["number"] + 1
        _print_lines(options, sorted(lines, key=lambda line: float(line["time_s"])))
        if not options.follow:
            return 0
        wanted["limit"] = 10_000
        time.sleep(FOLLOW_S)


def _of_session(options: argparse.Namespace) -> list[dict[str, Any]]:
    import msgspec

    from weft.engine.cluster.tokens import folder
    from weft.observe.log_store import read_files

    sessions = os.path.join(folder(), "sessions")
    names = os.listdir(sessions) if os.path.isdir(sessions) else []
    found = [name for name in names if name.startswith(options.session[:16])]
    logs = [os.path.join(sessions, name, "logs") for name in found]
    if not any(map(os.path.isdir, logs)):
        raise LookupError(f"no session of a node {options.session} has log files in {sessions}")
    text = options.grep.lower()
    lines = [
        msgspec.to_builtins(line)
        for path in logs
        if os.path.isdir(path)
        for line in read_files(path)
        if options.pid in (None, line.pid) and (text in line.text.lower() or text in line.name.lower())
    ]
    return lines[-options.tail :]


def _print_lines(options: argparse.Namespace, lines: list[dict[str, Any]]) -> int:
    if options.json:
        import json

        for line in lines:
            print(json.dumps(line), flush=True)
        return 0
    for line in lines:
        moment = time.strftime("%H:%M:%S", time.localtime(line["time_s"]))
        label = f"({printable(line['name'])} pid={line['pid']})" if line["name"] else f"(pid={line['pid']})"
        print(f"{moment} {label} {printable(line['text'], 100_000)}", flush=True)
    return 0


# ---- stacks ----------------------------------------------------------------------------------------


def _stack(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    processes = client.ask("rows", what="workers", limit=10_000)
    if options.py_spy:
        return _from_outside(options, processes)
    rows = [row for row in client.ask("rows", what="stacks", limit=10_000) if options.pid in (None, row["pid"])]
    silent = {row["pid"] for row in processes if row["job_id"]} - {row["pid"] for row in rows}
    if options.json:
        print_json({"stacks": rows, "silent": sorted(silent)})
        return 0
    for row in rows:
        kind = row["owner_type"].lower()
        print(f"{kind} pid={row['pid']} on node {row['node_id'][:8]}, thread {printable(row['thread'])}")
        print(row["stack"].rstrip().encode("ascii", "backslashreplace").decode())
        print()
    if silent and options.pid is None:
        print(f"did not answer: {', '.join(map(str, sorted(silent)))}; look with --py-spy", file=sys.stderr)
    return 0


def _from_outside(options: argparse.Namespace, processes: list[dict[str, Any]]) -> int:
    from weft.dashboard.profile import py_spy

    status = 0
    for row in processes:
        if options.pid in (None, row["pid"]) and os.path.exists(f"/proc/{row['pid']}"):
            command = [py_spy(), "dump", "--pid", str(row["pid"]), *(["--json"] if options.json else [])]
            status |= subprocess.run(command, check=False).returncode
            print(flush=True)
    return status


# ---- top -------------------------------------------------------------------------------------------


def _top(options: argparse.Namespace) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
    except ModuleNotFoundError:
        raise LookupError("`weft top` needs rich: pip install 'weft[observe]'") from None
    client = Client(options.address, options.token_file)
    view = View(client)
    if options.once:
        Console().print(view.draw())
        return 0
    with Live(view.draw(), screen=sys.stdout.isatty(), auto_refresh=False) as live:
        while True:
            time.sleep(TOP_S)
            live.update(view.draw(), refresh=True)


class View:
    """What is on the screen; rates come from two looks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._before: dict[str, dict[str, Any]] = {}

    def draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        status, machines = self._client.ask("status"), self._client.ask("machines")
        nodes = Table("node", "state", "CPU", "memory", "object store", "tasks/s", "run", "failed", "leased", "actors",
                      title="nodes", expand=True)  # fmt: skip
        by_id = {machine["node_id"]: machine for machine in machines}
        for node in status["nodes"]:
            nodes.add_row(*map(Text, self._node(node, by_id.get(node["node_id"]))))
        self._before = by_id
        known = self._client.ask("rows", what="tasks", limit=SEARCHED_TASKS)
        tasks = [row for row in known if row["state"] not in ("FINISHED", "FAILED")]
        running = Table("task", "name", "state", "worker", "owner", title="tasks that wait or run", expand=True)
        for row in tasks[:20]:
            worker = str(row.get("worker_pid") or "-")
            running.add_row(
                *map(Text, (row["task_id"][:12], printable(row["name"]), row["state"], worker, str(row["pid"])))
            )
        waits = sum(row["count"] for row in status["demands"])
        foot = Text(f"{len(tasks)} tasks are known to wait or run; {waits} wait for resources. Ctrl-C ends.")
        return Group(nodes, running, foot)

    def _node(self, node: dict[str, Any], now: dict[str, Any] | None) -> list[str]:
        name = node["node_id"][:8] + (" (head)" if node["is_head"] else "")
        if now is None:
            return [name, node["state"], *["-"] * 8]
        old = self._before.get(node["node_id"], now)
        spent, total = now["time_s"] - old["time_s"], now["cpu_total_s"] - old["cpu_total_s"]
        done, done_before = (one["tallies"]["finished"] + one["tallies"]["failed"] for one in (now, old))
        return [
            name,
            node["state"],
            f"{100 * (now['cpu_busy_s'] - old['cpu_busy_s']) / total:.0f} %" if total > 0 else "-",
            size(now["memory_used_bytes"]),
            size(now["arena_used_bytes"]),
            f"{(done - done_before) / spent:,.0f}" if spent > 0 else "-",
            f"{done:,}",
            f"{now['tallies']['failed']:,}",
            str(node["tasks_running"]),
            str(node["actors"]),
        ]
