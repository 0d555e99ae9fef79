"""Who is stopped when memory runs out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.engine.state.memory_pressure import (
    ACTOR,
    RESTARTABLE_ACTOR,
    SMALLEST_BYTES,
    TASK,
    THRESHOLD,
    Candidate,
    MemoryPolicy,
    Usage,
)

GIB = 1 << 30
FULL = Usage(96 * GIB, 100 * GIB)


def worker(number: int, size: float, rank: int = TASK) -> Candidate:
    return Candidate((number, 1), 1000 + number, int(size * GIB), int(size * GIB), rank, number)


def chosen(*candidates: Candidate, usage: Usage = FULL) -> int | None:
    stop = MemoryPolicy().sampled(usage, candidates)
    return None if stop is None else stop.process[0]


def test_nobody_is_stopped_while_there_is_room() -> None:
    assert chosen(worker(1, 90), usage=Usage(90 * GIB, 100 * GIB)) is None


def test_the_large_one_is_stopped_and_not_the_newest_small_one() -> None:
    assert chosen(worker(1, 40), worker(2, 1), worker(3, 0.1)) == 1


def test_among_large_ones_a_task_goes_before_an_actor_and_the_youngest_task_first() -> None:
    assert chosen(worker(1, 30), worker(2, 20), worker(3, 35, ACTOR)) == 2
    assert chosen(worker(1, 30, ACTOR), worker(2, 20, RESTARTABLE_ACTOR)) == 2


def test_an_actor_that_holds_nearly_all_is_stopped_though_there_are_tasks() -> None:
    assert chosen(worker(1, 80, ACTOR), worker(2, 3)) == 1


def test_when_others_hold_the_memory_nobody_is_stopped() -> None:
    assert chosen(worker(1, 0.01), worker(2, 0.02)) is None


def test_one_at_a_time_and_the_next_only_once_memory_was_measured_again() -> None:
    policy = MemoryPolicy()
    both = [worker(1, 40), worker(2, 50)]
    first = policy.sampled(FULL, both)
    assert first is not None and first.process == (2, 1)
    assert policy.sampled(FULL, both) is None, "it is not dead yet"
    assert policy.sampled(FULL, both[:1]) is None, "its memory may just have been given back"
    second = policy.sampled(FULL, both[:1])
    assert second is not None and second.process == (1, 1)


def test_the_reason_has_the_peak() -> None:
    stop = MemoryPolicy().sampled(FULL, [Candidate((1, 1), 77, 2 * GIB, 3 * GIB, TASK, 1)])
    assert stop is not None
    assert stop.why.peak_bytes == 3 * GIB
    assert stop.why.text == (
        "stopped for memory: pid 77 held 2.0 GiB (peak 3.0 GiB) when 96.0 GiB of the 100.0 GiB that its node may use "
        "were taken"
    )


@given(
    st.lists(st.tuples(st.floats(0, 50), st.sampled_from([TASK, RESTARTABLE_ACTOR, ACTOR])), max_size=8),
    st.integers(0, 110),
)
def test_whoever_is_stopped_is_an_offender(sizes: list[tuple[float, int]], used: int) -> None:
    candidates = [worker(number, size, rank) for number, (size, rank) in enumerate(sizes)]
    usage = Usage(used * GIB, 100 * GIB)
    stop = MemoryPolicy().sampled(usage, candidates)
    if stop is None:
        largest = max((one.bytes for one in candidates), default=0)
        assert usage.share < THRESHOLD or largest < SMALLEST_BYTES
    else:
        victim = next(one for one in candidates if one.process == stop.process)
        assert usage.share >= THRESHOLD
        assert all(victim.bytes >= one.bytes / 2 for one in candidates)
