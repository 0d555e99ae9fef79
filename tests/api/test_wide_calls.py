"""Calls with more of something than 16 bits can count: nothing is lost on the way, or the call is refused."""

from __future__ import annotations

from typing import Any

import pytest

import weft

pytestmark = pytest.mark.usefixtures("shared_weft_session")

COUNTS = (65_535, 65_536, 70_000)
"""At the border of 16 bits, and beyond."""


@weft.remote
def seen(*args: Any, **kwargs: Any) -> tuple[int, int, int, int]:
    """How many there were, and their sums: one that is missing, or is there twice, shows."""
    return len(args), sum(args), len(kwargs), sum(kwargs.values())


@weft.remote
class Seen:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._made_of = len(args), sum(args), len(kwargs), sum(kwargs.values())

    def made_of(self) -> tuple[int, int, int, int]:
        return self._made_of

    def called_with(self, *args: Any, **kwargs: Any) -> tuple[int, int, int, int]:
        return len(args), sum(args), len(kwargs), sum(kwargs.values())


def numbered(count: int) -> dict[str, int]:
    return {f"k{i}": i for i in range(count)}


@pytest.mark.parametrize("count", COUNTS)
def test_every_argument_arrives(count: int) -> None:
    total = sum(range(count))
    assert weft.get(seen.remote(*range(count))) == (count, total, 0, 0)
    assert weft.get(seen.remote(**numbered(count))) == (0, 0, count, total)


@pytest.mark.parametrize("count", COUNTS)
def test_an_actor_is_made_of_every_argument_and_called_with_it(count: int) -> None:
    total = sum(range(count))
    assert weft.get(Seen.remote(*range(count)).made_of.remote()) == (count, total, 0, 0)
    actor = Seen.remote(**numbered(count))
    assert weft.get(actor.made_of.remote()) == (0, 0, count, total)
    assert weft.get(actor.called_with.remote(*range(count))) == (count, total, 0, 0)
    assert weft.get(actor.called_with.remote(**numbered(count))) == (0, 0, count, total)


@pytest.mark.parametrize("count", COUNTS)
def test_every_ref_among_the_arguments_is_the_right_one(count: int) -> None:
    refs = [weft.put(i) for i in range(count)]
    total = sum(range(count))
    assert weft.get(seen.remote(*refs)) == (count, total, 0, 0)
    assert weft.get(Seen.remote(*refs).made_of.remote()) == (count, total, 0, 0)
    by_name = {f"k{i}": ref for i, ref in enumerate(refs)}
    assert weft.get(seen.remote(**by_name)) == (0, 0, count, total)


@pytest.mark.parametrize("count", COUNTS)
def test_every_ref_inside_an_argument_can_be_read(count: int) -> None:
    @weft.remote
    def added(refs: list[weft.ObjectRef[int]]) -> tuple[int, int]:
        return len(refs), sum(weft.get(refs))

    refs = [weft.put(i) for i in range(count)]
    assert weft.get(added.remote(refs)) == (count, sum(range(count)))


@pytest.mark.parametrize("count", COUNTS)
def test_every_result_comes_back(count: int) -> None:
    @weft.remote
    def numbers() -> range:
        return range(count)

    refs = numbers.options(num_returns=count).remote()
    assert weft.get(refs) == list(range(count))


@pytest.mark.parametrize("count", COUNTS)
def test_a_keyword_may_be_long(count: int) -> None:
    assert weft.get(seen.remote(**{"k" * count: 7})) == (0, 0, 1, 7)


@pytest.mark.parametrize("count", COUNTS)
def test_the_name_of_a_task_that_could_not_run_is_told_whole(count: int) -> None:
    def fails() -> int:
        raise ValueError("no")

    def behind(value: int) -> int:
        return value

    behind.__qualname__ = behind.__name__ = "é" * (count // 2) + "!"
    with pytest.raises(ValueError, match="no") as caught:
        weft.get(weft.remote(behind).remote(weft.remote(fails).options(max_retries=0).remote()))
    assert f"{behind.__name__}()" in str(caught.value)


JUST_INLINE = b"x" * 64_000
OVER_HALF_A_GIBIBYTE = (1 << 29) // len(JUST_INLINE) + 1


def test_arguments_that_no_record_holds_are_refused_where_the_call_is_made() -> None:
    with pytest.raises(ValueError, match="536870912"):
        seen.remote(*[JUST_INLINE] * OVER_HALF_A_GIBIBYTE)


def test_arguments_that_no_record_holds_once_they_are_there_end_the_task() -> None:
    ref = weft.put(JUST_INLINE)
    with pytest.raises(weft.exceptions.SystemFailureError, match="pass fewer"):
        weft.get(seen.remote(*[ref] * OVER_HALF_A_GIBIBYTE))


def test_results_that_no_record_holds_are_the_tasks_error() -> None:
    @weft.remote(num_returns=OVER_HALF_A_GIBIBYTE)
    def many() -> list[bytes]:
        return [JUST_INLINE] * OVER_HALF_A_GIBIBYTE

    with pytest.raises(ValueError, match="return fewer"):
        weft.get(many.remote()[-1])
