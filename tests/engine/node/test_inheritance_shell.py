"""A node of its own: what passes on from its dead processes, and refs that come late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from weft.engine.node.inheritance import InheritanceShell
from weft.engine.state.events import Process
from weft.engine.wire import kinds

OWNER, HEIR, READER, DRIVER = (1, 1), (2, 1), (3, 1), (4, 1)
OBJECT = b"an object's id.."
ROW = (OBJECT, 0, 0, 0, (), None, b"body")
IN_ARENA = (OBJECT, 0, 0, 0, (), (5, 1, 1 << 20), b"body")


class Port:
    """Of the segment, only who is alive, what the dead have lent, and what is sent to whom."""

    def __init__(self) -> None:
        self.alive = {OWNER, HEIR, READER, DRIVER}
        self.ledgers: dict[Process, list[Any]] = {}
        self.sent: list[tuple[Process, int, bytes]] = []
        self.removed: list[tuple[int, int]] = []

    def is_alive(self, *process: int) -> bool:
        return process in self.alive

    def exists(self, entry: int, generation: int) -> bool:
        return (entry, generation) not in self.removed

    def remove(self, entry: int, generation: int) -> None:
        self.removed.append((entry, generation))

    def take_ledger(self, *process: int) -> list[Any]:
        return self.ledgers.pop(cast("Process", process), [])

    def send(self, slot: int, generation: int, kind: int, payload: bytes) -> bool:
        self.sent.append(((slot, generation), kind, payload))
        return True

    def said(self, kind: int) -> list[tuple[Process, bytes]]:
        """All of that kind since the last look at anything."""
        sent, self.sent = self.sent, []
        return [(process, payload) for process, one, payload in sent if one == kind]


class Node:
    def __init__(self) -> None:
        self.port = Port()
        self.shell = InheritanceShell(
            cast("Any", self.port),
            cast("Any", None),
            lambda: sorted(self.port.alive),
            cast("Any", SimpleNamespace(shapes=None)),
        )

    def dies(self, process: Process, *rows: Any) -> None:
        self.port.ledgers[process] = list(rows)
        taken = self.shell.take(process)
        self.port.alive.discard(process)
        self.shell.died(process, taken)

    def answer(self, *who_refers: Process, owner: Process) -> None:
        """All that were asked say what they refer to."""
        for process, question in self.port.said(kinds.FIND_ORPHANS):
            number, round_, _ = kinds.FIND_ORPHANS_BODY.unpack_from(question)
            named = kinds.NAMED_BODY.pack(OBJECT, *owner) if process in who_refers else b""
            self.shell.answered(process, kinds.ORPHANS_BODY.pack(number, round_, 0) + named)

    def adopt(self, heir: Process) -> None:
        [(process, payload)] = self.port.said(kinds.ADOPT)
        assert process == heir
        number, rows, _ = kinds.ADOPT_BODY.unpack_from(payload)
        assert rows == 1
        self.shell.adopted(heir, kinds.NUMBER_BODY.pack(number))

    def ask(self, process: Process, owner: Process) -> Process | None:
        """Where an object of that dead owner is; None without an answer."""
        self.shell.asked(process, kinds.ORPHAN_ASKED_BODY.pack(*owner, OBJECT))
        return self.told().get(process)

    def told(self) -> dict[Process, Process]:
        """Who has just been told whom the object belongs to."""
        owners = {}
        for process, payload in self.port.said(kinds.ORPHAN_ANSWERED):
            identity, is_found, _, *owner = kinds.ORPHAN_ANSWERED_BODY.unpack(payload)
            assert identity == OBJECT and is_found
            owners[process] = (owner[0], owner[1])
        return owners


def test_who_asks_for_what_an_heir_had_that_is_dead_and_not_settled_waits_for_its_heir() -> None:
    """A reader whose ref names the first owner does not inherit beside those who are just being asked: they would be
    told of it when it may have let go."""
    node = Node()
    node.dies(OWNER, ROW)
    node.answer(HEIR, DRIVER, owner=OWNER)
    node.adopt(HEIR)
    node.answer(owner=OWNER)
    assert node.ask(READER, OWNER) == HEIR
    node.dies(HEIR, ROW)
    questions = node.port.sent
    assert node.ask(READER, OWNER) == HEIR, "who is dead, and is asked for next"
    assert node.ask(READER, HEIR) is None, "not before that is settled"
    node.port.sent = questions
    node.answer(DRIVER, owner=HEIR)
    node.adopt(DRIVER)
    node.answer(owner=HEIR)
    assert node.ask(READER, HEIR) == DRIVER


def test_who_asks_for_what_an_heir_is_about_to_own_is_told_when_it_does() -> None:
    node = Node()
    node.dies(OWNER, ROW)
    node.answer(HEIR, owner=OWNER)
    node.adopt(HEIR)
    node.answer(owner=OWNER)
    node.dies(HEIR, ROW)
    node.answer(DRIVER, owner=HEIR)
    adoption = node.port.sent
    assert node.ask(READER, OWNER) is None, "counted in now, it would be a stranger to the heir"
    node.port.sent = adoption
    node.adopt(DRIVER)
    assert node.told() == {READER: DRIVER}


def test_the_bytes_of_a_dead_heir_stay_for_who_has_inherited_them_through_the_estate_before() -> None:
    node = Node()
    node.dies(OWNER, IN_ARENA)
    node.answer(HEIR, owner=OWNER)
    node.adopt(HEIR)
    second_round, node.port.sent = node.port.sent, []
    node.dies(HEIR, IN_ARENA)
    node.port.sent, of_the_heir = second_round, node.port.sent
    node.answer(READER, owner=OWNER)
    node.port.sent, adoption = of_the_heir, node.port.sent
    node.answer(owner=HEIR)
    node.answer(owner=HEIR)
    assert HEIR not in node.shell.unsettled
    node.port.sent = adoption
    node.adopt(READER)
    assert node.port.removed == []
