"""Bugs put in on purpose, for tests of the simulator alone: a simulator that finds nothing proves nothing.

Each replaces a piece of the engine, or of the model, with one that is wrong, for the length of a `with`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from weft.engine.state import membership
from weft.engine.state.bundles import BundlePools
from weft.engine.state.node import NodeState
from weft.engine.state.resources import ResourcePool
from weft.testing.simulate.process import Process

_real_release = ResourcePool.release
_real_lost = Process._lease_lost


def _release_twice(pool: ResourcePool, holding: Any, lent: bool = False) -> None:
    """A lease that comes back while its worker's CPU is lent gives the CPU back twice."""
    _real_release(pool, holding, False)


def _lose_flight(process: Process, lease: Any) -> None:
    """With a dead worker go the tasks that it had been given."""
    lease.flight.clear()
    _real_lost(process, lease)


def _keep_bundles(pools: BundlePools, group: bytes) -> None:
    """What was set aside for a group that is removed is not given back."""


def _no_second_link(state: membership.MembershipState, now: float) -> list[membership.Instruction]:
    """Silence is never noticed, and a lost link never made again."""
    return []


def _hold_on(state: NodeState, process: Any, reason: str, out: Any) -> None:
    """What a dead process had leased stays leased."""
    state.demands.withdraw(process)


BUGS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "cpu-given-back-twice": (ResourcePool, "release", _release_twice),
    "tasks-lost-with-worker": (Process, "_lease_lost", _lose_flight),
    "removed-group-kept": (BundlePools, "give_up", _keep_bundles),
    "links-not-watched": (membership.MembershipState, "beat", _no_second_link),
    "leases-of-the-dead-kept": (NodeState, "_end_what_it_held", _hold_on),
}
MODELLED = ("no-hand-back", "blocked-keeps-cpu")
"""Bugs of the native core's model, which `Plan.bugs` names."""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The engine with that bug in it."""
    if name in MODELLED:
        yield
        return
    owner, method, wrong = BUGS[name]
    with mock.patch.object(owner, method, wrong):
        yield
