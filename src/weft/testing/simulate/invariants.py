"""What must hold in a simulated cluster: after each event on a node, and when all programs are over.

SIM-1  a daemon's own invariants hold (resources add up, nothing is over-committed, leases and workers agree, ...).
SIM-2  every program ends: no wait is for ever.
SIM-3  each task's result is taken exactly once; none is executed twice, unless an execution was lost in between.
SIM-4  without faults no task fails.
SIM-5  at the end nothing is held: every lease has come back, no demand waits, all resources are free.
SIM-6  a placed group has all of its bundles, one that is gone has none.
SIM-7  once faults are over, all nodes that are up know each other as they are.
SIM-8  at any moment at most one node serves as head, whatever was lost or cut off.
SIM-9  no daemon finds a record of a process, or a message of another daemon, senseless.
SIM-10 no task waits long in a worker, behind another that is long or blocked.
SIM-11 one node's trouble is that node's: no other node ends, and no head that is well is taken over from. Unless a head
       is lost for good whose control store does not outlive it, because its cluster is a second old.
SIM-12 at the end each slot and each ring is of processes that live.
SIM-13 a node in trouble that the cluster went on without is back at the end, as a new one. One that was never in, since
       its cable was out while it joined, has told its launcher so and ended.
SIM-14 once faults are over, the head stays the head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode
    from weft.testing.simulate.simulation import Simulation


class Broken(msgspec.Struct, frozen=True):
    """An invariant that does not hold."""

    name: str
    text: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.name} at {self.at_s:.6f} s: {self.text}"


def of_node(simulation: Simulation, node: SimNode) -> list[Broken]:
    """After an event on that node."""
    try:
        node.daemon.state.check()
    except AssertionError as error:
        return [Broken("SIM-1", f"node {node.number}: {error}", simulation.clock.now)]
    return []


def of_heads(simulation: Simulation) -> list[Broken]:
    """After an event on a node that serves as head."""
    heads = [node.number for node in simulation.up() if node.has_joined and node.shell.heading.is_serving]
    return [Broken("SIM-8", f"the nodes {heads} serve as head", simulation.clock.now)] if len(heads) > 1 else []


def at_end(simulation: Simulation) -> list[Broken]:
    if simulation.broken:
        return []
    texts: list[tuple[str, str]] = []
    texts += _programs(simulation)
    texts += _tasks(simulation)
    if not texts and not simulation.programs:
        texts += _leftovers(simulation)
        texts += _limits(simulation)
        texts += _groups(simulation)
        texts += _views(simulation)
    texts += _bystanders(simulation)
    if simulation.lending is not None:
        texts += simulation.lending.broken()
    senseless = [line for line in simulation.log.splitlines() if "makes no sense" in line or "malformed" in line]
    texts += [("SIM-9", line) for line in senseless[:3]]
    found = [Broken(name, text, simulation.clock.now) for name, text in texts]
    for node in simulation.up():
        found += of_node(simulation, node)
    return found


def _bystanders(simulation: Simulation) -> list[tuple[str, str]]:
    """Where a fault was that of some nodes alone."""
    if not simulation.troubled or simulation.is_end_forced:
        return []
    troubled = {node.index for node in simulation.troubled}
    found = [
        ("SIM-11", f"node {node.number}, to which nothing was done, has ended: {node.daemon.error or 'it was let go'}")
        for node in simulation.nodes
        if not node.is_up and node.index not in troubled
    ]
    back = {node.index for node in simulation.up() if node.has_joined}
    for node in simulation.troubled if simulation.plan.left_behind_return else ():
        was_in = node.has_joined or node.comes_back
        if node.daemon.error and was_in and node.index not in back:
            found.append(("SIM-13", f"node {node.number} was left behind, and is not back: {node.daemon.error}"))
    epoch, most = simulation.epoch, simulation.most_epoch
    if epoch > most:
        found.append(("SIM-11", f"epoch {epoch} was reached, where {most} would do"))
    if not any(node.shell.heading.is_serving for node in simulation.up()):
        found.append(("SIM-11", "no node serves as head"))
    return found


def _programs(simulation: Simulation) -> list[tuple[str, str]]:
    if simulation._on_formed is not None:
        joined = len(simulation.by_number)
        return [("SIM-2", f"the cluster was not formed: {joined} of {simulation.plan.nodes} nodes have joined")]
    if _is_too_small(simulation):
        return []
    found = []
    for driver in simulation.drivers:
        if not driver.is_over and driver.node.is_up and not driver.is_dead:
            found.append(("SIM-2", f"the program on node {driver.node.number} waits for ever: {_why(simulation)}"))
            break
    return found


def _is_too_small(simulation: Simulation) -> bool:
    """Whether faults have left less than the program needs: a group or an actor waits for a cluster that may grow."""
    head = next((node for node in simulation.up() if node.shell.is_head), None)
    if head is None or not simulation.has_faults:
        return False
    state = head.daemon.state
    waiting = any(group.is_waiting for group in state.groups.living.values())
    waiting = waiting or any(
        isinstance(demand.key, bytes) and demand.wanted for demand in state.demands.by_key.values()
    )
    return waiting and len(simulation.up()) <= simulation.plan.nodes


def _why(simulation: Simulation) -> str:
    """What still waits, in words."""
    parts = []
    for bunch in simulation.bunches:
        if not bunch.is_done and not bunch.owner.is_dead:
            where = "an actor" if bunch.actor is not None else "workers"
            parts.append(f"{bunch.count - bunch.done} of {bunch.count} tasks {bunch.function.name} for {where}")
    full = [node for node in simulation.up() if node.port.is_full]
    parts += [
        f"node {node.number} has no room for another process: {node.machine.processes} slots" for node in full[:3]
    ]
    for node in simulation.up():
        for demand in node.daemon.state.demands.pending():
            free = {name: amount / 10_000 for name, amount in node.daemon.state.resources.available.items()}
            parts.append(f"node {node.number}: {demand.key!r} wants {demand.wanted}, free {free}")
    return "; ".join(parts[:6]) or "nothing is pending"


def _tasks(simulation: Simulation) -> list[tuple[str, str]]:
    found = []
    for bunch in simulation.bunches:
        name = bunch.function.name
        if bunch.completed is not None and any(times != 1 for times in bunch.completed.values()):
            twice = [index for index, times in bunch.completed.items() if times != 1]
            found.append(("SIM-3", f"results of {name} were taken more than once: {twice[:5]}"))
        if bunch.done > bunch.count:
            found.append(("SIM-3", f"{bunch.done} results of {bunch.count} tasks {name}"))
        if bunch.started > bunch.count + bunch.lost:
            lost = f"{bunch.lost} were lost"
            found.append(("SIM-3", f"{bunch.started} executions of {bunch.count} tasks {name}, of which {lost}"))
        if bunch.is_done and bunch.started < bunch.count - bunch.failed:
            found.append(("SIM-3", f"only {bunch.started} executions of {bunch.count} tasks {name} that are done"))
        if bunch.failed and not simulation.has_faults:
            found.append(("SIM-4", f"{bunch.failed} of {bunch.count} tasks {name} failed"))
    return found


def _leftovers(simulation: Simulation) -> list[tuple[str, str]]:
    found = []
    for node in simulation.up():
        state = node.daemon.state
        if state.leases.by_id:
            found.append(("SIM-5", f"node {node.number} has {len(state.leases.by_id)} leases that never came back"))
        waiting = [demand for demand in state.demands.by_key.values() if demand.wanted]
        if waiting:
            keys = [(demand.key, demand.wanted) for demand in waiting[:3]]
            found.append(("SIM-5", f"on node {node.number} {len(waiting)} demands still wait: {keys!r}"))
        short = {name: amount - state.resources.available[name] for name, amount in state.resources.total.items()}
        if any(short.values()):
            found.append(("SIM-5", f"on node {node.number} is not free again (in 1/10,000): {short}"))
        if unsettled := node.daemon.inheritance.unsettled:
            found.append(("SIM-5", f"on node {node.number} {len(unsettled)} deaths were never settled"))
        if node.shell.asking.asked:
            found.append(("SIM-5", f"node {node.number} still asks others: {node.shell.asking.asked}"))
    return found


def _limits(simulation: Simulation) -> list[tuple[str, str]]:
    found = []
    for node in simulation.up():
        living = sum(not process.is_dead for process in node.processes.values())
        if node.port.used != living:
            found.append(("SIM-12", f"node {node.number} has {node.port.used} slots in use for {living} processes"))
        if node.rings and living < 2:
            found.append(("SIM-12", f"node {node.number} has {node.rings} rings between {living} processes"))
    return found


def _groups(simulation: Simulation) -> list[tuple[str, str]]:
    found = []
    for node in simulation.up():
        held = list(node.daemon.state.bundles.holdings())
        if held:
            found.append(("SIM-6", f"node {node.number} still holds {len(held)} bundles of groups that are gone"))
    return found


def _views(simulation: Simulation) -> list[tuple[str, str]]:
    if simulation.crowd is not None:
        return []
    found = []
    up = {node.number: node for node in simulation.up() if node.has_joined}
    heads = [node.number for node in up.values() if node.shell.is_head]
    if len(heads) > 1:
        found.append(("SIM-8", f"there are {len(heads)} heads: {heads}"))
    for node in up.values():
        cluster = node.daemon.state.cluster
        if cluster is None:
            continue
        known = {number for number, view in cluster.nodes.items() if view.is_alive}
        if known != set(up):
            missing, dead = sorted(set(up) - known), sorted(known - set(up))
            found.append(("SIM-7", f"node {node.number} does not know {missing} and has {dead} for alive"))
        for number, view in cluster.nodes.items():
            if number in up and view.available != up[number].daemon.state.resources.available:
                found.append(("SIM-7", f"node {node.number} has an old view of node {number}: {view.available}"))
        node.shell.members.state.check()
    return found
