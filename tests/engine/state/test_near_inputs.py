"""Work whose large inputs are on another node: who is asked, how often, and what the process that waits is told."""

from __future__ import annotations

import pytest
from node_rig import DRIVER, Rig, sent

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.asking import Ask, Asking, AskLeases
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.resources import UNIT
from weft.engine.wire.messages import DefineShape

BYTES, MEANT = 1, 2
"""The node that has the inputs, and the one that alone has the resource."""


class Cluster:
    """A node without CPUs between two others, and what it asks of them."""

    def __init__(self) -> None:
        self.rig = Rig({"CPU": 0})
        self.rig.state.cluster = self.view = ClusterView(NodeView(0, "here", {}, {"CPU": 0}))
        self.view.nodes[BYTES] = NodeView(BYTES, "bytes", {"zone": "a"}, {"CPU": UNIT})
        self.view.nodes[MEANT] = NodeView(MEANT, "meant", {"zone": "b"}, {"CPU": UNIT, "meant": UNIT})
        self.rig.join()
        self.asks: list[tuple[int, int]] = []
        """(node, how many), in order."""
        self.asking = Asking(self.rig.state, self._feed, self._send, lambda *_: True, lambda *_: None, lambda *_: None)

    def _feed(self, event: ev.Event) -> None:
        self.rig.feed(event)

    def _send(self, node: int, process: ev.Process, ask: Ask) -> bool:
        if isinstance(ask, AskLeases):
            self.asks.append((node, ask.wanted))
        return True

    def want(self, resources: dict[str, float], strategy: dict[str, str | int | bool]) -> list[do.Instruction]:
        """One worker, for a task with inputs on BYTES."""
        self.rig.feed(ev.ShapeDefined(DRIVER, DefineShape(1, resources, "", strategy, name="f")))
        return self.rig.feed(ev.LeaseRequested(DRIVER, 1, 1, near={BYTES: 1}))

    def told(self, done: list[do.Instruction]) -> list[tuple[int, int, bool]]:
        """(shape, node, for good) of each answer that inputs do not matter."""
        return [(one.shape, one.node, one.for_good) for one in sent(done, do.RefuseNear, DRIVER)]


@pytest.mark.parametrize(
    ("resources", "strategy"),
    [
        ({"CPU": 1, "meant": 1}, {}),
        ({"CPU": 1}, {"kind": "node_affinity", "node_id": "meant", "soft": False}),
        ({"CPU": 1}, {"kind": "default", "labels": '{"zone": "b"}'}),
    ],
)
def test_a_node_that_can_never_run_it_is_named_at_once_and_asked_for_nothing(
    resources: dict[str, float], strategy: dict[str, str | int | bool]
) -> None:
    cluster = Cluster()
    assert cluster.told(cluster.want(resources, strategy)) == [(1, BYTES, 1)]
    cluster.asking.plan()
    assert cluster.asks == [(MEANT, 1)]
    cluster.asking.plan()
    assert cluster.asks == [(MEANT, 1)], "it waits there, and nobody is asked again"
    assert cluster.told(cluster.rig.done) == [(1, BYTES, 1)]


@pytest.mark.parametrize("strategy", [{}, {"priority": 1}, {"kind": "default", "labels": '{"zone": "in(a,b)"}'}])
def test_a_node_that_may_run_it_is_asked_alone(strategy: dict[str, str | int | bool]) -> None:
    cluster = Cluster()
    assert cluster.told(cluster.want({"CPU": 1}, strategy)) == []
    cluster.asking.plan()
    assert cluster.asks == [(BYTES, 1)]
    assert cluster.told(cluster.rig.done) == []


def test_a_node_that_is_full_now_is_still_waited_for_while_another_is_asked() -> None:
    """What runs there may be tasks that read the same inputs: the next ones would rather follow them."""
    cluster = Cluster()
    cluster.want({"CPU": 1}, {})
    cluster.view.nodes[BYTES].available["CPU"] = 0
    cluster.asking.plan()
    cluster.asking.plan()
    assert cluster.asks == [(MEANT, 1)]
    assert cluster.told(cluster.rig.done) == []


def test_a_node_that_has_left_is_not_held_against_the_shape_for_good() -> None:
    cluster = Cluster()
    cluster.view.nodes.pop(BYTES)
    assert cluster.told(cluster.want({"CPU": 1}, {})) == [(1, BYTES, 0)]


def test_of_work_that_is_to_be_spread_inputs_do_not_matter() -> None:
    cluster = Cluster()
    assert cluster.told(cluster.want({"CPU": 1}, {"kind": "spread"})) == [(1, BYTES, 1)]


def test_what_a_dead_process_asked_for_is_forgotten_and_what_others_ask_for_is_not() -> None:
    cluster = Cluster()
    other = (2, 1)
    cluster.rig.join(other, job=2)
    for process in (DRIVER, other):
        cluster.rig.feed(ev.ShapeDefined(process, DefineShape(1, {"CPU": 1}, "", {}, name="f")))
        cluster.rig.feed(ev.LeaseRequested(process, 1, 1))
    cluster.asking.plan()
    assert set(cluster.asking.asked) == {(DRIVER, 1), (other, 1)}
    cluster.asking.process_gone(DRIVER)
    assert set(cluster.asking.asked) == {(other, 1)}
