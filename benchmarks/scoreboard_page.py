"""Makes docs/scoreboard.md and its bars of benchmarks/scoreboard.json: nothing on the page is written by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from scoreboard_cases import SECTIONS, WEFT, Case, Section

from weft.demos import chart

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "scoreboard.json"
DOCS = HERE.parent / "docs"
IMAGES = DOCS / "images" / "scoreboard"

OPENING = """# The scoreboard

Made by `make scoreboard` from `benchmarks/scoreboard.json`; do not edit. Weft beside what people would use instead, in
one run on one machine: the same work, one contender at a time, each in a process of its own, medians of the rounds. In
brackets: how many times as good as Weft. **More than 1 is a loss of Weft's**, and bold. A section says how busy the
machine was: figures from a busy one are not to be quoted.
"""


def medians(section: Section, found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By contender and case, over the rounds."""
    gathered: dict[str, dict[str, list[float]]] = {one.name: {} for one in section.contenders}
    for made in found["measurements"]:
        for case, value in made["figures"].items():
            gathered[made["contender"]].setdefault(case, []).append(value)
    return {name: {case: statistics.median(values) for case, values in by.items()} for name, by in gathered.items()}


def times_as_good(case: Case, ours: float, theirs: float) -> float:
    """More than 1 is a loss."""
    better, worse = (ours, theirs) if case.less_is_better else (theirs, ours)
    if worse == 0:
        return 1.0 if better == 0 else float("inf")
    return better / worse


def shown(case: Case, value: float) -> str:
    """With its unit; seconds in the unit that has no zeros in front."""
    if case.unit == "s":
        scale, unit = next((one for one in ((1.0, "s"), (1e-3, "ms")) if value >= one[0]), (1e-6, "µs"))
        return f"{chart.number(value / scale)} {unit}"
    return f"{chart.number(value)} {case.unit}"


def cell(case: Case, ours: float | None, theirs: float) -> str:
    if ours is None:
        return shown(case, theirs)
    times = times_as_good(case, ours, theirs)
    text = f"{shown(case, theirs)} ({chart.number(times)})"
    return f"**{text}**" if times > 1 else text


def table(section: Section, figures: dict[str, dict[str, float]], failed: dict[str, str]) -> str:
    others = [one.name for one in section.contenders if one.name != WEFT]
    lines = ["| | " + " | ".join([WEFT, *others]) + " |", "|---" * (len(others) + 2) + "|"]
    for case in section.cases:
        ours = figures[WEFT].get(case.name)
        cells = [failed.get(WEFT, "–") if ours is None else shown(case, ours)]
        for other in others:
            if (theirs := figures[other].get(case.name)) is not None:
                cells.append(cell(case, ours, theirs))
            else:
                cells.append(failed.get(other, "–"))
        lines.append(f"| {case.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def drawing(section: Section, figures: dict[str, dict[str, float]], failed: dict[str, str]) -> str:
    """One group of bars a case; the bar is how good it is beside Weft, the note its figure."""
    groups: dict[str, dict[str, tuple[float, str]]] = {}
    for case in section.cases:
        ours = figures[WEFT].get(case.name)
        bars = {}
        for contender, by_case in figures.items():
            if ours is not None and case.name in by_case:
                value = by_case[case.name]
                bars[contender] = (times_as_good(case, ours, value), shown(case, value))
            elif contender in failed:
                bars[contender] = (0.0, failed[contender])
        groups[case.name] = bars
    return chart.grouped_bars(groups, f"{section.title}: how good beside Weft", "longer is better; logarithmic")


def section_page(name: str, found: dict[str, Any]) -> str:
    section = SECTIONS[name]
    figures = medians(section, found)
    failed = {made["contender"]: made["failed"] for made in found["measurements"] if made["failed"]}
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / f"{name}.svg").write_text(drawing(section, figures, failed))
    return "\n\n".join(
        [
            f"## {section.title}",
            section.work,
            table(section, figures, failed),
            f"![{section.title}](images/scoreboard/{name}.svg)",
            conditions(found),
        ]
    )


def conditions(found: dict[str, Any]) -> str:
    """When, where and how often it was measured."""
    made = found["measurements"]
    rounds = sorted({sum(other["contender"] == one["contender"] for other in made) for one in made if one["figures"]})
    times = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    sizes = "**short sizes, only to see that it works**" if found["short"] else f"medians of {times} rounds"
    loads = [one["load"] for one in made]
    seconds = sum(one["seconds"] for one in made)
    versions = {one["contender"]: one["version"] for one in made if one["version"]}
    named = "; ".join(f"{contender} {version}" for contender, version in versions.items())
    return (
        f"{found['date']}, {sizes}; {found['machine']}; load average {min(loads)} to {max(loads)}; {seconds:.0f} s. "
        f"{named}."
    )


def losses(figures: dict[str, Any]) -> str:
    """All that Weft lost, in one place."""
    lines, compared = [], 0
    for name, found in figures.items():
        section = SECTIONS[name]
        by_contender = medians(section, found)
        for case in section.cases:
            for contender, by_case in by_contender.items():
                if contender == WEFT or not {case.name} <= by_case.keys() & by_contender[WEFT].keys():
                    continue
                compared += 1
                times = times_as_good(case, by_contender[WEFT][case.name], by_case[case.name])
                if times > 1:
                    lines.append(f"- {section.title}, {case.name}: {contender} {chart.number(times)} times as good")
    return "\n".join([f"Weft lost {len(lines)} of {compared} comparisons:", "", *lines]) + "\n"


def write_page() -> Path:
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures = {name: figures[name] for name in SECTIONS if name in figures}
    sections = [section_page(name, found) + "\n" for name, found in figures.items()]
    missing = [name for name in SECTIONS if name not in figures]
    if missing:
        sections.append(f"Not measured yet: {', '.join(missing)}.\n")
    page = DOCS / "scoreboard.md"
    page.write_text("\n".join([OPENING, losses(figures), *sections]))
    return page


if __name__ == "__main__":
    print(write_page())
