"""Several troubles at once, or one at a bad moment: nodes that are cut off while another takes over or joins, cables
that are out and in again, loss in one direction. Seeds from 5,000,000 on; what must hold is what must hold for one
node's trouble. Of five nodes or six at most two are in trouble: where most are, all end (page 2).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from weft.testing.simulate.faults import FOUND_AGAIN_S, STORE_UP_S, Fault, _is_faulty, _rng, _when

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode
    from weft.testing.simulate.simulation import Simulation

SETTLED_S = 40.0
"""After the last trouble has ended."""


def _length(rng: random.Random) -> float:
    return rng.choice((rng.uniform(0.5, 5.0), rng.uniform(5.5, 8.5), rng.uniform(8.5, 12.5), 20.0))


def _joined(simulation: Simulation) -> list[SimNode]:
    return [node for node in simulation.up() if node.has_joined]


def _choose(simulation: Simulation, rng: random.Random, count: int) -> list[SimNode]:
    """Some nodes, the head among them at times."""
    nodes = _joined(simulation)
    chosen = rng.sample(nodes, min(count, len(nodes) - 1))
    simulation.troubled += chosen
    if any(node.shell.is_head for node in chosen):
        simulation.most_epoch = 1 + count
    return chosen


def two_unplugged(simulation: Simulation) -> None:
    """Two nodes' cables are out; they reach each other, or do not."""
    rng = _rng(simulation, 20)
    start, length = STORE_UP_S + _when(rng), _length(rng)
    _is_faulty(simulation, start + length + SETTLED_S)

    def strike() -> None:
        apart = rng.random() < 0.5
        chosen = _choose(simulation, rng, 2)
        simulation.network.partition({node.address: 1 + apart * at for at, node in enumerate(chosen)})
        simulation.clock.after(length, simulation.network.heal, FOUND_AGAIN_S)

    simulation.clock.after(start, strike)


def two_stopped(simulation: Simulation) -> None:
    """Two daemons stand still, each for a time of its own."""
    rng = _rng(simulation, 21)
    start, lengths = STORE_UP_S + _when(rng), (_length(rng), _length(rng))
    _is_faulty(simulation, start + sum(lengths) + SETTLED_S)

    def strike() -> None:
        one, *others = _choose(simulation, rng, 2)
        one.stand_still(lengths[0])
        for other in others:
            simulation.clock.after(rng.uniform(0.0, lengths[0]), _stand_still, other, lengths[1])

    simulation.clock.after(start, strike)


def _stand_still(node: SimNode, seconds: float) -> None:
    if node.is_up:
        node.stand_still(seconds)


def unplugged_in_takeover(simulation: Simulation) -> None:
    """The head is killed, and before or after another has taken over a third one's cable is out."""
    rng = _rng(simulation, 22)
    start, length = STORE_UP_S + _when(rng), _length(rng)
    _is_faulty(simulation, start + 4.0 + length + SETTLED_S)

    def strike() -> None:
        heads = [node for node in _joined(simulation) if node.shell.is_head]
        simulation.troubled += heads
        simulation.most_epoch = 3
        for head in heads:
            simulation.is_end_forced = not simulation.store.outlives(head)
            if rng.random() < 0.5:
                head.crash()
            else:
                head.end()
        simulation.clock.after(rng.uniform(0.0, 4.0), cut)

    def cut() -> None:
        node = rng.choice(_joined(simulation))
        simulation.troubled.append(node)
        simulation.network.partition({node.address: 1})
        simulation.clock.after(length, simulation.network.heal, FOUND_AGAIN_S)

    simulation.clock.after(start, strike)


def unplugged_in_join(simulation: Simulation) -> None:
    """A node joins, and its cable, or another's, is out before it is in or soon after."""
    rng = _rng(simulation, 23)
    start, length = STORE_UP_S + _when(rng), _length(rng)
    _is_faulty(simulation, start + 1.0 + length + SETTLED_S)

    def strike() -> None:
        simulation.add_node(len(simulation.nodes))
        late = simulation.nodes[-1]
        simulation.troubled.append(late)
        simulation.clock.after(rng.uniform(0.0, 0.01) if rng.random() < 0.5 else rng.uniform(0.0, 1.0), cut, late)

    def cut(late: SimNode) -> None:
        node = late if rng.random() < 0.6 else _choose(simulation, rng, 1)[0]
        simulation.network.partition({node.address: 1})
        simulation.clock.after(length, simulation.network.heal, FOUND_AGAIN_S)

    simulation.clock.after(start, strike)


def flapping(simulation: Simulation) -> None:
    """One machine's cable is out and in again, a few times, also once it has come back as a new node."""
    rng = _rng(simulation, 24)
    start, count = STORE_UP_S + _when(rng), rng.randint(2, 5)
    times = [(rng.uniform(0.2, 8.0), rng.uniform(0.2, 4.0)) for _ in range(count)]
    _is_faulty(simulation, start + sum(map(sum, times)) + SETTLED_S)
    chosen: list[SimNode] = []

    def out(index: int) -> None:
        here = [node for node in simulation.up() if node.index == index]
        simulation.network.partition({node.address: 1 for node in here})
        simulation.troubled += here

    def strike() -> None:
        chosen.extend(_choose(simulation, rng, 1))
        if chosen[0].shell.is_head:
            simulation.most_epoch = 1 + count
        at = 0.0
        for gone_s, back_s in times:
            simulation.clock.after(at, out, chosen[0].index)
            simulation.clock.after(at + gone_s, simulation.network.heal, FOUND_AGAIN_S)
            at += gone_s + back_s

    simulation.clock.after(start, strike)


def one_way(simulation: Simulation) -> None:
    """What one node sends to one other is lost; all else arrives."""
    rng = _rng(simulation, 25)
    start, length = STORE_UP_S + _when(rng), _length(rng)
    _is_faulty(simulation, start + length + SETTLED_S)

    def strike() -> None:
        one, other = rng.sample(_joined(simulation), 2)
        simulation.troubled += [one, other]
        if one.shell.is_head or other.shell.is_head:
            simulation.most_epoch = 2
        simulation.network.lose(one.address, other.address)
        simulation.clock.after(length, simulation.network.heal, FOUND_AGAIN_S)

    simulation.clock.after(start, strike)


AT_ONCE: dict[str, Fault] = {
    "unplug-two": two_unplugged,
    "stop-two": two_stopped,
    "unplug-in-takeover": unplugged_in_takeover,
    "unplug-in-join": unplugged_in_join,
    "flap": flapping,
    "one-way": one_way,
}
