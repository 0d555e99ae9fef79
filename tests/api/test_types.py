"""`.remote` keeps the signature and `get` the type, as mypy sees it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

mypy = pytest.importorskip("mypy.api")
FOLDER = Path(__file__).parent / "typing"


def complaints(name: str) -> list[tuple[int, str]]:
    """(line, text) of mypy's errors in a file."""
    root = FOLDER.parents[2]
    out, _, _ = mypy.run(["--strict", "--config-file", str(root / "pyproject.toml"), str(FOLDER / name)])
    found = re.findall(rf"{name}:(\d+): error: (.*)", out)
    return [(int(line), text) for line, text in found]


@pytest.mark.slow
def test_right_programs_are_accepted() -> None:
    assert complaints("right.py") == []


@pytest.mark.slow
def test_mistakes_are_found() -> None:
    lines = (FOLDER / "wrong.py").read_text().splitlines()
    marked = {number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}
    assert {line for line, _ in complaints("wrong.py")} == marked
