"""Makes benchmarks/README.md of the words in `figures.md` and of what the scripts here have printed.

    python benchmarks/figures.py                  the page anew
    python benchmarks/figures.py growth tensors   measure these again first, with the commands that the page names

In `figures.md` a line `@NAME: COMMAND` stands for the command and its tables, which are in `results/NAME.md` behind a
line that says on what they were measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORDS = HERE / "figures.md"
RESULTS = HERE / "results"
PAGE = HERE / "README.md"
PLACES = {"PEERS_PYTHON": "an interpreter that has the peers (.venv-peers)", "FOLDER": "where data sets may be written"}
"""Words of commands that differ from machine to machine."""
MEASURED = re.compile(r"^@(\w+): (.+)$", re.MULTILINE)
TABLE = re.compile(r"^\|.*\|$")


def page() -> str:
    return MEASURED.sub(lambda found: _shown(*found.groups()), WORDS.read_text())


def _shown(name: str, command: str) -> str:
    told, _, tables = (RESULTS / f"{name}.md").read_text().partition("\n\n")
    return f"    {command}\n\nMeasured: {told}.\n\n{tables.rstrip()}"


def measure(name: str, command: str) -> None:
    """Run it, and keep the tables that it prints."""
    begun, load = time.strftime("%Y-%m-%d"), os.getloadavg()[0]
    words = [_given(word) for word in shlex.split(command)]
    printed = subprocess.run(words, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [line if TABLE.match(line) else "" for line in printed.splitlines()]
    tables = re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip()
    if not tables:
        raise SystemExit(f"{command} printed no table: {name} is left as it was")
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    told = f"{machine}, {begun}; load average {load:.1f} before and {os.getloadavg()[0]:.1f} after"
    (RESULTS / f"{name}.md").write_text(f"{told}\n\n{tables}\n")


def _given(word: str) -> str:
    if word == "python":
        return sys.executable
    if word in PLACES and word not in os.environ:
        raise SystemExit(f"{word} must be in the environment: {PLACES[word]}")
    return os.environ[word] if word in PLACES else word


def main() -> None:
    known = dict(MEASURED.findall(WORDS.read_text()))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    for name in parser.parse_args().names:
        if name not in known:
            parser.error(f"nothing is measured under {name!r}; there are {', '.join(known)}")
        measure(name, known[name])
    PAGE.write_text(page())
    print(PAGE)


if __name__ == "__main__":
    main()
