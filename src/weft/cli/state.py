"""`weft list`, `weft summary`, `weft memory`, `weft explain`: what there is in a cluster, and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.cli.options import Commands, add_address, add_command, add_json, clock, print_json, size, table
from weft.engine.cluster.client import Client, named_address
from weft.net.shown import printable

KINDS = ("tasks", "actors", "objects", "nodes", "jobs", "workers", "placement-groups", "cluster-events")
_Row = Mapping[str, Any]
_Column = tuple[str, Callable[[_Row], Any]]
SHORT = 12


def add(commands: Commands) -> None:
    listing = add_command(
        commands,
        "list",
        _list,
        f"{', '.join(KINDS)}: one line each",
        "What there is in the cluster. Tasks are listed while they wait or run, and as long as somebody holds what "
        "they returned; actors also when they are dead.",
        "weft list tasks\nweft list actors --filter state=ALIVE\nweft list objects --json --limit 1000\n"
        "weft list objects --all",
    )
    listing.add_argument("what", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="at most so many (default: 100)")
    listing.add_argument(
        "--filter", action="append", default=[], metavar="KEY=VALUE", help="only these; KEY!=VALUE too"
    )
    listing.add_argument(
        "--all", action="store_true", help="objects and tasks as the control store knows them: those of the dead, too"
    )
    listing.add_argument(
        "--store", metavar="FOLDER", help="with --all: of a cluster that has ended, as its head has kept it there"
    )
    summary = add_command(
        commands,
        "summary",
        _summary,
        "how many tasks, actors or objects there are, by name",
        "How many there are in which state, by name; objects by the process that owns them.",
        "weft summary tasks",
    )
    summary.add_argument("what", choices=("tasks", "actors", "objects"), metavar="KIND", help="tasks, actors, objects")
    memory = add_command(
        commands,
        "memory",
        _memory,
        "who holds which objects",
        "The objects that are held, by owner, size and place; the largest first. With WEFT_CALL_SITES=1 in the "
        "environment of the program, also the line that put them.",
        "weft memory\nweft memory --group-by site",
    )
    memory.add_argument(
        "--group-by",
        choices=("owner", "site", "none"),
        default="owner",
        help="put them together by the process that owns them, by the line that put them, or not (default: owner)",
    )
    memory.add_argument("--limit", type=int, default=20, metavar="N", help="show so many objects (default: 20)")
    explain = add_command(
        commands,
        "explain",
        _explain,
        "why a task, an actor, an object or a placement group is as it is",
        "Tells what is known of the thing with this id, or the beginning of it: its state, where it is, what it waits "
        "for.",
        "weft explain 3f2a91",
    )
    explain.add_argument("id", metavar="ID", help="as `weft list` shows it, or its beginning")
    for parser in (listing, summary, memory, explain):
        add_address(parser)
        add_json(parser)


# ---- listings --------------------------------------------------------------------------------------


def _short(key: str) -> _Column:
    return key.removesuffix("_id").replace("_", " "), lambda row: str(row.get(key) or "-")[:SHORT]


def _plain(key: str, title: str = "") -> _Column:
    return title or key.replace("_", " "), lambda row: "-" if row.get(key) in (None, "") else row[key]


COLUMNS: dict[str, Sequence[_Column]] = {
    "tasks": (_short("task_id"), _plain("name"), _plain("state"), _plain("worker_pid", "worker"),
              _plain("pid", "owner"), _short("node_id"), ("attempt", lambda row: row["attempt_number"] + 1)),
    "actors": (_short("actor_id"), _plain("class_name", "class"), _plain("name"), _plain("state"), _plain("pid"),
               _short("node_id"), _plain("num_restarts", "restarts")),
    "objects": (("object", lambda row: row["object_id"]), ("size", lambda row: size(row["object_size"])),
                _plain("task_status", "state"),
                ("where", lambda row: "arena" if row["is_in_shared_memory"] else "inline"),
                _plain("pid", "owner"), _plain("references"), _plain("borrowers"), _plain("call_site", "site")),
    "nodes": (_short("node_id"), _plain("state"), _plain("address"),
              ("head", lambda row: "yes" if row["is_head"] else ""),
              _plain("tasks_running", "leased"), _plain("actors"), ("resources", lambda row: _amounts(row["total"]))),
    "jobs": (_plain("job_id", "job"), _plain("pid"), _plain("status"), _plain("namespace"),
             _plain("submission_id", "submitted as")),
    "workers": (_plain("pid"), _plain("worker_type", "type"), _plain("state"), _plain("job_id", "job"),
                _short("node_id")),
    "placement-groups": (("group", lambda row: str(row["group"])[:SHORT]), _plain("name"), _plain("state"),
                         _plain("strategy"), ("bundles", lambda row: "; ".join(map(_amounts, row["bundles"])))),
    "cluster-events": (("time", lambda row: clock(row["time_s"])), _plain("severity"), _plain("source_type", "source"),
                       _short("node_id"), _plain("message")),
}  # fmt: skip


def _amounts(resources: Mapping[str, float]) -> str:
    large = ("memory", "object_store_memory")
    return ", ".join(f"{size(v) if k in large else f'{v:g}'} {k}" for k, v in resources.items() if ":" not in k)


def rows_of(client: Client, what: str, limit: int) -> list[dict[str, Any]]:
    """Of one of KINDS."""
    if what == "nodes":
        found: list[dict[str, Any]] = client.ask("status")["nodes"]
        return found[:limit]
    rows: list[dict[str, Any]] = client.ask("rows", what=what.replace("-", "_"), limit=limit)
    return _jobs(client, rows)[:limit] if what == "jobs" else rows


def _jobs(client: Client, drivers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drivers, and the jobs that were submitted; a job whose driver runs is one row."""
    status = client.ask("status")
    submitted_as = {row["job"]: row["submission_id"] for row in status["jobs"]}
    rows = [{**row, "submission_id": submitted_as.get(row["job_id"]) or None} for row in drivers]
    shown = {row["submission_id"] for row in rows}
    return rows + [
        {"job_id": None, "pid": None, "status": row["status"], "type": "SUBMISSION", "namespace": "",
         "submission_id": row["submission_id"]}
        for row in status["submissions"] if row["submission_id"] not in shown
    ]  # fmt: skip


