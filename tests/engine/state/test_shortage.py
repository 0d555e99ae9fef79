"""Why work waits, said of each node."""

from __future__ import annotations

import json

import pytest

from weft.engine.state.cluster import NodeView
from weft.engine.state.demands import Demand, DemandQueue
from weft.engine.state.placement import GroupTable
from weft.engine.state.resources import UNIT, to_amounts
from weft.engine.state.shortage import LATER, NEVER, NOW, demand_rows, group_reason, group_rows, reason, why_waiting
from weft.engine.wire.messages import CreateGroup


def node(number: int, cpus: float, free: float, **labels: str) -> NodeView:
    view = NodeView(number, f"n{number}", labels, {"CPU": int(cpus * UNIT)})
    view.available = {"CPU": int(free * UNIT)}
    return view


NODES = [node(0, 1, 1), node(1, 4, 1, zone="a"), node(2, 4, 3, zone="b")]


@pytest.mark.parametrize(
    ("cpus", "strategy", "fits", "why"),
    [
        (2, {}, [NEVER, LATER, NOW], ["has 1 CPU in all, and 2 are wanted", "has 1 CPU free", "there is room"]),
        (9, {}, [NEVER, NEVER, NEVER], ["1 CPU in all", "4 CPU in all", "4 CPU in all"]),
        (1, {"kind": "node_affinity", "node_id": "n1"}, [NEVER, NOW, NEVER], ["bound to node n1", "room", "bound to"]),
        (1, {"labels": json.dumps({"zone": "b"})}, [NEVER, NEVER, NOW], ["labels", "labels", "room"]),
    ],
)
def test_each_node_is_given_its_reason(cpus: float, strategy: dict[str, str], fits: list[str], why: list[str]) -> None:
    rows = why_waiting(to_amounts({"CPU": cpus}), strategy, NODES)
    assert [row.fits for row in rows] == fits
    for row, text in zip(rows, why, strict=True):
        assert text in row.why


def test_how_much_is_missing_is_said_in_numbers() -> None:
    rows = why_waiting(to_amounts({"CPU": 2, "disk": 1}), {}, NODES)
    assert rows[1].missing == {"disk": 1.0}
    assert why_waiting(to_amounts({"CPU": 2}), {}, NODES)[1].missing == {"CPU": 1.0}


def test_a_node_that_is_drained_or_dead_takes_nothing() -> None:
    drained, dead = node(0, 4, 4), node(1, 4, 4)
    drained.is_draining, dead.is_alive = True, False
    (row,) = why_waiting(to_amounts({"CPU": 1}), {}, [drained, dead])
    assert (row.fits, "drained" in row.why) == (NEVER, True)


def test_what_is_alike_is_one_row_and_what_others_ask_for_is_theirs() -> None:
    queue = DemandQueue()
    need = to_amounts({"CPU": 2})
    for process in ((1, 1), (2, 1), (3, 1)):
        queue.want(Demand((process, 0), 1, process, 0, need, need, ""), 2)
    queue.want(Demand(b"actor", 1, (0, 0), 0, need, (), ""), 1)
    queue.tick()
    rows = demand_rows(queue, {(3, 1): 7}, NODES)
    assert [(row.kind, row.count, row.waits_s, row.fits) for row in rows] == [("task", 4, 1, NOW), ("actor", 1, 1, NOW)]
    assert rows[0].resources == {"CPU": 2.0}


def test_the_reason_names_what_is_asked_for_and_what_each_node_has() -> None:
    told = reason(to_amounts({"CPU": 9, "memory": 2 << 30}), {}, NODES)
    assert told.startswith("it asks for 9 CPU, 2.00 GiB memory, which no node can ever hold as the cluster is; node n0")
    assert "it has 4 CPU in all, and 9 are wanted; it has 0.00 GiB memory in all, and 2.00 GiB are wanted" in told
    assert "no node can ever" not in reason(to_amounts({"CPU": 4}), {}, NODES)
    many = reason(to_amounts({"CPU": 9}), {}, [node(number, 1, 1) for number in range(100)])
    assert many.endswith("; and 96 more nodes") and len(many) < 400
    assert "its placement group abcdef01" in reason(to_amounts({"CPU": 1}), {"group": "abcdef0123"}, NODES)


def test_a_placement_group_shows_the_bundles_that_have_no_place() -> None:
    table = GroupTable()
    group = table.create(CreateGroup(b"g" * 18, [{"CPU": 3}, {"CPU": 3}, {"CPU": 3}], "STRICT_SPREAD"), (1, 1), 1)
    assert group is not None
    (row,) = group_rows([group], NODES)
    assert (row.kind, row.fits, row.bundles) == ("placement group", NEVER, [{"CPU": 3.0}] * 3)
    told = group_reason(group, NODES)
    assert "3 of its bundles have no place" in told and "no node can ever hold" in told and "node n0" in told
