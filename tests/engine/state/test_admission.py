"""Pulls have their memory before they begin, in order, and none waits for what will never come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.engine.state.admission import MOST_AT_ONCE, Admission


class Memory:
    def __init__(self, size: int, wanted: dict[int, int]) -> None:
        self.left = size
        self.wanted = wanted

    def claim(self, key: int) -> bool:
        if self.wanted[key] > self.left:
            return False
        self.left -= self.wanted[key]
        return True


@given(st.lists(st.integers(1, 120), min_size=1, max_size=60), st.randoms())
def test_all_that_can_fit_is_served_and_memory_never_overruns(sizes: list[int], choose: object) -> None:
    memory = Memory(100, dict(enumerate(sizes)))
    admission: Admission[int] = Admission()
    active: list[int] = []
    served: set[int] = set()
    failed: set[int] = set()

    def go_on(begun: list[int]) -> None:
        active.extend(begun)
        while (key := admission.take_hopeless()) is not None:
            failed.add(key)
            active.extend(admission.ended(key, memory.claim))

    for key in memory.wanted:
        go_on(admission.asked(key, memory.claim))
    while active:
        assert len(active) <= MOST_AT_ONCE and memory.left >= 0
        key = choose.choice(active)  # type: ignore[attr-defined]
        active.remove(key)
        served.add(key)
        memory.left += sizes[key]
        go_on(admission.ended(key, memory.claim))
    assert failed == {key for key, size in enumerate(sizes) if size > 100}
    assert served == set(memory.wanted) - failed


def test_what_is_wanted_no_more_leaves_the_line() -> None:
    memory = Memory(10, {1: 10, 2: 10, 3: 10})
    admission: Admission[int] = Admission()
    assert [admission.asked(key, memory.claim) for key in (1, 2, 3)] == [[1], [], []]
    assert admission.ended(2, memory.claim) == []
    memory.left += 10
    assert admission.ended(1, memory.claim) == [3]
