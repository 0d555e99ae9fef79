"""What pages say of figures and commands: a figure is one of the benchmarks', a command that is named is there."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from weft.cli import main

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = (ROOT / "benchmarks/README.md").read_text()
PARSERS = next(action for action in main.parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
MISSPELT_ON_PURPOSE = "lst"
PAGES = sorted(
    path
    for name in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "deploy/*.md", "examples/*.md")
    for path in ROOT.glob(name)
)


def test_the_figures_on_the_inside_are_those_of_the_benchmarks() -> None:
    """All numbers of at least two digits, and all with a decimal point, that are not part of a name or a link."""
    number = r"(?<![\w.,])(?:\d[\d,]*\d(?:\.\d+)?|\d+\.\d+)"
    prose = re.sub(r"`[^`\n]+`|\]\([^)]*\)", "", (ROOT / "docs/inside.md").read_text())
    measured = {*re.findall(number, BENCHMARKS)}
    assert [figure for figure in re.findall(number, prose) if figure not in measured] == []


def test_every_section_with_figures_names_the_command_that_makes_them() -> None:
    parts = re.split(r"^(##+ .+)$", BENCHMARKS, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    unnamed = [heading for heading, text in sections.items() if "\n|---" in text and not names_a_command(text)]
    assert unnamed == []


def test_the_page_of_benchmarks_is_made_of_what_they_printed() -> None:
    """It is what `python benchmarks/figures.py` writes."""
    made = subprocess.run(
        [sys.executable, "-c", "import figures; print(figures.page(), end='')"],
        cwd=ROOT / "benchmarks",
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == BENCHMARKS


def names_a_command(text: str) -> bool:
    return any(re.search(r"\bmake [a-z]|\bpython [a-z]", piece) for piece in code_of(text))


def code_of(text: str) -> Iterator[str]:
    """What stands in backticks, in fences and indented; a comment is no part of a command."""
    yield from re.findall(r"`([^`\n]+)`", text)
    for fenced in re.findall(r"^```(?:console|bash|sh|text)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from (line.split("  #")[0] for line in fenced.splitlines())
    yield from (line.split("  #")[0] for line in re.findall(r"^    (\S.*)$", text, re.MULTILINE))


def test_every_command_that_a_page_names_is_there() -> None:
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    commands = {*PARSERS} | {MISSPELT_ON_PURPOSE}
    missing = []
    for page in PAGES:
        for piece in code_of(page.read_text()):
            wrong = [f"make {name}" for name in re.findall(r"^make ([a-z][a-z-]*)", piece) if name not in targets]
            wrong += [f"weft {name}" for name in re.findall(r"^weft ([a-z]+)", piece) if name not in commands]
            scripts = re.findall(r"python ((?:benchmarks|examples|tests)/[a-z_/]+\.py)", piece)
            wrong += [script for script in scripts if not (ROOT / script).exists()]
            missing += [f"{page.relative_to(ROOT)}: {command}" for command in wrong]
    assert missing == []
