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
ACTORS = """
import weft
from opentelemetry import trace

@weft.remote
def task(x):
    return x + 1

@weft.remote
class Inner:
    def add(self, x):
        return weft.get(task.remote(self.twice(x)))
    def twice(self, x):
        with trace.get_tracer("user").start_as_current_span("own call"):
            return 2 * x
    def items(self, n):
        for i in range(n):
            with trace.get_tracer("user").start_as_current_span("item"):
                yield i
    @staticmethod
    def still(x):
        return x
    def fails(self):
        raise ValueError("no")

@weft.remote
class Outer:
    def __init__(self):
        self.inner = Inner.remote()
    async def call(self, x):
        with trace.get_tracer("user").start_as_current_span("in the call"):
            return await self.inner.add.remote(x)

weft.init(num_cpus=2)
outer, inner = Outer.options(name="outer").remote(), Inner.options(max_pending_calls=5).remote()
print(weft.get(outer.call.remote(1)), [weft.get(ref) for ref in inner.items.remote(2)], weft.get(inner.still.remote(7)))
print(weft.get(weft.get_actor("outer").call.options(name="named").remote(2)))
try:
    weft.get(inner.fails.remote())
except ValueError:
    print("failed")
try:
    inner.add.remote(1, 2, 3)
except TypeError as error:
    print("refused")
"""


def spans_of(tmp_path: Path, code: str = CODE, **variables: str) -> tuple[str, str, dict[str, dict[str, Any]]]:
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
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=280)
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


def test_calls_of_actors_have_spans_below_their_callers(tmp_path: Path) -> None:
    out, err, spans = spans_of(tmp_path, ACTORS)
    assert (out, err) == ("3 [0, 1] 7\n5\nfailed\nrefused\n", "")
    chain = ["submit Outer.call", "Outer.call", "in the call", "submit Inner.add", "Inner.add", "submit task", "task"]
    assert spans["submit named"]["parent_id"] is None
    for above, below in itertools.pairwise(["submit named", "named", *chain[2:]]):
        assert spans[below]["parent_id"] == spans[above]["context"]["span_id"], (above, below)
        assert spans[below]["context"]["trace_id"] == spans[above]["context"]["trace_id"]
    assert spans["own call"]["parent_id"] == spans["Inner.add"]["context"]["span_id"]
    assert spans["item"]["parent_id"] == spans["Inner.items"]["context"]["span_id"]
    assert spans["Outer.call"]["parent_id"] == spans["submit Outer.call"]["context"]["span_id"]
    assert len(spans["Inner.add"]["attributes"]["weft.actor_id"]) == 32
    assert spans["Inner.fails"]["status"]["status_code"] == "ERROR"
    assert not [name for name in spans if "__" in name]


def test_a_variable_that_makes_no_sense_is_told_at_the_first_task(tmp_path: Path) -> None:
    _, err, spans = spans_of(tmp_path, WEFT_TRACING="tracing_hook")
    assert "WEFT_TRACING must be module:function, but is 'tracing_hook'" in err and spans == {}
