"""`weft demo`: programs that show what Weft is for."""

from __future__ import annotations

import argparse
from pathlib import Path

from weft import demos
from weft.cli.options import Commands, add_command, table


def add(commands: Commands) -> None:
    demo = add_command(
        commands,
        "demo",
        _demo,
        "run a program that shows what Weft is for",
        "Without a name: one program that simulates, trains and serves, kills one of its workers on purpose, and ends "
        "with a plot after about two minutes. There is one for each library, too.",
        "weft demo\nweft demo --list\nweft demo tune",
    )
    demo.add_argument(
        "name", nargs="?", default=demos.DEFAULT, choices=list(demos.BY_NAME), metavar="NAME", help="see --list"
    )
    demo.add_argument("--list", action="store_true", help="say which demos there are")
    demo.add_argument("--short", action="store_true", help="only some seconds of it")
    demo.add_argument(
        "--plot", type=Path, default=demos.Options.plot, metavar="FILE", help="where a plot goes (default: %(default)s)"
    )


def _demo(options: argparse.Namespace) -> int:
    if options.list:
        rows = [(demo.name, demo.summary, f"needs weft[{demo.extra}]" if demo.missing else "") for demo in demos.ALL]
        print(table(("NAME", "WHAT IT SHOWS", ""), rows))
        return 0
    demos.BY_NAME[options.name].run(demos.Options(options.short, options.plot))
    return 0
