"""The public API is typed: mypy and pyright see what a user writes, and find what is wrong."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES, WRONG = HERE / "examples.py", HERE / "wrong.py"


@functools.cache
def mypy() -> str:
    """What it says of both files: a checker takes long to start, and hardly longer for two."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes"]
    return subprocess.run([*command, str(EXAMPLES), str(WRONG)], capture_output=True, text=True, timeout=300).stdout


@functools.cache
def pyright() -> list[dict[str, Any]]:
    """The same. The checker is pyright's, as basedpyright packs it with the Node.js it needs."""
    command = [os.path.join(os.path.dirname(sys.executable), "basedpyright"), "--outputjson", "--level", "error"]
    done = subprocess.run([*command, str(EXAMPLES), str(WRONG)], capture_output=True, text=True, timeout=300)
    found: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    return [entry for entry in found if entry["severity"] == "error"]


def pyright_errors(path: Path) -> list[int]:
    """The lines with errors."""
    return [entry["range"]["start"]["line"] + 1 for entry in pyright() if Path(entry["file"]).name == path.name]


def expected() -> dict[int, str]:
    lines = enumerate(WRONG.read_text().splitlines(), start=1)
    return {number: found[1] for number, line in lines if (found := re.search(r"# expected: (\S+)", line))}


def test_mypy_sees_signatures_and_value_types() -> None:
    assert [line for line in mypy().splitlines() if not re.match(r"\S*wrong\.py:", line)] == []


def test_pyright_sees_signatures_and_value_types() -> None:
    assert pyright_errors(EXAMPLES) == []


def test_mypy_finds_wrong_calls() -> None:
    found = {int(line): code for line, code in re.findall(r"wrong\.py:(\d+): error: .*\[([\w-]+)\]", mypy())}
    assert found == expected()


def test_pyright_finds_wrong_calls() -> None:
    assert sorted(set(pyright_errors(WRONG))) == sorted(expected())
