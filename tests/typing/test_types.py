"""The public API is typed: mypy and pyright see what a user writes, and find what is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES, WRONG = HERE / "examples.py", HERE / "wrong.py"


def mypy(path: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300).stdout


def pyright_errors(path: Path) -> list[int]:
    """The lines with errors. The checker is pyright's, as basedpyright packs it with the Node.js it needs."""
    command = [
        os.path.join(os.path.dirname(sys.executable), "basedpyright"),
        "--outputjson",
        "--level",
        "error",
        str(path),
    ]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)
    return [
        entry["range"]["start"]["line"] + 1 for entry in found["generalDiagnostics"] if entry["severity"] == "error"
    ]


def expected() -> dict[int, str]:
    lines = enumerate(WRONG.read_text().splitlines(), start=1)
    return {number: found[1] for number, line in lines if (found := re.search(r"# expected: (\S+)", line))}


def test_mypy_sees_signatures_and_value_types() -> None:
    assert mypy(EXAMPLES) == ""


def test_pyright_sees_signatures_and_value_types() -> None:
    assert pyright_errors(EXAMPLES) == []


def test_mypy_finds_wrong_calls() -> None:
    found = {int(line): code for line, code in re.findall(r"wrong\.py:(\d+): error: .*\[([\w-]+)\]", mypy(WRONG))}
    assert found == expected()


def test_pyright_finds_wrong_calls() -> None:
    assert sorted(set(pyright_errors(WRONG))) == sorted(expected())
