"""Writing to what was read, without harm to others; filling an array where it is stored."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from waiting import comes_true, wait_until
from weft.engine.process.session import rpc

LARGE = 200_000
HANG_S = 60.0
pytestmark = pytest.mark.usefixtures("shared_weft_session")


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def used_bytes() -> int:
    return int(rpc.request("statistics")["used_bytes"])


@pytest.fixture(autouse=True)
def _at_rest() -> None:
    """Workers let go of what the test before has made in their own time."""
    wait_until(lambda: used_bytes() == 0)


def mappings() -> int:
    return sum("memfd:weft" in line for line in Path("/proc/self/maps").read_text().splitlines())


# ---- get(writable=True) ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])
def test_each_reader_writes_to_its_own_copy(size: int) -> None:
    ref = weft.put(np.zeros(size))
    plain = weft.get(ref)
    first, second = weft.get([ref, ref], writable=True)
    first[0], second[-1] = 1, 2
    assert (first[0], first[-1]) == (1, 0)
    assert (second[0], second[-1]) == (0, 2)
    assert plain.sum() == 0
    assert weft.get(ref).sum() == 0
    with pytest.raises(ValueError, match="read-only"):
        plain[0] = 1


def test_frames_of_pandas_can_be_changed() -> None:
    pd = pytest.importorskip("pandas")
    ref = weft.put(pd.DataFrame({"a": np.zeros(LARGE), "b": np.arange(LARGE)}))
    frame = weft.get(ref, writable=True)
    frame.loc[0, "a"] = 5.0
    frame["b"].to_numpy()[:] = 0
    assert frame["a"].sum() == 5
    assert weft.get(ref)["a"].sum() == 0
    assert weft.get(ref)["b"].sum() == np.arange(LARGE).sum()


def test_what_was_read_only_when_it_was_put_is_writable_too() -> None:
    ref = weft.put({"x": weft.get(weft.put(np.zeros(LARGE)))})
    weft.get(ref, writable=True)["x"][0] = 1
    assert weft.get(ref)["x"][0] == 0


def test_values_without_buffers_and_errors_are_as_always() -> None:
    assert weft.get([weft.put(1), weft.put("x"), weft.put({"a": [b"z" * LARGE]})], writable=True)[:2] == [1, "x"]
    with pytest.raises(TypeError, match="writable must be True or False"):
        weft.get(weft.put(1), writable="yes")  # type: ignore[call-overload]


def test_no_mapping_and_no_pin_is_left(torch: Any) -> None:
    """The short form of a hundred thousand passes."""
    ref = weft.put({"t": torch.zeros(LARGE), "n": np.zeros(LARGE)})
    weft.get(ref, writable=True)
    gc.collect()
    before, used = mappings(), used_bytes()
    for number in range(2000):
        value = weft.get(ref, writable=number % 2 == 0)
        value["t"][0] += 1
        assert value["t"][0] == 1
    kept = weft.put(value["t"])
    del value
    gc.collect()
    assert mappings() == before
    del ref, kept
    assert comes_true(lambda: used_bytes() < used, HANG_S)


def test_a_reader_keeps_the_bytes_when_the_last_ref_is_gone(torch: Any) -> None:
    value = weft.get(weft.put(torch.ones(LARGE)))
    others = [weft.put(torch.zeros(LARGE)) for _ in range(20)]
    assert value.sum() == LARGE
    del others


def test_a_fork_and_its_parent_do_not_see_what_the_other_writes(torch: Any) -> None:
    value = weft.get(weft.put(torch.zeros(LARGE)))
    filling = weft.empty(LARGE)
    filling[:] = 1
    child = os.fork()
    if child == 0:
        try:
            value[0] = 1
            filling[0] = 7
            ok = bool(value[1] == 0) and filling[1] == 1
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert value.sum() == 0
    assert filling.sum() == LARGE
    assert weft.get(weft.put(filling)).sum() == LARGE


def test_more_values_than_a_process_has_mappings_can_be_written_to() -> None:
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    if most > 70_000:
        pytest.skip(f"a process may have {most} mappings here")
    ref = weft.put(np.zeros(16_000))
    held = weft.get([ref] * (most // 2 + 100), writable=True)
    assert mappings() < most // 2 + 100
    for number, array in enumerate(held[-200:]):  # some of them mapped, the others copied
        array[0] = number
    assert [array[0] for array in held[-200:]] == list(range(200))
    assert held[0][0] == weft.get(ref)[0] == 0
    filled = weft.empty(LARGE)
    filled[:] = 1
    assert weft.get(weft.put(filled)).sum() == LARGE


# ---- arguments -------------------------------------------------------------------------------------


def add_one(array: Any, small: Any = None) -> float:
    array += 1
    if small is not None:
        small += 1
    return float(array.sum())


def test_a_task_may_write_to_its_arguments_where_it_says_so() -> None:
    zeros = np.zeros(LARGE)
    ref = weft.put(zeros)
    task = weft.remote(writable_args=True)(add_one)
    assert weft.get([task.remote(ref, np.zeros(3)), task.remote(zeros), task.remote(array=ref)]) == [LARGE] * 3
    assert weft.get(weft.remote(add_one).options(writable_args=True).remote(ref)) == LARGE
    assert weft.get(ref).sum() == zeros.sum() == 0


def test_a_method_may_too() -> None:
    @weft.remote
    class Adder:
        @weft.method(writable_args=True)
        def add(self, array: Any) -> float:
            return add_one(array)

        def add_in_vain(self, array: Any) -> float:
            return add_one(array)

    ref = weft.put(np.zeros(LARGE))
    adder = Adder.remote()
    assert weft.get([adder.add.remote(ref), adder.add.remote(ref)]) == [LARGE, LARGE]
    with pytest.raises(ValueError, match="read-only"):
        weft.get(adder.add_in_vain.remote(ref))
    assert weft.get(adder.add_in_vain.options(writable_args=True).remote(ref)) == LARGE


@pytest.mark.skipif(not hasattr(BaseException, "add_note"), reason="this Python has no notes")
def test_the_error_of_a_write_says_how_to_go_on() -> None:
    with pytest.raises(ValueError, match=r"writable_args=True") as caught:
        weft.get(weft.remote(add_one).remote(weft.put(np.zeros(LARGE))))
    assert "weft.get(ref, writable=True)" in str(caught.value)


# ---- weft.empty ------------------------------------------------------------------------------------


def test_what_was_filled_in_place_is_put_without_a_copy() -> None:
    array = weft.empty((400, 500), np.float32)
    used = used_bytes()
    array[:] = 3
    ref = weft.put(array)
    assert used_bytes() == used
    assert weft.get(ref).shape == (400, 500)
    assert (weft.get(ref) == 3).all()
    array[0, 0] = 4  # its own from now on
    assert weft.get(ref)[0, 0] == 3
    assert weft.get(weft.put(array))[0, 0] == 4


@pytest.mark.parametrize("shape", [0, 5, (0, 3), LARGE, (2, LARGE)])
def test_arrays_of_all_shapes_are_as_those_of_numpy(shape: Any) -> None:
    for dtype in (float, np.uint8, [("a", "i4"), ("b", "f8")]):
        for order in ("C", "F"):
            array, other = weft.empty(shape, dtype, order), np.empty(shape, dtype, order=order)
            assert (array.shape, array.dtype, array.strides) == (other.shape, other.dtype, other.strides)
            array[...] = 0
            assert (weft.get(weft.put(array)) == array).all()


def test_parts_and_groups_of_arrays_are_copied() -> None:
    one, two = weft.empty(LARGE), weft.empty(LARGE)
    one[:], two[:] = 1, 2
    assert weft.get(weft.put(one[5:])).sum() == LARGE - 5
    assert weft.get(weft.put({"a": one, "b": two}))["b"].sum() == 2 * LARGE
    assert weft.get(weft.put({"a": one}))["a"].sum() == LARGE
    assert weft.get(weft.put(one.reshape(2, -1).T)).shape == (LARGE // 2, 2)


def test_tensors_too(torch: Any) -> None:
    tensor = weft.empty((2, LARGE), torch.bfloat16)
    tensor.fill_(2)
    used = used_bytes()
    ref = weft.put(tensor)
    assert used_bytes() == used
    tensor[0, 0] = 9
    assert (weft.get(ref) == 2).all()
    assert weft.empty(3, torch.float32).shape == (3,)


def test_a_task_returns_what_it_has_filled() -> None:
    @weft.remote
    def fill(number: int) -> Any:
        array = weft.empty(LARGE)
        array[:] = number
        return array

    assert [weft.get(fill.remote(number)).sum() for number in (1, 2)] == [LARGE, 2 * LARGE]


def test_what_is_never_put_goes_with_its_array() -> None:
    used = used_bytes()
    array = weft.empty(LARGE)
    view = array[3:]
    assert used_bytes() > used
    del array, view
    assert used_bytes() == used


def test_python_objects_have_no_place_in_it() -> None:
    with pytest.raises(TypeError, match="no Python objects"):
        weft.empty(3, object)
