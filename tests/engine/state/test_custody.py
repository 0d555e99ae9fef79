"""What a dead process had lent passes to one that still refers to it, and to one only."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.engine.state.custody import Adopt, Ask, Custodian, Instruction, Row, Settle
from weft.engine.state.events import Process

DEAD: Process = (9, 1)
FIRST, SECOND, THIRD = (1, 1), (2, 1), (3, 1)
LIVING: list[Process] = [FIRST, SECOND, THIRD]


def row(name: bytes, *needs: bytes, owner: Process = DEAD, arena: tuple[int, int, int] | None = None) -> Row:
    return Row(name, owner, True, 0, 0, needs, arena, b"")


def answer_all(
    custodian: Custodian, out: list[Instruction], names: dict[Process, list[bytes]], living: list[Process]
) -> list[Instruction]:
    """Everybody answers all that is asked, until nothing is."""
    rest: list[Instruction] = []
    while out:
        one = out.pop(0)
        if isinstance(one, Ask):
            out += custodian.named(one.process, one.custody, one.round, names.get(one.process, []), living)
        else:
            rest.append(one)
    return rest


def test_who_had_lent_nothing_is_settled_at_once() -> None:
    assert Custodian().died(DEAD, [], LIVING) == [Settle((DEAD,), ())]


def test_everybody_is_asked_twice_before_anything_moves() -> None:
    custodian = Custodian()
    out = custodian.died(DEAD, [row(b"a")], LIVING)
    assert [(one.process, one.round) for one in out if isinstance(one, Ask)] == [(process, 1) for process in LIVING]
    assert custodian.is_open(DEAD)
    assert custodian.named(FIRST, 1, 1, [], LIVING) == []
    assert custodian.named(SECOND, 1, 1, [], LIVING) == []
    again = custodian.named(THIRD, 1, 1, [], LIVING)
    assert [(one.process, one.round) for one in again if isinstance(one, Ask)] == [(process, 2) for process in LIVING]
    assert custodian.named(FIRST, 1, 1, [b"a"], LIVING) == []  # late: of the first round


def test_what_nobody_refers_to_is_released() -> None:
    custodian = Custodian()
    rows = [row(b"a", arena=(4, 2, 9))]
    assert answer_all(custodian, custodian.died(DEAD, rows, LIVING), {}, LIVING) == [Settle((DEAD,), tuple(rows))]
    assert not custodian.is_open(DEAD)


def test_one_takes_over_all_that_is_referred_to_and_what_that_needs() -> None:
    custodian = Custodian()
    rows = [row(b"a", b"c"), row(b"b"), row(b"c"), row(b"unwanted")]
    names = {FIRST: [b"a"], SECOND: [b"a", b"b"], THIRD: [b"of another"]}
    [adopt] = answer_all(custodian, custodian.died(DEAD, rows, LIVING), names, LIVING)
    assert isinstance(adopt, Adopt)
    assert adopt.process == SECOND
    assert {one.id for one in adopt.rows} == {b"a", b"b", b"c"}
    assert adopt.claims == {b"a": (FIRST, SECOND), b"b": (SECOND,)}
    assert custodian.is_open(DEAD)
    assert custodian.adopted(FIRST, adopt.custody) == []
    [settled] = custodian.adopted(SECOND, adopt.custody)
    assert isinstance(settled, Settle)
    assert settled.dead == (DEAD,) and settled.released == (rows[3],)
    assert settled.adopter == SECOND and set(settled.moved) == {b"a", b"b", b"c"}
    assert not custodian.is_open(DEAD)


def test_what_the_second_round_alone_finds_counts() -> None:
    custodian = Custodian()
    custodian.died(DEAD, [row(b"a")], [FIRST])
    custodian.named(FIRST, 1, 1, [], [FIRST])
    [adopt] = custodian.named(FIRST, 1, 2, [b"a"], [FIRST])
    assert isinstance(adopt, Adopt) and adopt.process == FIRST


def test_nobody_waits_for_the_dead() -> None:
    custodian = Custodian()
    custodian.died(DEAD, [row(b"a")], LIVING)
    custodian.named(FIRST, 1, 1, [b"a"], LIVING)
    custodian.named(SECOND, 1, 1, [b"a"], LIVING)
    out = custodian.died(THIRD, [], [FIRST, SECOND])
    assert out[-1] == Settle((THIRD,), ())
    [adopt] = answer_all(custodian, out[:-1], {FIRST: [b"a"], SECOND: [b"a"]}, [FIRST, SECOND])
    assert isinstance(adopt, Adopt)


def test_an_adopter_that_dies_before_it_confirms_leaves_everything_to_its_own_custody() -> None:
    custodian = Custodian()
    [adopt] = answer_all(custodian, custodian.died(DEAD, [row(b"a")], LIVING), {FIRST: [b"a"], SECOND: [b"a"]}, LIVING)
    assert isinstance(adopt, Adopt) and adopt.process == FIRST
    living = [SECOND, THIRD]
    out = custodian.died(FIRST, [row(b"own", owner=FIRST)], living)
    asked = [one for one in out if isinstance(one, Ask)]
    assert all(set(one.dead) == {FIRST, DEAD} for one in asked)
    [again] = answer_all(custodian, out, {SECOND: [b"a"], THIRD: [b"own"]}, living)
    assert isinstance(again, Adopt)
    assert {one.id for one in again.rows} == {b"a", b"own"}
    [settled] = custodian.adopted(again.process, again.custody)
    assert isinstance(settled, Settle)
    assert settled.dead == (FIRST, DEAD) and settled.released == ()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_custody_ends_and_each_referred_row_moves_once(data: st.DataObject) -> None:
    custodian = Custodian()
    names = [bytes([65 + number]) for number in range(4)]
    living = list(LIVING)
    held = {process: data.draw(st.lists(st.sampled_from(names), unique=True)) for process in living}
    out = custodian.died(DEAD, [row(name) for name in names], living)
    moved: list[Adopt] = []
    settled: set[Process] = set()
    while out:
        one = out.pop(data.draw(st.integers(0, len(out) - 1)))
        if isinstance(one, Settle):
            settled.update(one.dead)
            continue
        if one.process not in living:
            continue
        if len(living) > 1 and data.draw(st.booleans()) and data.draw(st.booleans()):
            living.remove(one.process)
            out += custodian.died(one.process, [], living)
        elif isinstance(one, Ask):
            out += custodian.named(one.process, one.custody, one.round, held[one.process], living)
        else:
            moved.append(one)
            out += custodian.adopted(one.process, one.custody)
    assert DEAD in settled
    wanted = {name for process in living for name in held[process]}
    assert len(moved) <= 1
    assert wanted <= {one.id for adopt in moved for one in adopt.rows}
