"""What every script here shares: its outcome is printed beside the paper's numbers, kept, and drawn.

A script has a `measure(short)` that gives an `Outcome`, and ends with `run("its name", measure)`. The figures go to
`results/NAME.json`, the drawings to `docs/images/paper`; `page.py` makes `docs/paper.md` of them.

The paper is Moritz et al., "Ray: A Distributed Framework for Emerging AI Applications", OSDI 2018.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
IMAGES = HERE.parent.parent / "docs" / "images" / "paper"
sys.path.insert(0, str(HERE.parent))  # the other benchmarks, whose cases are used here


@dataclasses.dataclass(frozen=True)
class Row:
    what: str
    paper: str
    ours: str


@dataclasses.dataclass
class Outcome:
    """One figure or table of the paper, again."""

    where: str
    """In the paper."""
    title: str
    rows: list[Row]
    differs: str
    """What is different here: machines, sizes, the peer."""
    drawings: list[str]
    """SVG."""


def run(name: str, measure: Callable[[bool], Outcome]) -> None:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes: to see that it works, not to be believed")
    options = parser.parse_args()
    load_before, began = os.getloadavg()[0], time.perf_counter()
    outcome = measure(options.short)
    found: dict[str, Any] = dataclasses.asdict(outcome)
    found["drawings"] = draw(name, outcome.drawings)
    found |= {
        "name": name,
        "short": options.short,
        "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}",
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - began, 1),
        "date": time.strftime("%Y-%m-%d"),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(shown(found))


def draw(name: str, drawings: list[str]) -> list[str]:
    """Writes them; the names of the files."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    files = [f"{name}{f'-{number}' if number > 1 else ''}.svg" for number in range(1, len(drawings) + 1)]
    for file, svg in zip(files, drawings, strict=True):
        (IMAGES / file).write_text(svg)
    return files


def shown(found: dict[str, Any]) -> str:
    """The outcome in Markdown."""
    rows = [f"| {row['what']} | {row['paper']} | {row['ours']} |" for row in found["rows"]]
    sizes = "**short sizes, only to see that it works**" if found["short"] else "full sizes"
    return "\n\n".join(
        [
            f"## {found['title']} ({found['where']})",
            "\n".join(["| | the paper | Weft here |", "|---|---|---|", *rows]),
            *(f"![{found['title']}](images/paper/{file})" for file in found["drawings"]),
            f"What differs: {found['differs']}",
            f"`python benchmarks/paper/{found['name']}.py{' --short' if found['short'] else ''}`, {found['date']}, "
            f"{sizes}; {found['machine']}; load average {found['load'][0]} before and {found['load'][1]} after; "
            f"{found['seconds']} s.\n",
        ]
    )


def last_line(command: list[str]) -> Any:
    """The JSON that a process prints last."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def with_mpi(script: str, ranks: int, *arguments: object) -> Any:
    """A bulk-synchronous program: `script --rank ARGUMENTS` as so many ranks; what rank 0 prints last."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        raise SystemExit(f"{mpiexec} is missing: `make paper` installs MPI for Python and MPICH")
    return last_line([str(mpiexec), "-n", str(ranks), sys.executable, script, "--rank", *map(str, arguments)])
