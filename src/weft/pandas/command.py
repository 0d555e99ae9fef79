"""`python -m weft.pandas script.py`: a program that says `import pandas`, with large frames on Weft."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence

from weft.pandas.facade import install
from weft.pandas.moves import explain, moves


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m weft.pandas", description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print at the end what ran on parts and what pandas did")
    parser.add_argument("--strict", action="store_true", help="raise where pandas would have to do it")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    install()
    moves.strict = options.strict
    sys.argv = [options.script, *options.arguments]
    try:
        if options.module:
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(_folder(options.script)))
            runpy.run_path(options.script, run_name="__main__")
    finally:
        if options.profile:
            print(explain(), file=sys.stderr)


def _folder(script: str) -> str:
    import os

    return os.path.dirname(os.path.abspath(script))
