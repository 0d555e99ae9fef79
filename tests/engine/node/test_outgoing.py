"""What the state has processes told, as the bytes that they read."""

from __future__ import annotations

from weft import _native
from weft.engine.node import outgoing
from weft.engine.state import instructions as do
from weft.engine.wire import kinds
from weft.engine.wire.kinds import ErrorCode

ME, WORKER = (1, 1), (7, 3)
ACTOR = b"a" * 16


def test_every_instruction_that_is_told_a_process_has_its_record() -> None:
    assert set(outgoing.KINDS) == set(do.Tell.__subclasses__())


def test_a_lease_is_granted_and_asked_back_by_its_number() -> None:
    kind, body = outgoing.encode(do.GrantLease(ME, 5, 2, WORKER, 99))
    assert (kind, kinds.LEASE_GRANT_BODY.unpack(body)) == (kinds.LEASE_GRANT, (5, 2, *WORKER, 99))
    assert outgoing.encode(do.RevokeLease(ME, 5)) == (kinds.LEASE_REVOKE, kinds.LEASE_BODY.pack(5))


def test_a_death_says_who_why_and_what_it_held_when_it_was_stopped_for_memory() -> None:
    kind, body = outgoing.encode(do.TellDeath(ME, WORKER, "killed"))
    head = kinds.PEER_DIED_BODY.pack(*WORKER, kinds.DeathCause.ENDED, 0)
    assert (kind, body) == (kinds.PEER_DIED, head + b"killed")
    _, body = outgoing.encode(do.TellDeath(ME, WORKER, "stopped", 3 << 30))
    assert kinds.PEER_DIED_BODY.unpack_from(body) == (*WORKER, kinds.DeathCause.STOPPED_FOR_MEMORY, 3 << 30)


def test_a_refusal_ends_in_the_error_value_of_its_fault_and_an_actors_own_error_is_passed_on() -> None:
    fault = do.Fault(ErrorCode.UNSCHEDULABLE, "no room")
    value = _native.error_value(fault.code, fault.text)
    kind, body = outgoing.encode(do.RefuseShape(ME, 4, fault, only_now=True))
    assert (kind, body) == (kinds.SHAPE_REFUSED, kinds.PROCESS_BODY.pack(4, 1) + value)
    dead = kinds.ACTOR_STATE_BODY.pack(ACTOR, 1, 0)
    told = value + b"\0" + ACTOR.hex().encode()
    assert outgoing.encode(do.TellActorDown(ME, ACTOR, True, fault)) == (kinds.ACTOR_DOWN, dead + told)
    assert outgoing.encode(do.TellActorDown(ME, ACTOR, True, b"raised")) == (kinds.ACTOR_DOWN, dead + b"raised")
