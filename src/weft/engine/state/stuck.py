"""Why a demand may wait for good: what it needs is held by actors, which do not give it back by themselves.

Pure. The person at the driver is told once, after `WARN_AFTER_TICKS`. An actor for which there is no process ends in an
error then: who waits for it may be who holds the others.
"""

from __future__ import annotations

from weft.engine.state.demands import Demand
from weft.engine.state.resources import UNIT, ResourcePool
from weft.engine.state.workers import Place, WorkerPool

WARN_AFTER_TICKS = 10


def why_stuck(demand: Demand, pool: ResourcePool, workers: WorkerPool) -> str:
    """A warning, or nothing when it only has to wait for tasks to end."""
    if demand.draws_from is not None:
        return ""
    left = dict(pool.total)
    actors = 0
    for worker in workers:
        if worker.pool is pool and worker.place is Place.ACTOR and worker.holding is not None:
            actors += 1
            for name, amount in worker.holding.amounts:
                left[name] -= amount
    short = [(name, amount) for name, amount in demand.need if left.get(name, 0) < amount]
    if not short:
        return ""
    what = "an actor" if demand.is_actor else "a placement group" if demand.parts else "a task"
    if why := pool.misfit(demand.need):
        return f"{what} has waited for {WARN_AFTER_TICKS} s for what this node can never hold: {why}. Ask for less."
    wanted = " and ".join(
        f"{amount / UNIT:g} {name} (of {pool.total.get(name, 0) / UNIT:g}, {left.get(name, 0) / UNIT:g} are not held)"
        for name, amount in short
    )
    return (
        f"{what} has waited for {WARN_AFTER_TICKS} s for {wanted}: {actors} living actors hold the rest and keep it "
        "while they live. End some of them, let them ask for less, or start the node with more."
    )


def no_slot(actor: str, workers: WorkerPool, drivers: int) -> str:
    """Of an actor on a node that has as many processes as it may have."""
    actors = sum(worker.place is Place.ACTOR for worker in workers)
    waiting = sum(worker.lent for worker in workers if worker.place is not Place.ACTOR)
    return (
        f"{actor} was not created: its node has no room for another process, and none has ended for "
        f"{WARN_AFTER_TICKS} s. {actors} are living actors, {waiting} run tasks that wait for others, {drivers} are "
        f"drivers. End some of the actors, or start the node with a larger WEFT_MAX_PROCESSES."
    )