STORED: dict[str, Sequence[_Column]] = {
    "objects": (("object", lambda row: row["object_id"]), ("size", lambda row: size(row["object_size"])),
                _plain("task_status", "state"), ("owner", lambda row: row["pid"] or "dead"), _short("owner_node_id"),
                ("bytes on", lambda row: str(row["node_id"] or "-")[:SHORT]), _plain("name", "made by"),
                ("kept by", lambda row: _keepers(row) or "-")),
    "tasks": (_short("task_id"), _plain("name"), _plain("state"), ("owner", lambda row: row["pid"] or "dead"),
              _short("owner_node_id"), ("attempt", lambda row: row["attempt_number"] + 1), _plain("retries_left"),
              ("needs", lambda row: len(row["needs"])), ("results", lambda row: len(row["results"])),
              _short("parent_task_id"), _short("previous_call_id")),
}  # fmt: skip


def _keepers(row: _Row) -> str:
    return ", ".join([*row["named_by"], *(f"actor {actor[:8]}" for actor in row["held_by_actors"])])


def _stored_rows(options: argparse.Namespace, limit: int) -> list[dict[str, Any]]:
    """What the control store knows: asked of the cluster, or read where the head of one that has ended has kept it."""
    from weft.engine.cluster import launch, tokens
    from weft.inspection import stored_rows
    from weft.store import head_folder

    folder = Path(options.store) if options.store else None
    if folder is None:
        try:
            client = Client(options.address, options.token_file)
            return list(client.ask("stored_rows", what=options.what, limit=limit))
        except ConnectionError:
            address = options.address or named_address()
            if address is None or not launch.is_cluster_address(address):
                raise
            folder = head_folder.path_of(tokens.folder(), launch.normal(address))
            if not folder.exists():
                raise
            print(f"the cluster does not run: this is what its head has kept in {folder}", file=sys.stderr)
    tables = head_folder.tables_in(folder)
    return stored_rows.listing(options.what, tables, stored_rows.Processes(stored_rows.nodes_in(tables), {}), limit)


def _list(options: argparse.Namespace) -> int:
    if options.limit < 1:
        raise ValueError(f"--limit must be positive, but got {options.limit}")
    if options.store and not options.all:
        raise ValueError("--store is an option of --all")
    if options.all and options.what not in STORED:
        raise ValueError(f"--all is for {' and '.join(STORED)}, but got {options.what}")
    filters = [_filter(text) for text in options.filter]
    limit = 10_000 if filters else options.limit
    if options.all:
        rows = _stored_rows(options, limit)
    else:
        rows = rows_of(Client(options.address, options.token_file), options.what, limit)
    rows = [row for row in rows if all(holds(row) for holds in filters)][: options.limit]
    if options.json:
        print_json(rows)
    elif not rows:
        print(f"there are no {options.what.replace('-', ' ')}")
    else:
        print(show((STORED if options.all else COLUMNS)[options.what], rows))
    return 0


