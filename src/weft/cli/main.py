"""The command line. A command prints what it did and returns 0; else it says on standard error why not.

Exit statuses: 0 done, 1 it could not be done, 2 the command makes no sense, 130 interrupted; `weft job submit` has the
status of its job.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence

from weft.cli import (
    completion,
    dashboard,
    debug,
    demo,
    doctor,
    drain,
    jobs,
    nodes,
    past,
    processes,
    replay,
    state,
    status,
    token,
)
from weft.cli.parser import Parser
from weft.net.shown import printable_lines

_LIBRARIES = frozenset(("rl", "serve"))
"""Those with commands of their own; each is loaded by its name, when asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _LIBRARIES:
            options = _library_parser(given[0]).parse_args(given[1:])
        else:
            options = parser().parse_args(given)
        return int(options.command(options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        return 1
    except (RuntimeError, OSError, LookupError, ValueError, TypeError, ImportError) as error:
        if isinstance(error, ImportError) and "pip install" not in str(error):
            raise  # of the user's own program, who wants to see where
        print(f"weft: {printable_lines(error)}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = Parser(
        prog="weft",
        description="Weft runs Python programs on one machine or many. These commands start and end the nodes of a "
        "cluster, submit programs to it and show what it does. `weft COMMAND --help` says more.",
    )
    made.add_argument("--version", action=_Version, help="print the version and end")
    commands = made.add_subparsers(required=True, metavar="COMMAND", title="commands")
    nodes.add(commands)
    status.add(commands)
    state.add(commands)
    past.add(commands)
    processes.add(commands)
    dashboard.add(commands)
    debug.add(commands)
    replay.add(commands)
    drain.add(commands)
    jobs.add(commands)
    token.add(commands)
    doctor.add(commands)
    demo.add(commands)
    completion.add(commands, _whole_parser)
    commands.add_parser("rl", help="train policies and watch them")
    commands.add_parser("serve", help="run an application over HTTP and show what is served")
    return made


def _whole_parser() -> argparse.ArgumentParser:
    """With the commands of the libraries, for completion."""
    whole = parser()
    commands = next(action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    for name in sorted(_LIBRARIES):
        with contextlib.suppress(ModuleNotFoundError):  # a library whose extra is not installed has no commands here
            commands.choices[name] = _library_parser(name)
    return whole


def _library_parser(name: str) -> argparse.ArgumentParser:
    made = Parser(prog=f"weft {name}")
    importlib.import_module(f"weft.{name}.cli").add(made)
    return made


class _Version(argparse.Action):
    """Looked up only when it is asked for: that takes longer than most commands."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import platform

        import weft
        from weft.cli.doctor import extras

        ready, missing = extras()
        print(f"weft {weft.__version__} on Python {platform.python_version()}")
        print(f"ready: the engine{''.join(f', {name}' for name in ready)}")
        if missing:
            print(f"not installed: {', '.join(missing)} (pip install 'weft[{missing[0]}]', or 'weft[all]')")
        parser.exit()
