"""The examples in docstrings run and give what they show; those of weft.pandas have an own test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from docstrings import SESSIONS

import weft

SOURCES = Path(weft.__file__).parent
RUNNER = Path(__file__).with_name("docstrings.py")
NOT_RUN = {
    "data.progress": "draws on the terminal",
    "job_submission": "wants a cluster: tests/jobs",
    "rl.policy": "would train first: docs/rl",
    "testing.network": "wants root: tests/cluster/test_networks.py",
    "train": "names what the pages of docs/train.md run",
    "train.backends": "is a line of a training loop: tests/train",
    "tune.session": "is a line of a trial: docs/tune.md",
}
"""Modules whose examples cannot stand alone, and where the same is run."""


def modules_with_examples() -> list[str]:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith("pandas") and ">>> " in path.read_text():
            found.append(name)
    return found


def packages_with_examples() -> dict[str, list[str]]:
    packages = defaultdict(list)
    for name in modules_with_examples():
        if name not in NOT_RUN:
            packages[name.split(".")[0]].append(name)
    return packages


# A package in a process of its own: what its examples import (JAX, Torch) and begin must not stay with other tests.
@pytest.mark.parametrize("package", packages_with_examples())
def test_examples_give_what_they_show(package: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(RUNNER), *packages_with_examples()[package]],
        cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, timeout=280, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:]


def test_what_is_not_run_has_examples() -> None:
    assert set(modules_with_examples()) >= NOT_RUN.keys() | SESSIONS
