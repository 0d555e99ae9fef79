"""What goes wrong in a simulated cluster, when, at the seed's choice. Every fault ends; then all must be well again.

The head is spared unless a fault says otherwise (`HEAD_FAULTS`), for it costs the programs that run there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from weft.engine.state.hearing import SILENCE_S
from weft.testing.simulate.clock import NodeLoop

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode
    from weft.testing.simulate.simulation import Simulation

LATEST_S = 3.0
"""Faults begin within so long after the work has begun; most while it is young."""
PULSE_S = 5.0
"""A connection that carries nothing is replaced within so long."""
FOUND_AGAIN_S = 1.5
"""After a cut the two ends of a link have found each other within so long."""
STORE_UP_S = 2.0
"""Faults of the head begin when the control store's servers are up, and so does the work."""
Fault: TypeAlias = "Callable[[Simulation], None]"


def _rng(simulation: Simulation, salt: int) -> random.Random:
    return random.Random(simulation.plan.seed * 31 + salt)


def _when(rng: random.Random) -> float:
    return float(LATEST_S * 10 ** rng.uniform(-3.5, 0))


def _others(simulation: Simulation) -> list[SimNode]:
    """The nodes that may be lost: not the head."""
    return [node for node in simulation.up() if node.has_joined and not node.shell.is_head]


def _is_faulty(simulation: Simulation, until_s: float) -> None:
    simulation.has_faults = True
    simulation.faults_end = max(simulation.faults_end, simulation.clock.now + until_s)


def worker_kills(simulation: Simulation) -> None:
    """Workers, actors among them, are killed one after another."""
    rng = _rng(simulation, 1)
    _is_faulty(simulation, LATEST_S)

    def kill() -> None:
        nodes = simulation.up()
        node = nodes[rng.randrange(len(nodes))]
        workers = [process for process in node.processes.values() if process.is_worker and not process.is_dead]
        if workers:
            node.process_exits(workers[rng.randrange(len(workers))], -9)

    for _ in range(rng.randint(1, 6)):
        simulation.clock.after(_when(rng), kill)


def driver_kills(simulation: Simulation) -> None:
    """A driver is killed: all that it had must be given back."""
    rng = _rng(simulation, 2)
    _is_faulty(simulation, LATEST_S)

    def kill() -> None:
        living = [driver for driver in simulation.drivers if not driver.is_dead]
        if living:
            driver = living[rng.randrange(len(living))]
            driver.node.process_exits(driver, -9)

    simulation.clock.after(_when(rng), kill)


