"""The command line. A command prints what it did and returns 0; else it says on standard error why not.

Exit statuses: 0 done, 1 it could not be done, 2 the command makes no sense, 130 interrupted; `weft job submit` has the
status of its job.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from weft.cli import dashboard, debug, demo, doctor, drain, jobs, nodes, processes, replay, state, status

_LIBRARIES = frozenset(("rl", "serve"))
"""Those with commands of their own; each is loaded by its name, when asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _LIBRARIES:
            return int(importlib.import_module(f"weft.{given[0]}.cli").main(given[1:]))
        options = parser().parse_args(given)
        return int(options.command(options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        return 1
    except (RuntimeError, OSError, LookupError, ValueError, TypeError) as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="weft",
        description="Weft runs Python programs on one machine or many. These commands start and end the nodes of a "
        "cluster, submit programs to it and show what it does. `weft COMMAND --help` says more.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    nodes.add(commands)
    status.add(commands)
    state.add(commands)
    processes.add(commands)
    dashboard.add(commands)
    debug.add(commands)
    replay.add(commands)
    drain.add(commands)
    jobs.add(commands)
    doctor.add(commands)
    demo.add(commands)
    commands.add_parser("rl", help="train policies and watch them; `weft rl --help`")
    commands.add_parser("serve", help="run an application over HTTP and show what is served; `weft serve --help`")
    return made
