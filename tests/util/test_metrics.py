"""`weft.util.metrics`: what is refused, what travels, and what a node adds up."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import weft
from weft.engine.process.session import rpc
from weft.util.metrics import Counter, Gauge, Histogram


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Counter(""), ValueError),
        (lambda: Counter("x", tag_keys="ab"), TypeError),
        (lambda: Counter("x").inc(0), ValueError),
        (lambda: Counter("x").inc(1, {"no": "tag"}), ValueError),
        (lambda: Counter("x", tag_keys=("a",)).inc(), ValueError),
        (lambda: Counter("x", tag_keys=("a",)).inc(1, {"a": 1}), TypeError),
        (lambda: Gauge("x").set("high"), TypeError),
        (lambda: Histogram("x", boundaries=[2, 1]), ValueError),
        (lambda: Histogram("x", boundaries=[0]), ValueError),
        (lambda: Histogram("x").observe(None), TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_a_metric_travels_and_keeps_its_tags() -> None:
    made = Counter("x", "An x.", ("a", "b")).set_default_tags({"a": "1"})
    assert pickle.loads(pickle.dumps(made)).info == made.info == {
        "name": "x", "description": "An x.", "tag_keys": ("a", "b"), "default_tags": {"a": "1"},
    }  # fmt: skip


@pytest.mark.usefixtures("weft_session")
def test_processes_are_added_up_and_the_dead_are_not_forgotten() -> None:
    hits = Counter("hits", tag_keys=("who",))

    @weft.remote(num_cpus=0)
    class Visitor:
        def visit(self, times: int) -> None:
            for _ in range(times):
                hits.inc(tags={"who": "all"})

    first, second = Visitor.remote(), Visitor.remote()
    weft.get([first.visit.remote(2), second.visit.remote(3)])
    hits.inc(5, {"who": "all"})
    assert _value("hits") == 10
    weft.kill(first)
    weft.get(second.visit.remote(1))
    assert _value("hits") == 11


def _value(name: str) -> float:
    from weft.engine.cluster.client import Client
    from weft.engine.process.session import context_state

    known = Client(context_state.state.address).ask("node_metrics")["user"]
    assert rpc.request("nodes")
    (found,) = [one["value"] for one in known if one["name"] == name]
    return float(found)