def _filter(text: str) -> Callable[[_Row], bool]:
    key, sign, value = text.partition("!=")
    if not sign:
        key, sign, value = text.partition("=")
    if not sign or not key:
        raise ValueError(f"a filter is KEY=VALUE or KEY!=VALUE, but got {text!r}")

    def holds(row: _Row) -> bool:
        if key not in row:
            raise ValueError(f"there is no {key!r} to filter by, only {', '.join(row)}")
        return (str(row[key]) == value) == (sign == "=")

    return holds


def show(columns: Sequence[_Column], rows: Iterable[_Row]) -> str:
    return table([title for title, _ in columns], [[printable(value(row)) for _, value in columns] for row in rows])


# ---- sums ------------------------------------------------------------------------------------------


def _summary(options: argparse.Namespace) -> int:
    rows = rows_of(Client(options.address, options.token_file), options.what, 10_000)
    if options.what == "objects":
        return _print_sums(options, _by(rows, lambda row: f"{row['owner_type'].lower()} {row['pid']}"))
    key = "name" if options.what == "tasks" else "class_name"
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        states = found.setdefault(row[key], {})
        states[row["state"]] = states.get(row["state"], 0) + 1
    if options.json:
        print_json(found)
        return 0
    lines = [[printable(name), str(sum(s.values())), ", ".join(f"{n} {state}" for state, n in sorted(s.items()))]
             for name, s in sorted(found.items())]  # fmt: skip
    print(table(["name", "all", "states"], lines) if lines else f"there are no {options.what}")
    return 0


