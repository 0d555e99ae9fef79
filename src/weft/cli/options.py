"""How all commands take their options and show their results."""

from __future__ import annotations

import argparse
import json
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.net.shown import printable

HELP_COLUMNS = 80
_WIDEST_CELL = 200
ONLY = "the only one with a node on this machine"
"""The cluster that a command changes when none is named; where there are several it changes none."""

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    description: str,
    examples: str = "",
) -> argparse.ArgumentParser:
    """A command with the same layout of its help as all others."""
    shown = "".join(f"  {line}\n" for line in examples.splitlines())
    parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, HELP_COLUMNS),
        epilog=f"examples:\n{shown}" if shown else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    return parser


def add_address(parser: argparse.ArgumentParser, otherwise: str = "the newest on this machine") -> None:
    parser.add_argument(
        "--address", metavar="HOST:PORT", help=f"the cluster (default: the variable WEFT_ADDRESS, else {otherwise})"
    )
    parser.add_argument("--token-file", metavar="PATH", help="holds its token, where no node of it runs here")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True, default=str))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Columns that line up; names that others chose cannot draw on the terminal.

    >>> print(table(["id", "state"], [["a", "alive"], ["bcd", "dead"]]))
      id   state
      a    alive
      bcd  dead
    """
    lines = [list(header), *([printable(cell, _WIDEST_CELL) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    )


def clock(seconds: float | None) -> str:
    """A moment, for a person."""
    return "-" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def size(count: float) -> str:
    """Bytes, for a person.

    >>> size(1536), size(10)
    ('1.5 KiB', '10 B')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