def crashes(simulation: Simulation) -> None:
    """Machines vanish (nobody closes their connections) or their daemons die, and some come back as new nodes."""
    rng = _rng(simulation, 3)
    count = rng.randint(1, max(1, len(simulation.nodes) // 3))
    _is_faulty(simulation, LATEST_S + 20.0)

    def crash() -> None:
        nodes = _others(simulation)
        if not nodes:
            return
        node = nodes[rng.randrange(len(nodes))]
        if rng.random() < 0.5:
            node.crash()
        else:
            node.end()
        if rng.random() < 0.6:
            simulation.clock.after(rng.random() * 2, simulation.add_node, node.index)

    for _ in range(count):
        simulation.clock.after(_when(rng), crash)


def partitions(simulation: Simulation) -> None:
    """The network falls into two parts for shorter or longer than silence is borne."""
    rng = _rng(simulation, 4)
    length = rng.choice((0.5, 5.0, 14.0, 20.0, 35.0))
    begin = _when(rng)
    _is_faulty(simulation, begin + length + 5.0)

    def part() -> None:
        apart = [node for node in _others(simulation) if rng.random() < 0.4]
        simulation.network.partition({node.address: 1 for node in apart})

    simulation.clock.after(begin, part)
    simulation.clock.after(begin + length, simulation.network.heal)


def cuts(simulation: Simulation) -> None:
    """Single links between nodes that both reach the head are cut for a while, some until only one side has noticed."""
    rng = _rng(simulation, 5)
    length = rng.choice((1.0, rng.uniform(SILENCE_S, SILENCE_S + 2.5), 16.0, 40.0))
    begin = _when(rng)
    _is_faulty(simulation, begin + length + 5.0)

    def cut() -> None:
        nodes = _others(simulation)
        for one in nodes:
            for other in nodes:
                if one.index < other.index and rng.random() < 0.3:
                    simulation.network.cut(one.address, other.address)

    simulation.clock.after(begin, cut)
    simulation.clock.after(begin + length, simulation.network.heal)


def churn(simulation: Simulation) -> None:
    """Nodes join and leave in order all the time."""
    rng = _rng(simulation, 6)
    _is_faulty(simulation, LATEST_S + 20.0)

    def join() -> None:
        simulation.add_node(len(simulation.nodes))

    def leave() -> None:
        nodes = _others(simulation)
        if len(nodes) > 1:
            nodes[rng.randrange(len(nodes))].leave()

    for _ in range(rng.randint(2, 8)):
        simulation.clock.after(_when(rng), rng.choice((join, leave)))


def head_crashes(simulation: Simulation) -> None:
    """The acting head's machine vanishes, or its daemon dies; so may the next one. Some come back as new nodes."""
    rng = _rng(simulation, 7)
    count = rng.choice((1, 1, 2)) if len(simulation.nodes) > 4 else 1
    begin = STORE_UP_S + _when(rng)
    _is_faulty(simulation, begin + 50.0 * (count - 1) + 100.0)

    def crash() -> None:
        for node in simulation.up():
            if node.has_joined and node.shell.heading.is_serving:
                if rng.random() < 0.5:
                    node.crash()
                else:
                    node.end()
                if rng.random() < 0.5:
                    simulation.clock.after(rng.random() * 2, simulation.add_node, node.index)
                return

    for number in range(count):
        simulation.clock.after(begin + number * 50.0, crash)


def head_resigns(simulation: Simulation) -> None:
    """The acting head is asked to end, as for maintenance; so may be the next one. Some come back as new nodes."""
    rng = _rng(simulation, 9)
    count = rng.choice((1, 1, 2, 3)) if len(simulation.nodes) > 4 else 1
    begin = STORE_UP_S + _when(rng)
    _is_faulty(simulation, begin + 10.0 * (count - 1) + 30.0)

    def resign() -> None:
        for node in simulation.up():
            if node.has_joined and node.shell.heading.is_serving:
                node.leave()
                if rng.random() < 0.5:
                    simulation.clock.after(rng.random() * 2, simulation.add_node, node.index)
                return

    for number in range(count):
        simulation.clock.after(begin + number * 10.0, resign)


def head_partitions(simulation: Simulation) -> None:
    """The acting head is cut off with some of the others, for shorter or longer than silence is borne."""
    rng = _rng(simulation, 8)
    length = rng.choice((0.5, 5.0, 20.0, 50.0, 120.0))
    begin = STORE_UP_S + _when(rng)
    _is_faulty(simulation, begin + length + 90.0)

    def part() -> None:
        apart = [node for node in simulation.up() if node.shell.is_head or rng.random() < 0.3]
        simulation.network.partition({node.address: 1 for node in apart})

    simulation.clock.after(begin, part)
    simulation.clock.after(begin + length, simulation.network.heal)


def _trouble(simulation: Simulation, salt: int, begin: Callable[[SimNode, random.Random, float], None]) -> None:
    """Something is done to one node, the acting head or another, for a while; nothing to all others."""
    rng = _rng(simulation, salt)
    length = rng.choice((rng.uniform(0.5, 5.0), rng.uniform(5.5, 8.5), rng.uniform(8.5, 12.5), 20.0))
    start = STORE_UP_S + _when(rng)
    _is_faulty(simulation, start + length + 40.0)

    def strike() -> None:
        nodes = [node for node in simulation.up() if node.has_joined]
        heads = [node for node in nodes if node.shell.is_head]
        node = heads[0] if heads and rng.random() < 0.4 else rng.choice(nodes)
        simulation.troubled = [node]
        simulation.most_epoch = 2 if node.shell.is_head else 1
        begin(node, rng, length)
        simulation.clock.after(length, simulation.network.heal, FOUND_AGAIN_S)

    simulation.clock.after(start, strike)


def node_unplugged(simulation: Simulation) -> None:
    """One node's cable is out."""
    _trouble(simulation, 10, lambda node, rng, length: simulation.network.partition({node.address: 1}))


def node_muted(simulation: Simulation) -> None:
    """What one node sends is lost; it hears the others."""
    _trouble(simulation, 11, lambda node, rng, length: simulation.network.mute(node.address))


def daemon_stopped(simulation: Simulation) -> None:
    """One daemon stands still; its machine answers for it that it listens."""
    _trouble(simulation, 12, lambda node, rng, length: node.stand_still(length))


def line_dead(simulation: Simulation) -> None:
    """The connection between two nodes carries nothing until both have noticed and made another."""

    def cut(node: SimNode, rng: random.Random, length: float) -> None:
        other = rng.choice([one for one in simulation.up() if one is not node])
        simulation.network.cut(node.address, other.address)
        simulation.clock.after(min(length, PULSE_S), simulation.network.heal, FOUND_AGAIN_S)

    _trouble(simulation, 13, cut)


def clock_jumped(simulation: Simulation) -> None:
    """One node's clock leaps ahead, as when its machine was moved; once more while it may be about to take over."""

    def jump(node: SimNode, rng: random.Random, length: float) -> None:
        loop = cast(NodeLoop, node.daemon.loop)
        loop.jump(length)
        simulation.clock.after(rng.uniform(0.0, 8.0), loop.jump, length)

    _trouble(simulation, 14, jump)


def killed_while_cut(simulation: Simulation) -> None:
    """One node's cable is out, and before it is back the node is killed: what it had sent is delivered afterwards."""

    def cut(node: SimNode, rng: random.Random, length: float) -> None:
        def kill() -> None:
            simulation.is_end_forced = node.shell.is_head and not simulation.store.outlives(node)
            node.crash()

        simulation.network.partition({node.address: 1})
        simulation.clock.after(rng.uniform(0.0, length), kill)

    _trouble(simulation, 15, cut)


TROUBLES: dict[str, Fault] = {
    "unplug-one": node_unplugged,
    "mute-one": node_muted,
    "stop-one": daemon_stopped,
    "dead-line": line_dead,
    "clock-jump": clock_jumped,
    "kill-while-cut": killed_while_cut,
}
HEAD_FAULTS: dict[str, Fault] = {
    "crash-head": head_crashes,
    "cut-head-off": head_partitions,
    "resign-head": head_resigns,
}
FAULTS: dict[str, Fault] = {
    "kill-workers": worker_kills,
    "kill-drivers": driver_kills,
    "crash": crashes,
    "partition": partitions,
    "cut": cuts,
    "churn": churn,
}
ALL_FAULTS = {**FAULTS, **HEAD_FAULTS, **TROUBLES}
"""Faults of the network's quality (loss, latency), of slow nodes and of wrong clocks are parts of the plan."""
