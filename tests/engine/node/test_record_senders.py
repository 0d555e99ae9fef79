"""Who may say what to a node daemon, and what it does with the rest."""

from __future__ import annotations

from types import ModuleType

import pytest
from test_node_daemon import Node, node  # noqa: F401

import weft
from weft import _native
from weft.engine.wire import kinds
from weft.engine.wire.kinds import Role

KINDS = {name: value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, int)}
RECORDS = {name: kind for name, kind in KINDS.items() if kind < 64}
ONE_PROCESS = (Role.DRIVER, Role.WORKER, Role.FAR)


@pytest.mark.parametrize("name", RECORDS)
def test_a_kind_is_refused_from_whoever_may_not_say_it(name: str) -> None:
    kind = RECORDS[name]
    for role in ONE_PROCESS:
        if role in kinds.SAYERS.get(kind, Role(0)):
            kinds.check_sender(role, kind)
        else:
            with pytest.raises(ValueError, match=r"it is not for .* processes to say to a daemon"):
                kinds.check_sender(role, kind)


def test_what_only_a_daemon_says_nobody_says_to_it() -> None:
    from_daemons = (
        "BIND_JOB LEASE_GRANT LEASE_REVOKE SHAPE_REFUSED PEER_DIED ACTOR_UP ACTOR_DOWN TASK SPACE RESTORED "
        "PROMISE_KEPT FIND_ORPHANS ADOPT SETTLED ORPHAN_ANSWERED NOT_NEAR SPARE_RINGS"
    ).split()
    assert {RECORDS[name] for name in from_daemons} == set(RECORDS.values()) - set(kinds.SAYERS)


def test_a_driver_that_speaks_as_a_worker_is_told_once_and_changes_nothing(
    node: Node,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(3):
        for kind in (kinds.BLOCKED, kinds.RETIRES, kinds.LENDS_OBJECTS, kinds.LEASE_GRANT, 999):
            assert node.record(node.driver, kind, b"\1\0\0\0") == []
    assert capsys.readouterr().err.count("malformed record") == 5


def test_an_inheritance_is_confirmed_by_its_heir_only(node: Node) -> None:  # noqa: F811
    state = node.daemon.inheritance.state
    state.opened((0, 9, 1), False, [node.driver])
    state.named(node.driver, 1, 1, [b"object"])
    state.claimed(1, node.driver, [b"object"], ())
    number = (1).to_bytes(8, "little")
    node.daemon.inheritance.adopted((9, 9), number)
    part = state.part(1)
    assert part is not None and list(part.unconfirmed) == [node.driver]
    node.daemon.inheritance.adopted(node.driver, number)
    assert not part.unconfirmed


def test_any_record_of_any_kind_leaves_the_daemon_alive(weft_session: ModuleType) -> None:
    for kind in range(128):
        for payload in (b"", b"\xff" * 7, bytes(64), b"\xff" * 64):
            _native.send(kind, payload)

    @weft.remote
    def answer() -> int:
        return 42

    assert weft.get(answer.remote()) == 42
