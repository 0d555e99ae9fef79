"""OpenTelemetry: spans of tasks in one trace with who submitted them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

CODE = """
import weft
from opentelemetry import trace

@weft.remote
def inner(x):
    with trace.get_tracer("user").start_as_current_span("in the task"):
        return x + 1

@weft.remote
def outer(x):
    return weft.get(inner.options(name="renamed").remote(x))

@weft.remote
def fails():
    raise ValueError("no")

weft.init(num_cpus=2)
print(weft.get(outer.remote(1)))
try:
    weft.get(fails.remote())
except ValueError:
    print("failed")
try:
    outer.remote(1, 2, 3)
except TypeError as error:
    print("refused")
"""


def spans_of(tmp_path: Path, **variables: str) -> tuple[str, str, dict[str, dict[str, Any]]]:
    file = tmp_path / "spans"
    file.touch()
    here = str(Path(__file__).parent)
    environment = {
        **os.environ,
        "SPANS": str(file),
        "PYTHONPATH": here,
        "WEFT_TRACING": "tracing_hook:set_up",
        **variables,
    }
    ended = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=100)
    return ended.stdout, ended.stderr, {span["name"]: span for span in map(json.loads, file.read_text().splitlines())}


def test_a_tasks_span_is_the_child_of_its_submission_across_processes(tmp_path: Path) -> None:
    out, err, spans = spans_of(tmp_path)
    assert (out, err) == ("2\nfailed\nrefused\n", "")
    chain = ["submit outer", "outer", "submit renamed", "renamed", "in the task"]
    assert spans[chain[0]]["parent_id"] is None
    for above, below in itertools.pairwise(chain):
        assert spans[below]["parent_id"] == spans[above]["context"]["span_id"], (above, below)
        assert spans[below]["context"]["trace_id"] == spans[above]["context"]["trace_id"]
    assert len(spans["renamed"]["attributes"]["weft.task_id"]) == 32
    assert spans["fails"]["status"]["status_code"] == "ERROR"


def test_a_variable_that_makes_no_sense_is_told_at_the_first_task(tmp_path: Path) -> None:
    _, err, spans = spans_of(tmp_path, WEFT_TRACING="tracing_hook")
    assert "WEFT_TRACING must be module:function, but is 'tracing_hook'" in err and spans == {}
