"""Bugs put in on purpose, for tests of the simulator alone: a simulator that finds nothing proves nothing.

Each replaces a piece of the engine, or of the model, with one that is wrong, for the length of a `with`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from weft.engine.cluster import shell
from weft.engine.cluster.directory import Directory
from weft.engine.cluster.inheritance import ClusterInheritance
from weft.engine.cluster.membership import Membership
from weft.engine.cluster.shell import ClusterShell
from weft.engine.state import headship, inheritance, membership
from weft.engine.state.bundles import BundlePools
from weft.engine.state.grouping import Grouping
from weft.engine.state.headship import Headship
from weft.engine.state.inheritance import Inheritances, Part
from weft.engine.state.instructions import Ending
from weft.engine.state.node import NodeState
from weft.engine.state.resources import ResourcePool
from weft.testing.simulate.holding import Holding
from weft.testing.simulate.port import SimPort
from weft.testing.simulate.process import Process

_real_adopt = Holding._adopt
_Places: Any = vars(shell)["Places"]
_real_arrived = _Places.arrived
_real_release = ResourcePool.release
_real_close = Membership.close
_real_stand = Headship._stand
_real_renew = Headship._renew
_real_shell_lost = ClusterShell.lost


def _release_twice(pool: ResourcePool, holding: Any, lent: bool = False) -> None:
    """A lease that comes back while its worker's CPU is lent gives the CPU back twice."""
    _real_release(pool, holding, False)


def _lose_flight(process: Process, payload: bytes) -> None:
    """With a dead worker go the tasks that it had been given."""


def _keep_bundles(pools: BundlePools, group: bytes) -> None:
    """What was set aside for a group that is removed is not given back."""


def _no_second_link(state: membership.MembershipState, now: float) -> list[Any]:
    """Silence is never noticed, and a lost link never made again."""
    return []


def _hold_on(state: NodeState, process: Any, reason: str, out: Any) -> None:
    """What a dead process had leased stays leased."""
    state.demands.withdraw(process)


def _leave_for_all(members: Membership) -> None:
    """Whatever a node ends for, it says that the cluster ends."""
    members.ends_cluster = True
    _real_close(members)


def _fail(shell: ClusterShell, reason: str, ending: Ending) -> None:
    """A node that the cluster goes on without does not come back."""
    _real_shell_lost(shell, reason, Ending.FAILED)


def _claim_unasked(state: Headship, is_heard: bool, turn: int, now: float, is_backed: bool) -> list[Any]:
    """Who has lost the head claims at once, whether or not it reaches anybody: the claim is delivered some time."""
    if not state.can_claim or is_heard or now < state._lost_at + state._patience + turn * headship.STAGGER_S:
        return []
    state.role = headship.Role.CLAIMING
    return [headship.Claim(state.epoch + 1, now)]


def _no_calm(state: Headship, is_heard: bool, turn: int, now: float, is_backed: bool) -> list[Any]:
    """Who is answered by the store claims, though it may just have come back and not have heard the head yet."""
    return _real_stand(state, is_heard, turn, now, True)


