"""The examples in docstrings run and give what they show; those of weft.pandas have an own test."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import weft

SOURCES = Path(weft.__file__).parent
NOT_RUN = {
    "data.progress": "draws on the terminal",
    "data.streams.stream": "never ends",
    "job_submission": "wants a cluster: tests/engine/jobs",
    "rl.policy": "would train first: docs/rl",
    "testing.network": "wants root: tests/cluster/test_networks.py",
    "train": "names what the pages of docs/train.md run",
    "train.backends": "is a line of a training loop: tests/train",
    "tune.session": "is a line of a trial: docs/tune.md",
}
"""Modules whose examples can not stand alone, and where the same is run."""
SESSIONS = {
    "cluster_utils",
    "engine.process.logging_config",
    "engine.process.session",
    "engine.process.session_context",
}
"""Modules whose examples begin a session."""


def modules_with_examples() -> list[str]:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith("pandas") and ">>> " in path.read_text():
            found.append(name)
    return found


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize("name", [name for name in modules_with_examples() if name not in NOT_RUN.keys() | SESSIONS])
def test_examples_give_what_they_show(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_examples(name, capsys)


def run_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"weft.{name}")
    found = doctest.testmod(module, extraglobs={"weft": weft}, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0, capsys.readouterr().out


def test_what_is_not_run_has_examples() -> None:
    assert set(modules_with_examples()) >= NOT_RUN.keys() | SESSIONS
