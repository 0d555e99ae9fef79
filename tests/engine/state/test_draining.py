"""What a node decides while it is drained, and what the head does about its actors."""

from __future__ import annotations

import pytest
from node_rig import DRIVER, Rig, actor_id, sent

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.draining import what_holds
from weft.engine.state.resources import UNIT
from weft.engine.wire.messages import ExitProcess

THERE = (77, 1)
"""A worker of the other node, as this one knows it."""


def rig(cpus: float = 2) -> Rig:
    """A node beside one that can hold the same."""
    made = Rig({"CPU": cpus})
    own = NodeView(0, "here", {}, {"CPU": int(cpus * UNIT)})
    made.state.cluster = ClusterView(own)
    made.state.cluster.nodes[1] = NodeView(1, "there", {}, {"CPU": 2 * UNIT})
    made.join()
    return made


def test_a_draining_node_asks_its_leases_back_and_grants_nothing() -> None:
    node = rig()
    node.define(1, CPU=1)
    ((lease, _),) = node.want(1)
    done = node.feed(ev.DrainBegun())
    assert [one.lease for one in sent(done, do.RevokeLease)] == [lease]
    assert node.want(2) == []
    node.give_back(lease)
    assert node.want(2) == []
    assert not any(isinstance(one, do.ForkWorker) for one in node.feed(ev.Ticked()))


def test_a_draining_node_sets_no_bundles_aside() -> None:
    node = rig()
    assert node.state.cluster is not None
    node.state.cluster.own.number = 5
    node.state.standing.is_head = False
    node.feed(ev.DrainBegun())
    (answer,) = node.feed(ev.BundlesAsked(b"g", {0: (("CPU", UNIT),)}, 1, True))
    assert answer == do.AnswerBundles(b"g", False, 1)


def there(node: Rig, **fields: object) -> None:
    """An actor that lives on the other node."""
    node.create(1, placement_resources={"CPU": 2.0}, **fields)
    node.feed(ev.ActorPlacedElsewhere(actor_id(1), THERE, 7))
    node.feed(ev.ActorCreated(THERE, actor_id(1), True, b""))


def asked_to_end(done: list[do.Instruction]) -> bool:
    return any(isinstance(one, do.SendMessage) and isinstance(one.message, ExitProcess) for one in done)


@pytest.mark.parametrize(
    ("restarts", "strategy", "cpus_here", "moves"),
    [
        (1, {}, 2, True),
        (-1, {}, 2, True),
        (0, {}, 2, False),
        (1, {}, 1, False),
        (1, {"kind": "node_affinity", "node_id": "there", "soft": False}, 2, False),
        (1, {"kind": "placement_group", "group": "00", "bundle": 0}, 2, False),
    ],
)
def test_an_actor_moves_if_it_may_restart_and_there_is_room(
    restarts: int, strategy: dict[str, object], cpus_here: float, moves: bool
) -> None:
    node = rig(cpus=1)
    there(node, max_restarts=restarts, strategy=strategy)
    assert node.state.cluster is not None
    node.state.cluster.nodes[1].is_draining = True
    node.state.cluster.own.total = {"CPU": int(cpus_here * UNIT)}
    assert asked_to_end(node.feed(ev.ActorsToMove((THERE,)))) is moves
    assert not asked_to_end(node.feed(ev.ActorsToMove((THERE,)))), "it is asked once"


def test_a_move_costs_no_restart() -> None:
    node = rig(cpus=1)
    there(node, max_restarts=1)
    assert node.state.cluster is not None
    node.state.cluster.own.total = {"CPU": 2 * UNIT}
    node.state.cluster.nodes[1].is_draining = True
    node.feed(ev.ActorsToMove((THERE,)))
    node.die(THERE, status=0)
    actor = node.state.actors.by_id[actor_id(1)]
    assert (actor.incarnation, actor.restarts_used) == (1, 0)
    node.feed(ev.ActorPlacedElsewhere(actor_id(1), (78, 1), 8))
    node.feed(ev.ActorCreated((78, 1), actor_id(1), True, b""))
    node.die((78, 1))
    assert (actor.incarnation, actor.restarts_used) == (2, 1)
    node.feed(ev.ActorPlacedElsewhere(actor_id(1), (79, 1), 9))
    node.feed(ev.ActorCreated((79, 1), actor_id(1), True, b""))
    node.die((79, 1))
    assert actor.cause is not None


def test_work_that_is_bound_to_a_draining_node_is_refused() -> None:
    node = rig()
    assert node.state.cluster is not None
    node.state.cluster.nodes[1].is_draining = True
    bound = {"kind": "node_affinity", "node_id": "there", "soft": False}
    assert "is being drained" in node.state.cluster.refusal((), bound)
    assert node.state.cluster.allowed((), {**bound, "soft": True}) == [0]


def test_what_holds_a_node_is_said_for_a_person() -> None:
    node = rig()
    node.define(1, CPU=1)
    node.want(2)
    texts = what_holds(node.state.workers, [], [1001], 2)
    assert [text.split(" (")[0] for text in texts] == [
        "2 tasks run",
        "1 driver is attached",
        "2 submitted jobs run",
    ]
    assert what_holds([], [], [], 0) == []
    assert DRIVER in node.state.drivers
