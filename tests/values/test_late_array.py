"""Arrays that are written where they are stored."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from weft import cloudpickle
from weft.engine.process.session import rpc
from weft.util import LateArray

LARGE = 200_000


def counted(size: int = LARGE) -> LateArray:
    return LateArray((size,), np.int64, lambda array: np.copyto(array, np.arange(size)))


def used_bytes() -> int:
    return int(rpc.request("statistics")["used_bytes"])


@weft.remote
def several(size: int) -> dict[str, Any]:
    return {
        "late": counted(size),
        "plain": np.ones(LARGE),
        "twos": LateArray((3, size), np.float32, lambda array: array.fill(2), order="F"),
    }


@pytest.mark.parametrize("size", [0, 1, LARGE], ids=["empty", "small", "large"])
def test_a_late_array_is_a_plain_array_to_whoever_gets_it(shared_weft_session: ModuleType, size: int) -> None:
    values = weft.get(several.remote(size))
    assert all(type(value) is np.ndarray for value in values.values())
    assert (values["late"] == np.arange(size)).all()
    assert values["plain"].sum() == LARGE
    assert values["twos"].shape == (3, size)
    assert values["twos"].flags.f_contiguous
    assert (values["twos"] == 2).all()


def test_a_large_late_array_is_written_in_object_memory(shared_weft_session: ModuleType) -> None:
    places: list[int] = []
    ref = weft.put(LateArray((LARGE,), np.float64, lambda array: places.append(array.ctypes.data)))
    assert weft.get(ref).ctypes.data == places[0]


def test_a_late_array_that_can_not_be_written_leaves_nothing_behind(shared_weft_session: ModuleType) -> None:
    before = used_bytes()

    def fail(array: Any) -> None:
        raise LookupError("no such values")

    with pytest.raises(LookupError, match="no such values"):
        weft.put(LateArray((LARGE,), np.float64, fail))
    assert used_bytes() <= before


def test_a_task_fails_with_what_writing_its_result_raised(shared_weft_session: ModuleType) -> None:
    @weft.remote
    def divides() -> LateArray:
        return LateArray((LARGE,), np.float64, lambda array: array.fill(1 / 0))

    with pytest.raises(ZeroDivisionError):
        weft.get(divides.remote())


@pytest.mark.parametrize("kept", [lambda array: array, lambda array: array[3:]], ids=["the array", "a view"])
def test_a_writer_that_keeps_the_array_is_told(shared_weft_session: ModuleType, kept: Any) -> None:
    keeping: list[Any] = []
    with pytest.raises(BufferError, match="Let go of it"):
        weft.put(LateArray((LARGE,), np.float64, lambda array: keeping.append(kept(array))))


def test_other_picklers_write_a_late_array_at_once() -> None:
    assert (pickle.loads(cloudpickle.dumps(counted())) == np.arange(LARGE)).all()


def test_what_can_not_be_written_in_place_is_refused() -> None:
    with pytest.raises(TypeError, match="must have no Python objects, but got object"):
        LateArray((1,), object, lambda array: None)
    with pytest.raises(ValueError, match="must be 'C' or 'F', but got 'K'"):
        LateArray((1,), np.int64, lambda array: None, order="K")  # type: ignore[arg-type]
