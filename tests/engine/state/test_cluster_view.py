"""Which node is asked for what."""

from __future__ import annotations

from weft.engine.state.cluster import ClusterView, NodeView, matches_labels
from weft.engine.state.resources import Amounts, to_amounts

ONE_CPU: Amounts = to_amounts({"CPU": 1})


def view(*cpus: float, **extra: dict[int, dict[str, float]]) -> ClusterView:
    """Node 0 is one's own."""
    nodes = [
        NodeView(n, f"id{n}", {"zone": "ab"[n % 2]}, dict(to_amounts({"CPU": c, **extra.get("extra", {}).get(n, {})})))
        for n, c in enumerate(cpus)
    ]
    made = ClusterView(nodes[0])
    for node in nodes:
        made.nodes[node.number] = node
    return made


def plan(
    made: ClusterView,
    wanted: int,
    need: Amounts = ONE_CPU,
    asked: dict[int, int] | None = None,
    **strategy: str | bool,
) -> tuple[dict[int, int], bool, int]:
    return made.plan(need, wanted, strategy, asked or {}, made.free())


def test_what_fits_here_is_not_asked_for_elsewhere() -> None:
    assert plan(view(4, 4), 4) == ({}, True, 0)


def test_the_rest_goes_to_where_most_is_free() -> None:
    made = view(2, 1, 3)
    assert plan(made, 6) == ({1: 1, 2: 3}, True, 0)
    assert plan(made, 4) == ({2: 2}, True, 0)


def test_nobody_is_asked_when_nothing_is_free_and_this_node_could_serve_it() -> None:
    made = view(1, 1)
    for node in made.nodes.values():
        node.available["CPU"] = 0
    assert plan(made, 3) == ({}, True, 0)
    assert plan(made, 3, asked={1: 2}) == ({1: 2}, True, 0), "what waits there may go on waiting"


def test_what_does_not_fit_here_waits_where_it_would() -> None:
    made = view(1, 4, 8)
    need = to_amounts({"CPU": 4})
    for node in made.nodes.values():
        node.available["CPU"] = 0
    made.nodes[2].queued = 5
    asked, is_local, _ = plan(made, 3, need)
    assert (asked, is_local) == ({1: 2, 2: 1}, False)
    made.nodes[2].available["CPU"] = 80_000
    assert plan(made, 3, need, asked) == ({1: 1, 2: 2}, False, 0), "it moves to where there is room"


def test_what_no_node_can_hold_is_asked_of_nobody() -> None:
    assert plan(view(1, 2), 1, to_amounts({"CPU": 3})) == ({}, False, 0)
    assert plan(view(1, 2), 1, to_amounts({"disk": 1})) == ({}, False, 0)


def test_one_round_does_not_promise_the_same_room_twice() -> None:
    made = view(0, 2)
    free = made.free()
    assert made.plan(ONE_CPU, 2, {}, {}, free)[0] == {1: 2}
    assert free[1]["CPU"] == 0


def test_spread_goes_round() -> None:
    made = view(8, 8, 8)
    asked, is_local, away = plan(made, 6, kind="spread")
    assert (sum(asked.values()), is_local, away) == (4, True, 4)
    assert set(asked.values()) == {2}
    assert plan(made, 3, asked=asked, kind="spread")[2] <= 3


def test_affinity_means_one_node() -> None:
    made = view(1, 1, 1)
    assert plan(made, 2, kind="node_affinity", node_id="id2", soft=False) == ({2: 2}, False, 0)
    assert plan(made, 1, kind="node_affinity", node_id="id0", soft=False) == ({}, True, 0)
    assert plan(made, 1, kind="node_affinity", node_id="gone", soft=True) == ({}, True, 0)
    assert "is not alive" in made.refusal(ONE_CPU, {"kind": "node_affinity", "node_id": "gone", "soft": False})
    bound = {"kind": "node_affinity", "node_id": "id2", "soft": False, "fail_on_unavailable": True}
    assert made.refusal(ONE_CPU, bound) == ""
    made.nodes[2].available["CPU"] = 0
    assert "not to wait" in made.refusal(ONE_CPU, bound)
    assert plan(made, 1, kind="node_affinity", node_id="id2", soft=True, spill_on_unavailable=True) == ({}, True, 0)


def test_labels_choose_nodes() -> None:
    made = view(1, 1, 1)
    assert plan(made, 1, labels='{"zone": "b"}') == ({1: 1}, False, 0)
    assert plan(made, 1, kind="node_label", hard='{"zone": ["not_in", ["a"]]}', soft_labels="{}") == ({1: 1}, False, 0)
    assert matches_labels({"zone": "!in(a,b)"}, {"zone": "c"})
    assert not matches_labels({"zone": "!in(a,b)"}, {"zone": "b"})


def test_other_labels_count_where_no_node_that_can_hold_it_has_the_first() -> None:
    made = view(1, 1, 4)
    strategy = {"labels": '{"zone": "b"}', "fallbacks": '[{"zone": "c"}, {"zone": "a"}]'}
    assert made.allowed(ONE_CPU, strategy) == [1]
    assert made.allowed(to_amounts({"CPU": 2}), strategy) == [2]
    assert made.allowed(to_amounts({"CPU": 8}), strategy) == []


def test_a_node_is_found_by_its_id_among_the_labels() -> None:
    made = view(1, 1)
    assert made.allowed((), {"labels": '{"ray.io/node-id": "id1"}'}) == [1]
    assert made.allowed((), {"labels": '{"ray.io/node_id": "id1"}'}) == [1]


def test_what_has_waited_queues_on_other_nodes_though_this_one_could_serve_it() -> None:
    made = view(1, 1, 1)
    for node in made.nodes.values():
        node.available["CPU"] = 0
    assert made.plan(ONE_CPU, 4, {}, {}, made.free(), has_waited=True) == ({1: 2, 2: 2}, True, 0)
    assert made.plan(ONE_CPU, 4, {}, {1: 2, 2: 2}, made.free()) == ({1: 2, 2: 2}, True, 0), "and goes on waiting there"


def test_a_share_leaves_room_for_other_jobs() -> None:
    made = view(2, 4)
    free = made.free()
    assert made.room(ONE_CPU, free) == 6
    assert made.plan(ONE_CPU, 100, {}, {}, free, share=3) == ({1: 1}, True, 0)
    assert made.plan(ONE_CPU, 100, {}, {}, free, share=3) == ({1: 3}, True, 0), "the second job has the rest"


def test_a_node_that_has_the_bytes_is_asked_first_if_it_has_room() -> None:
    for own_cpus, is_local in ((0, False), (1, True)):
        made = view(own_cpus, 1, 1)
        for number in (1, 2):
            near = {number: 1}
            assert made.plan(ONE_CPU, 1, {}, {}, made.free(), near=near) == ({number: 1}, is_local, 1)
    made = view(0, 1, 1)
    made.nodes[2].available["CPU"] = 0
    assert made.plan(ONE_CPU, 1, {}, {}, made.free(), near={2: 1}) == ({1: 1}, False, 0)
