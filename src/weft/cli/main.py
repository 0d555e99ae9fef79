"""The command line. A command prints what it did and returns 0; else it says on standard error why not.

Exit statuses: 0 done, 1 it could not be done, 2 the command makes no sense, 130 interrupted; `weft job submit` has the
status of its job.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from weft.cli import jobs, nodes
from weft.cli.options import add_address, add_command


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        return 1
    except (RuntimeError, OSError, LookupError, ValueError, TypeError) as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft",
        description="Weft runs Python programs on one machine or many. These commands start and end the nodes of a "
        "cluster, submit programs to it and show what it does. `weft COMMAND --help` says more.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    nodes.add(commands)
    status = add_command(commands, "status", _status, "the nodes of a cluster, and what is free", "")
    add_address(status)
    jobs.add(commands)
    return parser


def _status(options: argparse.Namespace) -> int:
    from weft.engine.process import cluster, session

    session.init(address=options.address or "auto", log_to_driver=False)
    try:
        found = cluster.nodes()
        total, free = cluster.cluster_resources(), cluster.available_resources()
    finally:
        session.shutdown()
    print(f"{sum(node['Alive'] for node in found)} of {len(found)} nodes are alive")
    for node in found:
        state = "alive" if node["Alive"] else f"dead: {node['DeathReasonMessage']}"
        print(f"  {node['NodeID'][:8]}  {node['NodeManagerAddress']}:{node['NodeManagerPort']}  {state}")
    print("resources in use")
    for name in sorted(total):
        if not name.startswith("node:"):
            print(f"  {total[name] - free.get(name, 0.0):g} of {total[name]:g} {name}")
    return 0
