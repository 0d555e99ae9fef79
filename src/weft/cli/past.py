"""`weft past`: what ran in the last hours, by function, or single runs of one."""

from __future__ import annotations

import argparse
import re
from typing import Any

from weft.cli.options import Commands, add_address, add_command, add_json, clock, print_json, table
from weft.engine.cluster.client import Client
from weft.observe import past_runs

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add(commands: Commands) -> None:
    past = add_command(
        commands,
        "past",
        _past,
        "what ran in the last hours: by function, or single runs",
        "How often each function ran, how long it took and how often it failed. With a function's name its single "
        "runs, as far as the nodes have kept them: a node keeps a day in sums, and runs in a file of 256 MiB "
        "(WEFT_EVENTS_FILE).",
        "weft past\nweft past --last 10m\nweft past train_step --order longest\nweft past --order failed",
    )
    past.add_argument("function", nargs="?", default="", metavar="FUNCTION", help="single runs of this one")
    past.add_argument(
        "--last",
        type=_span,
        default=3600,
        metavar="TIME",
        help="so long ago at most, as 90s, 10m, 6h, 1d (default: 1h)",
    )
    past.add_argument(
        "--order",
        choices=("newest", "longest", "failed"),
        help="which single runs: the newest, the longest, or the newest that did not end well (of all functions, where "
        "none is named)",
    )
    past.add_argument("--limit", type=int, default=20, metavar="N", help="show so many (default: 20)")
    add_address(past)
    add_json(past)


def _span(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a time is a number with s, m, h or d behind it, as 10m, but got {text!r}")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _past(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    if options.function or options.order:
        order = options.order or "newest"
        rows = past_runs.single_runs(client, options.last, options.function, order, options.limit)
        if options.json:
            print_json(rows)
        else:
            print(_runs(rows))
        return 0
    found = past_runs.ended(client, options.last)
    if options.json:
        print_json(found)
    else:
        print(_functions(found, options.limit))
    return 0


def _runs(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "No such run is kept."
    header = ("ended", "took", "outcome", "attempt", "function", "pid", "node", "task")
    return table(
        header,
        [
            (clock(row["ended_s"]), _took(row["seconds"]), row["outcome"], str(row["attempt"] + 1), row["name"],
             str(row["pid"]), row["node_id"][:12], row["task_id"])
            for row in rows
        ],
        indent="",
    )  # fmt: skip


def _functions(found: dict[str, Any], limit: int) -> str:
    if not found["rows"]:
        return "Nothing ran in that time."
    header = ("function", "runs", "failed", "tried again", "time", "mean", "longest")
    lines = table(
        header,
        [
            (row["name"], str(row["runs"]), str(row["failed"]), str(row["retried"]), _took(row["seconds"]),
             _took(row["seconds"] / row["runs"]), _took(row["longest_s"]))
            for row in found["rows"][:limit]
        ],
        indent="",
    )  # fmt: skip
    more = len(found["rows"]) - limit
    left = f"\nand {more} more functions (--limit)" if more > 0 else ""
    all_events = found["recorded"] + found["missed"]
    kept = f"\nSince {clock(found['from_s'])}; {found['recorded']} of {all_events} events are counted."
    return lines + left + kept


def _took(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