def _by(rows: Iterable[_Row], key: Callable[[_Row], str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        entry = found.setdefault(key(row), {"objects": 0, "bytes": 0, "in_arena": 0})
        entry["objects"] += 1
        entry["bytes"] += row["object_size"]
        entry["in_arena"] += int(row["is_in_shared_memory"])
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def _print_sums(options: argparse.Namespace, sums: dict[str, dict[str, int]]) -> int:
    if options.json:
        print_json(sums)
        return 0
    lines = [
        [printable(name), str(one["objects"]), size(one["bytes"]), str(one["in_arena"])] for name, one in sums.items()
    ]
    print(table(["held by", "objects", "size", "in the arena"], lines) if lines else "there are no objects")
    return 0


def _memory(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    rows = sorted(rows_of(client, "objects", 10_000), key=lambda row: -row["object_size"])
    machines = client.ask("machines")
    if options.json:
        print_json({"objects": rows, "nodes": machines})
        return 0
    for node in machines:
        print(
            f"node {node['node_id'][:8]}: {size(node['arena_used_bytes'])} of {size(node['arena_bytes'])} of the "
            f"object store in use by {node['objects']} objects; {node['spilled_objects']} are on disk"
        )
    print()
    if options.group_by != "none":
        site = options.group_by == "site"
        sums = _by(rows, lambda row: str(row.get("call_site") or "(not recorded)") if site
                   else f"{row['owner_type'].lower()} {row['pid']} on {row['node_id'][:8]}")  # fmt: skip
        _print_sums(options, sums)
        print()
    if rows:
        print(show(COLUMNS["objects"], rows[: options.limit]))
        if len(rows) > options.limit:
            print(f"  and {len(rows) - options.limit} smaller ones")
    return 0


# ---- one thing -------------------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    wanted = options.id.lower()
    if len(wanted) < 4:
        raise ValueError(f"an id, or at least four letters of it, is wanted, but got {options.id!r}")
    client = Client(options.address, options.token_file)
    found: list[tuple[str, dict[str, Any]]] = []
    for what, key in _IDS.items():
        found += [(what, row) for row in rows_of(client, what, 10_000) if str(row[key]).startswith(wanted)]
    failed = [row for node in client.ask("errors") for row in node["errors"] if row["task_id"].startswith(wanted)]
    stored = client.ask("stored_rows", what="tasks", limit=10_000)
    stored = [row for row in stored if wanted[:_TASK_DIGITS] == row["task_id"][: len(wanted)][:_TASK_DIGITS]]
    if not found and not failed and not stored:
        raise LookupError(
            f"nothing with the id {options.id} waits, runs or is held now, and no error of it is kept. A task that is "
            "over is only known from events: see `weft timeline` or the dashboard"
        )
    if options.json:
        print_json({"found": [{"kind": what, **row} for what, row in found], "errors": failed, "stored": stored})
        return 0
    for what, row in found:
        print(_story(what, row))
    for row in stored:
        print(_stored_story(row))
    if not failed and any(row.get("task_status") == "FAILED" for _, row in found):
        print(
            "No error of it is kept here: it was not raised by code, or is too long ago. weft.explain(ref) in its owner"
        )
        print("tells why it failed.")
    for row in failed:
        print(f"Task {printable(row['name'])} (attempt {row['attempt'] + 1}) raised in process {row['pid']}:")
        print("".join(f"  {printable(line, 500)}\n" for line in row["traceback"].splitlines()))
    return 0


_TASK_DIGITS = 24
"""Of an object's id, those of the task that makes it."""
_MOST_NEEDS = 5
_IDS = {
    "tasks": "task_id",
    "actors": "actor_id",
    "objects": "object_id",
    "nodes": "node_id",
    "placement-groups": "group",
}


def _story(what: str, row: dict[str, Any]) -> str:
    if what == "actors":
        where = f"in process {row['pid']} of node {str(row['node_id'])[:8]}" if row["pid"] else "in no process"
        death = f" It died: {printable(row['death_cause'], 500)}" if row["death_cause"] else ""
        restarts = f", {row['num_restarts']} restarts" if row["num_restarts"] else ""
        story = f"Actor {printable(row['class_name'])} {row['actor_id']} is {row['state']} {where}{restarts}.{death}"
        return story + _why_pending(row)
    if what == "placement-groups":
        name = f" {printable(row['name'])}" if row["name"] else ""
        return f"Placement group{name} {row['group']} is {row['state']}.{_why_pending(row)}"
    if what == "objects":
        place = "in the arena" if row["is_in_shared_memory"] else "inline"
        return (
            f"Object {row['object_id']} is {row['task_status']}: {size(row['object_size'])} {place}, owned by the "
            f"{row['owner_type'].lower()} {row['pid']} of node {row['node_id'][:8]}, which holds {row['references']} "
            f"references; {row['borrowers']} other processes borrow it"
            f"{': ' if row['held_by'] else ''}{printable(row['held_by'], 500)}."
        )
    if what == "nodes":
        return f"Node {row['node_id']} at {row['address']} is {row['state']}. {printable(row['why'], 500)}".strip()
    reason = _WAITS.get(row["state"], f"is {row['state']}")
    worker = f" in the worker {row['worker_pid']} of node {row['node_id'][:8]}" if row.get("worker_pid") else ""
    story = f"Task {printable(row['name'])} {row['task_id']} (attempt {row['attempt_number'] + 1}) {reason}{worker}."
    return story + _why_pending(row)


def _stored_story(row: _Row) -> str:
    """Of a task in the control store: where it is in the graph, and why it was made again."""
    lines = [
        f"In the control store: task {printable(row['name'])} {row['task_id']} (attempt {row['attempt_number'] + 1}) "
        f"is {row['state']}; it belongs to {_owner(row)}."
    ]
    if row["parent_task_id"]:
        lines.append(f"  Task {row['parent_task_id']} has submitted it.")
    if row["previous_call_id"]:
        lines.append(f"  Before it, its caller has made call {row['previous_call_id']} on the same actor.")
    if row["needs"]:
        lines.append(f"  It needs {', '.join(row['needs'][:_MOST_NEEDS])}{', …' * (len(row['needs']) > _MOST_NEEDS)}.")
    for owner in row["former_owners"]:
        lines.append(f"  It belonged to {_owner(owner)}, and passed on when that one had died.")
    if row["former_owners"] and row["attempt_number"]:
        lines.append("  Its heir has run it again: its result had not come, or no copy of that was left.")
    elif row["attempt_number"]:
        lines.append("  It has run again: the attempt before had failed, or what it made was lost with a node.")
    return "\n".join(lines)


def _owner(row: _Row) -> str:
    pid = f"pid {row['pid']}" if row["pid"] else "dead"
    return f"process {row['owner_worker_id'][:SHORT]} of node {row['owner_node_id'][:SHORT]} ({pid})"


def _why_pending(row: _Row) -> str:
    """On lines of their own: what it asks for, then what each node says to that."""
    return "".join(f"\n  {printable(part, 500)}" for part in str(row.get("why_pending") or "").split("; ") if part)


_WAITS = {
    "PENDING_ARGS_AVAIL": "waits for arguments that are not there yet",
    "PENDING_NODE_ASSIGNMENT": "waits for a worker",
    "SUBMITTED_TO_WORKER": "is queued, behind others,",
    "RUNNING": "runs",
    "FINISHED": "is over, and is kept to be run again should its results be lost",
}
