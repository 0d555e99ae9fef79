"""Who owns what the dead have left, for refs that come late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.engine.cluster.claims import Claims
from weft.engine.node.operations import Pending

HERE, HOME = 1, 2
OWNER, ASKER = (5, 3), (9, 1)
IDENTITY = b"x" * 16


class Node:
    """What claims see of a daemon; `settled` is what it remembers of the dead of other nodes."""

    def __init__(self, number: int, home: Node | None = None) -> None:
        self.alive, self.unsettled, self.settled = {ASKER}, set[Any](), set[Any]()
        self.answers: list[Any] = []
        self.late: list[Any] = []
        self.again: list[Any] = []
        self.offered: dict[str, Any] = {}
        here = SimpleNamespace(
            answer=lambda process, identity, owner: self.answers.append(owner),
            came_late=lambda estate, process, dead, identity: self.late.append(estate),
            last_heir=lambda identity: None,
            ask_again=lambda *asked: self.again.append(asked),
            when_ready=lambda process, call: call(),
            unsettled=self.unsettled,
        )
        port = SimpleNamespace(is_alive=lambda *process: process in self.alive, is_proxy=lambda slot: False)
        operations = SimpleNamespace(offer=self.offered.__setitem__)

        def ask(node: int, name: str, params: dict[str, Any]) -> Pending:
            answer = Pending()
            if home is None:
                answer.fail(ConnectionError("it is gone"))
            else:
                answer.resolve(home.offered[name](params))
            return answer

        names = SimpleNamespace(number=number, to_global=lambda one: (HOME, *one), to_local=lambda name: name[1:])
        parts: Any = SimpleNamespace(
            port=port,
            here=here,
            operations=operations,
            nodes=SimpleNamespace(ask_node=ask),
            names=names,
            members=SimpleNamespace(links={HOME: None}),
        )
        nothing = SimpleNamespace(heirs=lambda wanted, then: then({}))
        left: Any = SimpleNamespace(directory=nothing)
        fences: Any = SimpleNamespace(when_ready=lambda owners, then: then())
        estates: Any = SimpleNamespace(
            left=left,
            fences=fences,
            is_dead=lambda name: True,
            is_settled=self.settled.__contains__,
            lends=lambda process: None,
        )
        self.claims = Claims(parts, estates)


@pytest.mark.parametrize("remembers", [True, False])
def test_what_has_no_heir_passes_to_who_asks_however_long_its_owner_has_been_dead(remembers: bool) -> None:
    """A node remembers the last of the dead of others; the owner's own node knows of all of its own."""
    home = Node(HOME)
    here = Node(HERE, home)
    if remembers:
        here.settled.add((HOME, *OWNER))
    here.claims.look_up(ASKER, OWNER, IDENTITY)
    assert (here.late, here.answers) == ([(HOME, *OWNER)], [])


@pytest.mark.parametrize("state", ["alive", "unsettled"])
def test_who_had_lost_the_link_to_an_owner_that_is_not_settled_is_counted_in_at_it_again(state: str) -> None:
    """The two nodes had taken each other for dead, and the link was made again before one of them had to go."""
    home = Node(HOME)
    getattr(home, state).add(OWNER)
    here = Node(HERE, home)
    here.claims.look_up(ASKER, OWNER, IDENTITY)
    assert (here.late, here.answers) == ([], [OWNER])


def test_what_a_node_does_not_answer_is_asked_again() -> None:
    here = Node(HERE)
    here.claims.look_up(ASKER, OWNER, IDENTITY)
    assert (here.late, here.answers, here.again) == ([], [], [(ASKER, OWNER, IDENTITY)])
