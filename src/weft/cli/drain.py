"""`weft drain`: take a node out of a cluster without loss."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from weft.cli.options import Commands, add_address, add_command
from weft.engine.cluster.client import Client
from weft.net.shown import printable

ENDING_S = 10.0
LOOK_S = 0.2


def add(commands: Commands) -> None:
    drain = add_command(
        commands,
        "drain",
        _drain,
        "let a node finish what it runs, move what can be moved, and leave",
        "The node takes no new work. Tasks that run there may finish; actors that may restart do so on other nodes; "
        "its objects are taken over by the nodes of their owners; then it leaves. Actors that cannot move, drivers "
        "and jobs on it are waited for, until the deadline.",
        "weft drain 3f2a91c0\nweft drain 10.0.0.7:43210 --deadline 600",
    )
    drain.add_argument("node", metavar="NODE", help="the beginning of its id, or its HOST:PORT (see `weft status`)")
    drain.add_argument(
        "--deadline", type=float, default=3600.0, metavar="SECONDS", help="it leaves then anyway (default: 3600)"
    )
    drain.add_argument("--reason", default="", help="shown as the cause of the node's end")
    drain.add_argument("--no-wait", action="store_true", help="only begin it")
    add_address(drain)


def _drain(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    node = client.ask("drain", node=options.node, deadline_s=options.deadline, reason=options.reason)
    name = f"node {node['node_id'][:8]} at {node['address']}"
    if options.no_wait:
        print(f"{name} is being drained")
        return 0
    shown: list[str] = []
    while (state := _state(client, node["node_id"]))["state"] != "dead":
        if state["holds"] != shown and state["holds"]:
            print(f"weft: {name} waits: {printable('; '.join(state['holds']), 2000)}", file=sys.stderr, flush=True)
        shown = state["holds"]
        time.sleep(LOOK_S)
    print(f"{name} has left: {printable(state['why'], 500)}")
    return 0


def _state(client: Client, node_id: str) -> dict[str, Any]:
    """A node that was asked to drain itself answers no more once it has left; while it ends, its connections close
    before it stops to listen."""
    ends_by = time.monotonic() + ENDING_S
    while True:
        try:
            found: dict[str, Any] = client.ask("drain_state", node=node_id)
            return found
        except ConnectionError:
            if not client.still_answers():
                return {"state": "dead", "why": "it was drained, and was the node that was asked", "holds": []}
            if time.monotonic() > ends_by:
                raise
        time.sleep(LOOK_S)
