"""A node that is to leave without loss: what still holds it here, and which actors can be sent away.

Pure. A draining node grants nothing and has asked all its leases back; it may leave when nothing holds it. Actors that
may restart are ended (after the calls that they have been sent) when another node can take them, and the restart is
not counted against `max_restarts`; all others are waited for, up to the deadline that the shell keeps.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.engine.state.actors import Actor, Stage
from weft.engine.state.cluster import ClusterView
from weft.engine.state.resources import Amounts
from weft.engine.state.workers import Place, Worker


def can_move(actor: Actor, need: Amounts, view: ClusterView) -> bool:
    """Whether it may be restarted, and there is a node for it that takes work."""
    limit = actor.spec.max_restarts
    has_restarts = limit == -1 or actor.restarts_used < limit
    is_bound = actor.spec.strategy.get("kind") == "placement_group"
    return (
        actor.stage is Stage.ALIVE
        and not actor.is_moving
        and actor.ending is None
        and has_restarts
        and not is_bound
        and bool(view.allowed(need, actor.spec.strategy))
    )


def what_holds(workers: Iterable[Worker], owners: list[int], drivers: list[int], jobs: int) -> list[str]:
    """What a draining node waits for, for a person; nothing when it may leave.

    `owners`, `drivers`: the processes that own objects or actors of others, and the node's own drivers; `jobs`: how
    many submitted ones run."""
    found = list(workers)
    leased = [worker.pid for worker in found if worker.place is Place.LEASED]
    actors = [worker.pid for worker in found if worker.place is Place.ACTOR]
    parts = (
        (leased, "task runs", "tasks run"),
        (actors, "actor lives", "actors live"),
        (owners, "worker owns what others use", "workers own what others use"),
        (drivers, "driver is attached", "drivers are attached"),
    )
    texts = [f"{len(pids)} {one if len(pids) == 1 else many} (pid {_some(pids)})" for pids, one, many in parts if pids]
    if jobs:
        texts.append(f"{jobs} submitted {'job runs' if jobs == 1 else 'jobs run'}")
    return texts


def _some(pids: list[int]) -> str:
    return ", ".join(map(str, pids[:4])) + (", …" if len(pids) > 4 else "")
