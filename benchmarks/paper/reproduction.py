"""What every script here does with what it measured: print it beside the paper's numbers, keep it, draw it.

A script has a `measure(short)` that gives an `Outcome`, and ends with `run("its name", measure)`. The figures go to
`results/NAME.json`, the drawing to `docs/images/paper/NAME.svg`; `page.py` makes `docs/paper.md` of them.

The paper is Moritz et al., "Ray: A Distributed Framework for Emerging AI Applications", OSDI 2018.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
IMAGES = HERE.parent.parent / "docs" / "images" / "paper"
sys.path.insert(0, str(HERE.parent))  # the other benchmarks, whose cases are used here

NOT_GIVEN = "not given as a number"


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
    svg: str = ""
    says: str = ""
    """What is to be seen in it, losses too; made from the figures."""


def run(name: str, measure: Callable[[bool], Outcome]) -> None:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes: to see that it works, not to be believed")
    options = parser.parse_args()
    load_before, began = os.getloadavg()[0], time.perf_counter()
    outcome = measure(options.short)
    found: dict[str, Any] = dataclasses.asdict(outcome)
    svg = found.pop("svg")
    found |= {
        "name": name,
        "short": options.short,
        "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}",
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - began, 1),
        "date": time.strftime("%Y-%m-%d"),
        "drawn": bool(svg),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if svg:
        IMAGES.mkdir(parents=True, exist_ok=True)
        (IMAGES / f"{name}.svg").write_text(svg)
    print(shown(found))


def shown(found: dict[str, Any]) -> str:
    """The outcome in Markdown."""
    rows = [f"| {row['what']} | {row['paper']} | {row['ours']} |" for row in found["rows"]]
    parts = [
        f"### {found['title']} ({found['where']})",
        "\n".join(["| | the paper | Weft here |", "|---|---|---|", *rows]),
    ]
    if found["drawn"]:
        parts.append(f"![{found['title']}](images/paper/{found['name']}.svg)")
    if found["says"]:
        parts.append(found["says"])
    parts.append(f"What differs: {found['differs']}")
    sizes = "**short sizes, only to see that it works**" if found["short"] else "full sizes"
    parts.append(
        f"`python benchmarks/paper/{found['name']}.py{' --short' if found['short'] else ''}`, {found['date']}, "
        f"{sizes}; "
        f"{found['machine']}; load average {found['load'][0]} before and {found['load'][1]} after; "
        f"{found['seconds']} s."
    )
    return "\n\n".join(parts) + "\n"
