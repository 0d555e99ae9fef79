"""`weft dashboard`, `weft timeline` and `weft report`: pictures of a cluster."""

from __future__ import annotations

import argparse
import json

from weft.cli.options import Commands, add_address, add_command, add_json, print_json
from weft.engine.cluster.client import Client
from weft.inspection.report import Report
from weft.observe.collect import Reader
from weft.observe.trace_file import trace


def add(commands: Commands) -> None:
    dashboard = add_command(
        commands,
        "dashboard",
        _dashboard,
        "open the dashboard in a browser",
        "Prints where the dashboard of the cluster is, with its token, and opens it in a browser where there is one. "
        "Its Prometheus endpoint is /metrics there.",
        "weft dashboard\nweft dashboard --no-open",
    )
    dashboard.add_argument("--no-open", action="store_true", help="only print the address")
    add_address(dashboard)
    add_json(dashboard)
    timeline = add_command(
        commands,
        "timeline",
        _timeline,
        "write what the cluster did lately to a file, for Perfetto",
        "Tasks, calls, waits, transfers and spills, in the format of https://ui.perfetto.dev and chrome://tracing.",
        "weft timeline trace.json",
    )
    timeline.add_argument("file", metavar="FILE", help="to write; one that is there is replaced")
    add_address(timeline)
    report = add_command(
        commands,
        "report",
        _report,
        "write one page of what the cluster did lately, to look at and to send",
        "What ran where and for how long, which chain of tasks made it take that long, what failed, and what waits and "
        "why: one HTML file that loads nothing. In a program: with weft.report(FILE).",
        "weft report run.html",
    )
    report.add_argument("file", metavar="FILE", help="to write; one that is there is replaced")
    add_address(report)


def _dashboard(options: argparse.Namespace) -> int:
    found = Client(options.address, options.token_file).ask("dashboard")
    if options.json:
        print_json(found)
        return 0
    print(found["url"], flush=True)
    if not options.no_open:
        import webbrowser

        webbrowser.open(found["url"])
    return 0


def _timeline(options: argparse.Namespace) -> int:
    made = trace(Reader(Client(options.address, options.token_file)).read())
    with open(options.file, "w") as file:
        json.dump(made, file)
    known = made["otherData"]
    print(f"{options.file}: {known['events']} events, {known['dropped']} dropped; open it at https://ui.perfetto.dev")
    return 0


def _report(options: argparse.Namespace) -> int:
    Report(options.file, Client(options.address, options.token_file)).write()
    print(options.file)
    return 0
