"""What passes on between nodes: decided once, whoever dies meanwhile."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.engine.state.estates import AdoptThere, AskNames, AskRows, Estates, Instruction, SettleEstate
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess, LeftRow

HEAD, FIRST, SECOND = NODES = [0, 1, 2]
DEAD_NODE = (9, 0, 0)
OWNER = (9, 4, 1)
ASKED = AskRows((FIRST, SECOND), DEAD_NODE)
"""Of all nodes but the first to tell."""
VALUE, TASK = b"\0" * 8, b"\1\0\0\0"


def row(name: bytes, *needs: bytes, arena: GlobalObject | None = None, body: bytes = VALUE) -> LeftRow:
    return LeftRow(name, OWNER, 0, 0, list(needs), arena, body)


def answer(estates: Estates, out: list[Instruction], names: dict[int, dict[bytes, list[GlobalProcess]]]) -> Instruction:
    """Both rounds; what follows from them."""
    for _ in range(2):
        [ask] = out
        assert isinstance(ask, AskNames)
        out = []
        for node in ask.nodes:
            out += estates.named(node, ask.estate, ask.round, names.get(node, {}), NODES)
    [last] = out
    return last


def test_nothing_is_asked_when_a_dead_node_has_left_nothing() -> None:
    estates = Estates()
    assert estates.rows_came(HEAD, DEAD_NODE, [], [], NODES) == [ASKED]
    assert estates.rows_came(FIRST, DEAD_NODE, [], [], NODES) == []
    assert estates.rows_came(SECOND, DEAD_NODE, [], [], NODES) == [SettleEstate(DEAD_NODE)]
    assert estates.rows_came(SECOND, DEAD_NODE, [row(b"late")], [], NODES) == []


def test_all_that_live_are_asked_where_one_tells_first_that_is_not_among_them() -> None:
    estates = Estates()
    assert estates.rows_came(SECOND, DEAD_NODE, [], [], [HEAD, FIRST]) == [AskRows((HEAD, FIRST), DEAD_NODE)]
    assert estates.rows_came(HEAD, DEAD_NODE, [], [], [HEAD, FIRST]) == []
    assert estates.rows_came(FIRST, DEAD_NODE, [], [], [HEAD, FIRST]) == [SettleEstate(DEAD_NODE)]


def test_the_process_that_refers_to_the_most_takes_over_what_all_nodes_have_of_it() -> None:
    estates = Estates()
    origin = (9, 3, 1, 100)
    assert estates.rows_came(HEAD, DEAD_NODE, [row(b"a", b"b"), row(b"b", body=TASK)], [], NODES) == [ASKED]
    assert estates.rows_came(FIRST, DEAD_NODE, [row(b"b"), row(b"unused")], [], NODES) == []
    copies = [(origin[:3], (SECOND, 7, 2, 100))]
    out = estates.rows_came(SECOND, DEAD_NODE, [row(b"c", arena=origin)], copies, NODES)
    one, other = (FIRST, 5, 1), (SECOND, 6, 1)
    adopt = answer(estates, out, {FIRST: {b"a": [one], b"c": [one]}, SECOND: {b"c": [other]}})
    assert isinstance(adopt, AdoptThere)
    assert adopt.adopter == one
    assert {left.id: left.is_pending for left in adopt.rows} == {b"a": False, b"b": False, b"c": False}
    assert adopt.claims == {b"a": (one,), b"c": (one, other)}
    assert adopt.homes == ((origin[:3], (SECOND, 7, 2, 100)),)
    [settled] = estates.adopted(DEAD_NODE, one, True, NODES)
    assert isinstance(settled, SettleEstate)
    assert (settled.adopter, set(settled.moved)) == (one, {b"a", b"b", b"c"})


def test_another_takes_over_when_the_adopter_dies_before_it_has_confirmed() -> None:
    estates = Estates()
    estate = (HEAD, 3, 1)
    one, other = (FIRST, 5, 1), (SECOND, 6, 1)
    out = estates.opened(estate, [row(b"a"), row(b"b")], NODES)
    adopt = answer(estates, out, {FIRST: {b"a": [one], b"b": [one]}, SECOND: {b"a": [other]}})
    assert isinstance(adopt, AdoptThere)
    assert adopt.adopter == one
    again = answer(estates, estates.adopted(estate, one, False, NODES), {SECOND: {b"a": [other]}})
    assert isinstance(again, AdoptThere)
    assert again.adopter == other
    assert estates.adopted(estate, one, True, NODES) == []
    assert estates.is_open(estate)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_estate_is_settled_and_each_referred_row_moves_to_a_living_process(data: st.DataObject) -> None:
    estates = Estates()
    names = [bytes([65 + number]) for number in range(4)]
    living = list(NODES)
    held = {node: data.draw(st.lists(st.sampled_from(names), unique=True)) for node in living}
    out: list[Instruction] = []
    reports = [HEAD, *data.draw(st.lists(st.sampled_from(NODES[1:]), unique=True))]  # the others tell when asked
    told: set[int] = set()
    moved: list[tuple[GlobalProcess, set[bytes]]] = []
    settled = False
    while reports or out:
        if len(living) > 1 and data.draw(st.integers(0, 9)) == 0:
            node = data.draw(st.sampled_from(living[1:]))
            living.remove(node)
            out += estates.node_gone(node, living)
            continue
        if reports:
            node = reports.pop()
            if node in living and node not in told:
                told.add(node)
                out += estates.rows_came(node, DEAD_NODE, [row(name) for name in names], [], living)
            continue
        one = out.pop(data.draw(st.integers(0, len(out) - 1)))
        if isinstance(one, SettleEstate):
            settled = True
        elif isinstance(one, AskRows):
            reports += one.nodes
        elif isinstance(one, AskNames):
            for node in one.nodes:
                if node in living:
                    claims = {name: [(node, 5, 1)] for name in held[node]}
                    out += estates.named(node, one.estate, one.round, claims, living)
        elif one.adopter[0] in living:
            moved.append((one.adopter, {left.id for left in one.rows}))
            out += estates.adopted(one.estate, one.adopter, True, living)
    assert settled
    wanted = {name for node in living for name in held[node]}
    assert not wanted or wanted <= moved[-1][1]
