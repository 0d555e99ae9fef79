"""The graph of waits: what is stuck, what is told, and that what can go on is never called stuck."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.engine.state.deadlock import DeadlockFinder, Waiting, stuck


def graph(*nodes: Waiting) -> dict[str, Waiting]:
    return {node.key: node for node in nodes}


SELF = (
    Waiting("wait:1", ("object:o",), text="A.f waits", began_s=1.0),
    Waiting("object:o", ("task:g",), text="for A.g"),
    Waiting("task:g", ("thread:a",)),
    Waiting("thread:a", ("wait:1",)),
)


def test_an_actor_that_waits_for_its_own_queue_is_stuck() -> None:
    assert stuck(graph(*SELF)) == {"wait:1", "object:o", "task:g", "thread:a"}


def test_a_wait_for_something_unknown_can_go_on() -> None:
    assert not stuck(graph(*SELF[:2], SELF[3]))


def test_a_wait_goes_on_when_one_of_several_can_come() -> None:
    several = Waiting("wait:1", ("object:o", "object:elsewhere"))
    assert not stuck(graph(several, *SELF[1:]))


def test_a_task_needs_all_of_its_arguments() -> None:
    task = Waiting("object:p", ("object:o", "object:elsewhere"), needed=2)
    assert "object:p" in stuck(graph(*SELF, task))


def test_what_waits_for_nothing_that_comes_is_stuck() -> None:
    assert stuck(graph(Waiting("wait:1", ("kept:x",)), Waiting("kept:x", ()))) == {"wait:1", "kept:x"}


def test_a_deadlock_is_told_in_the_second_round_and_only_once() -> None:
    finder = DeadlockFinder()
    assert finder.round_told(SELF) == []
    assert finder.suspects
    (found,) = finder.round_told(SELF)
    assert found.victim == "wait:1"
    assert found.cycle == ("A.f waits for A.g",)
    assert finder.round_told(SELF) == [], "it was broken a moment ago"


def test_a_round_that_differs_proves_nothing() -> None:
    finder = DeadlockFinder()
    finder.round_told(SELF)
    other = (Waiting("wait:1", ("object:o", "object:q")), *SELF[1:], Waiting("object:q", ("task:g",)))
    assert finder.round_told(other) == []
    assert len(finder.round_told(other)) == 1


def test_of_two_that_wait_for_each_other_the_later_one_is_broken() -> None:
    finder = DeadlockFinder()
    nodes = (
        Waiting("wait:a", ("task:b",), text="A waits for B", began_s=1.0),
        Waiting("task:b", ("wait:b",)),
        Waiting("wait:b", ("task:a",), text="B waits for A", began_s=2.0),
        Waiting("task:a", ("wait:a",)),
        Waiting("wait:driver", ("task:b",), text="the driver waits for B", began_s=3.0),
    )
    finder.round_told(nodes)
    (found,) = finder.round_told(nodes)
    assert found.victim == "wait:b"
    assert found.cycle == ("B waits for A", "A waits for B")


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Waiting]:
    keys = [f"{'wait:' if n % 2 else 'task:'}{n}" for n in range(draw(st.integers(1, 12)))]
    anything = st.sampled_from([*keys, "task:unknown"])
    nodes = {}
    for key in keys:
        on = tuple(draw(st.lists(anything, max_size=4, unique=True)))
        nodes[key] = Waiting(key, on, draw(st.integers(0, max(1, len(on)))))
    return nodes


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_nothing_that_could_end_in_some_order_is_called_stuck(nodes: dict[str, Waiting]) -> None:
    """Let everything end that can, one after the other: the rest, and only that, is stuck."""
    ended: set[str] = set()
    while True:
        can_end = {
            key
            for key, node in nodes.items()
            if key not in ended and sum(other in ended or other not in nodes for other in node.on) >= node.needed
        }
        if not can_end:
            break
        ended.add(min(can_end))
    assert stuck(nodes) == set(nodes) - ended