class _Believing(membership.MembershipState):
    """A head says who is dead also when it has no lease, and is believed by who knows that another has won; all give
    each other up alike, after 10 s."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        hearing: Any = self._hearing
        hearing.given_up_for = lambda number, silent_s, now, head: "silence" if silent_s > 10.0 else ""

    may_decide: Any = property(lambda state: lambda now: True, lambda state, given: None)
    fence: Any = property(lambda state: 0, lambda state, given: None)


def _find_nobody(state: membership.MembershipState, before: Any, out: Any) -> None:
    """Who has linked itself to this node before it was known stays unknown."""


def _hold_no_lease(state: Headship, now: float) -> list[Any]:
    """Who has taken over does not renew its lease, rests, ends, and is followed by one that does the same."""
    if state.role is headship.Role.ACTING and state.epoch > 1:
        state._renews_at = math.inf
    return _real_renew(state, now)


def _outlive(grouping: Grouping, process: Any, driver_of: Any, out: Any) -> None:
    """A group ends only with a driver that is known to the node."""
    is_head = grouping._standing.is_head
    for group in list(grouping.table.living.values()) if driver_of is not None and is_head else ():
        if group.job == driver_of.id and not group.spec.detached:
            grouping.remove(group, process, out)


def _keep_slot(port: SimPort, slot: int, generation: int) -> bool:
    """The slot of a dead process is not used again."""
    return True


def _grant(directory: Directory, wanted: Any, heir: Any, then: Callable[..., None]) -> None:
    """Nobody looks whether another was first."""
    then(set(wanted), {})


def _let_go(holding: Holding, payload: bytes) -> None:
    """An heir does not wait until the others are counted in."""
    _real_adopt(holding, payload)
    for number in list(holding._kept):
        _real_adopt(holding, number.to_bytes(8, "little") + bytes(8))


def _ask_once(state: Inheritances, part: Part) -> list[inheritance.Instruction]:
    """What was on its way when a process was asked is not asked for again."""
    if part.is_done or part.waits_for or part.is_claiming or part.unconfirmed:
        return []
    part.is_done = True
    return [inheritance.Done(part.number)]


def _unknown(here: ClusterInheritance, process: Any) -> bool:
    """What a process has lent to another node is taken for this node's affair."""
    return False


def _forget_chosen(here: Any, actor: bytes, name: Any, pid: int) -> None:
    """A worker that has died makes the head forget which one it has chosen for the actor since."""
    if name not in here._names.proxies:
        here._asking.creating.pop(actor, None)
    _real_arrived(here, actor, name, pid)


BUGS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "cpu-given-back-twice": (ResourcePool, "release", _release_twice),
    "tasks-lost-with-worker": (Process, "_peer_died", _lose_flight),
    "removed-group-kept": (BundlePools, "give_up", _keep_bundles),
    "links-not-watched": (membership.MembershipState, "beat", _no_second_link),
    "leases-of-the-dead-kept": (NodeState, "_end_what_it_held", _hold_on),
    "slots-of-the-dead-kept": (SimPort, "release_slot", _keep_slot),
}
TROUBLE_BUGS: dict[str, tuple[Any, str, Any]] = {
    "every-end-is-the-clusters": (Membership, "close", _leave_for_all),
    "left-behind-for-good": (ClusterShell, "lost", _fail),
    "claims-without-asking": (Headship, "_stand", _claim_unasked),
    "claims-without-calm": (Headship, "_stand", _no_calm),
}
"""Found by seeds in which one node alone has trouble."""
HEAD_BUGS: dict[str, tuple[Any, str, Any]] = {
    "heads-without-lease-believed": (shell, "MembershipState", _Believing),
    "linked-stay-unknown": (membership.MembershipState, "_link_known", _find_nobody),
    "groups-outlive-drivers": (Grouping, "end_with", _outlive),
    "leases-not-renewed": (Headship, "_renew", _hold_no_lease),
    "chosen-workers-forgotten": (_Places, "arrived", _forget_chosen),
}
"""Found by seeds in which another node takes over."""
INHERITANCE_BUGS: dict[str, tuple[Any, str, Any]] = {
    "every-claim-is-granted": (Directory, "claim", _grant),
    "heirs-let-go-at-once": (Holding, "_adopt", _let_go),
    "processes-asked-once": (Inheritances, "_round_over", _ask_once),
    "unwatched-is-unknown": (ClusterInheritance, "is_known", _unknown),
}
"""Found by seeds in which refs go from process to process."""
MODELLED = ("no-hand-back", "blocked-keeps-cpu")
"""Bugs of the native core's model, which `Plan.bugs` names."""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The engine with that bug in it."""
    if name in MODELLED:
        yield
        return
    owner, method, wrong = {**BUGS, **TROUBLE_BUGS, **HEAD_BUGS, **INHERITANCE_BUGS}[name]
    with mock.patch.object(owner, method, wrong):
        yield
