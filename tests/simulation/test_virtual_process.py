"""The native core in a simulation: events go in, and all that it says comes back to who called."""

from __future__ import annotations

from weft._native import VirtualProcess
from weft.engine.wire import kinds

WORKER, OTHER = 5, 6
FUNCTION, SHAPE = 7, 1
ACTOR = bytes(range(16))


class Simulated:
    """A process, and what it has said since the last look."""

    def __init__(self) -> None:
        living = self.living = {WORKER, OTHER}  # the native object keeps what its callable refers to
        self.core = VirtualProcess(lambda number: number in living)

    def grant(self, lease: int, worker: int) -> None:
        self.core.hear(kinds.LEASE_GRANT, kinds.LEASE_GRANT_BODY.pack(lease, SHAPE, *name(worker), 0))

    def die(self, worker: int) -> None:
        self.core.hear(kinds.PEER_DIED, kinds.PEER_DIED_BODY.pack(*name(worker), 0, 0) + b"killed")

    def said(self) -> tuple[dict[int, list[int]], list[int]]:
        """The tasks that went to each process, and the kinds of what the daemon was told."""
        pushed: dict[int, list[int]] = {}
        told = []
        for to, what, content in self.core.take_sent():
            if isinstance(content, bytes):
                told.append(what)
            else:
                pushed.setdefault(to, []).extend(content)
        return pushed, told


def name(number: int) -> tuple[int, int]:
    return ((1 << 20) + number, 1)


def test_a_task_asks_for_a_lease_is_pushed_when_one_is_granted_and_over_when_it_is_answered() -> None:
    one = Simulated()
    one.core.submit(1, 2, FUNCTION, SHAPE, 0)
    assert one.said() == ({}, [kinds.LEASE_REQUEST] * 2), "one more is wanted, and the newest word counts"
    one.grant(11, WORKER)
    assert one.said()[0] == {WORKER: [0]}, "how long one takes is not known yet"
    assert one.core.answered(OTHER, 1, [0], 1000) == 0, "it was not for that one to run"
    assert one.core.answered(WORKER, 1, [0], 1000) == 1
    assert one.said()[0] == {WORKER: [1]}
    one.core.handed_back(WORKER, 1, [1])
    assert one.said()[0] == {WORKER: [1]}
    assert one.core.answered(WORKER, 1, [1], 1000) == 1
    assert one.core.take_done() == [(1, 0, False), (1, 1, False)]


def test_its_time_is_the_simulations_a_lease_is_idle_when_that_says_so() -> None:
    one = Simulated()
    one.core.set_time(10**9)
    one.grant(11, WORKER)
    due = one.core.return_idle()
    assert due > 0 and one.core.leases == 1
    one.core.set_time(10**9 + due)
    assert one.core.return_idle() == -1 and one.core.leases == 0
    assert one.said() == ({}, [kinds.LEASE_RETURN])


def test_what_a_dead_worker_had_is_pushed_to_another_as_often_as_it_may_be_tried() -> None:
    one = Simulated()
    one.core.submit(1, 1, FUNCTION, SHAPE, 1)
    one.grant(11, WORKER)
    one.die(WORKER)
    one.grant(12, OTHER)
    assert one.said()[0] == {WORKER: [0], OTHER: [0]}
    one.die(OTHER)
    assert one.core.take_done() == [(1, 0, True)]


def test_calls_wait_for_their_actor_go_there_in_order_and_ask_where_it_is_when_it_is_out_of_reach() -> None:
    one = Simulated()
    one.core.create_actor(ACTOR, b"spec", bytes(16))
    one.core.call(ACTOR, 2, 3, 1)
    assert one.said() == ({}, [kinds.CREATE_ACTOR])
    one.core.hear(kinds.ACTOR_UP, kinds.ACTOR_UP_BODY.pack(ACTOR, *name(WORKER), 0, 0))
    assert one.said()[0] == {WORKER: [0, 1, 2]}
    assert one.core.answered(WORKER, 2, [0], 1000) == 1
    one.living.discard(WORKER)
    one.core.call(ACTOR, 3, 1, 1)
    assert one.said() == ({}, [kinds.ACTOR_WATCH])
