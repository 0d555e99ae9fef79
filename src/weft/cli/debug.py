"""`weft debug`: attaches to a `breakpoint()` that a task or actor waits at."""

from __future__ import annotations

import argparse
import codecs
import os
import select
import socket
import sys
from typing import Any

from weft.cli.options import Commands, add_address, add_command, add_json, clock, print_json, table
from weft.engine.cluster.client import Client
from weft.net.credentials import connect_to_own
from weft.net.shown import harmless, printable


def add(commands: Commands) -> None:
    debug = add_command(
        commands,
        "debug",
        _debug,
        "attach to a breakpoint() in a task",
        "Opens pdb in a task or actor of this machine that has called breakpoint() and waits there. Without a task the "
        "newest one. `quit`, `continue` or Ctrl-D leave it, and the task goes on.",
        "weft debug --list\nweft debug\nweft debug 3f2a91",
    )
    debug.add_argument("task", nargs="?", default="", metavar="TASK", help="its id, or the beginning of it")
    debug.add_argument("--list", action="store_true", help="only show which tasks wait")
    add_address(debug)
    add_json(debug)


def _debug(options: argparse.Namespace) -> int:
    answers = Client(options.address, options.token_file).ask("breakpoints")
    rows = [row for answer in answers for row in answer if row["task_id"].startswith(options.task)]
    if options.json:
        print_json(rows)
        return 0
    if options.list:
        lines = [
            [row["task_id"][:12], *map(printable, (row["name"], row["place"], row["pid"])), clock(row["time_s"])]
            for row in rows
        ]
        print(table(["task", "name", "where", "pid", "since"], lines) if lines else "no task waits at a breakpoint")
        return 0
    if not rows:
        raise LookupError("no task waits at a breakpoint" + (f" with the id {options.task}" if options.task else ""))
    return _attach(max(rows, key=lambda row: float(row["time_s"])))


def _attach(row: dict[str, Any]) -> int:
    try:
        connection = connect_to_own(row["address"], socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionError(
            f"task {row['task_id'][:12]} waits at {row['place']} in process {row['pid']}, but cannot be reached "
            f"from here ({error.strerror or error}): run `weft debug` on the machine of node {row['node_id'][:8]}"
        ) from error
    with connection:
        print(
            f"attached to {printable(row['name'])} at {printable(row['place'], 500)}, process {row['pid']}", flush=True
        )
        _bridge(connection)
    return 0


def _bridge(connection: socket.socket) -> None:
    """What is typed goes there, what comes is shown, until the other side ends it."""
    sources = [connection.fileno(), sys.stdin.fileno()]
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        ready, _, _ = select.select(sources, [], [])
        if connection.fileno() in ready:
            data = connection.recv(1 << 16)
            if not data:
                return
            sys.stdout.write(harmless(decode(data)))
            sys.stdout.flush()
        if sys.stdin.fileno() in ready:
            typed = os.read(sys.stdin.fileno(), 1 << 16)
            if typed:
                connection.sendall(typed)
            else:
                connection.shutdown(socket.SHUT_WR)
                sources.remove(sys.stdin.fileno())
