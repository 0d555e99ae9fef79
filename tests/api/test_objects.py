"""put, get, wait and what refs can do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import time
from typing import Any

import numpy as np
import pytest

import weft
from weft.exceptions import GetTimeoutError

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
def echo(x: Any) -> Any:
    return x


@weft.remote
class Gate:
    """Opens when told to; a call of `wait` ends only then."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self, value: Any = None) -> Any:
        await self.event.wait()
        return value

    async def open(self) -> None:
        self.event.set()


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**70), 1.5, "text ü", b"bytes", [1, [2, [3]]], (1,), {"a": {1, 2}}, range(3), {1: object}],
    ids=str,
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert weft.get(weft.put(value)) == value
    assert weft.get(echo.remote(value)) == value


@pytest.mark.parametrize("size", [0, 1, 1000, 65_536, 10_000_000])
def test_bytes_of_all_sizes_come_back(size: int) -> None:
    data = bytes(size)
    assert weft.get(echo.remote(weft.put(data))) == data


def test_an_array_is_read_in_place_and_read_only() -> None:
    array = weft.get(weft.put(np.ones((1000, 1000))))
    assert array.sum() == 1e6
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 2


@pytest.mark.parametrize("numbers", [200, 6000, 100_000])
def test_arrays_begin_at_a_line_of_the_cache_wherever_their_bytes_travel(numbers: int) -> None:
    kept = [weft.get(weft.put(np.full(numbers, float(i)))) for i in range(8)]
    assert {array.ctypes.data % 64 for array in kept} == {0}
    assert all((array == i).all() for i, array in enumerate(kept))


def test_pandas_and_arrow_come_back() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": np.arange(100_000), "b": ["x"] * 100_000})
    assert weft.get(echo.remote(frame)).equals(frame)
    table = pyarrow.table({"a": list(range(1000))})
    assert weft.get(weft.put(table)).equals(table)


@pytest.mark.parametrize(
    "values",
    [
        list(range(5000)),
        [*range(1000), 0.5, True, -(2**63), 2**63 - 1],
        [*range(1000), 2**63],
        [*range(1000), None],
        [*range(1000), "text"],
        tuple(float(x) for x in range(1250)),
        (tuple(range(1000)), tuple(range(1000))),
        [float("inf")] * 4096,
    ],
)
def test_long_sequences_of_numbers_come_back_as_they_were(values: Any) -> None:
    for back in (weft.get(weft.put(values)), weft.get(echo.remote(values))):
        assert back == values
        assert [type(item) for item in back] == [type(item) for item in values]


def test_get_takes_a_list_and_keeps_its_order() -> None:
    assert weft.get([echo.remote(i) for i in range(50)]) == list(range(50))
    assert weft.get([]) == []


@pytest.mark.parametrize("wrong", [3, "ref", None, (1,), {"a": 1}])
def test_get_of_something_else_says_what_it_got(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Invalid type of object refs, <class"):
        weft.get(wrong)


def test_get_of_a_list_with_something_else_says_which() -> None:
    with pytest.raises(ValueError, match="is given in the list"):
        weft.get([weft.put(1), 3])


def test_get_waits_no_longer_than_it_may() -> None:
    gate = Gate.remote()
    ref = gate.wait.remote(7)
    with pytest.raises(GetTimeoutError):
        weft.get(ref, timeout=0)
    with pytest.raises(TimeoutError):
        weft.get([ref], timeout=0.01)
    weft.get(gate.open.remote())
    assert weft.get(ref, timeout=60) == 7
    assert weft.get(ref, timeout=0) == 7


@pytest.mark.parametrize(("timeout", "error"), [(-2, ValueError), ("1", TypeError), (True, TypeError)])
def test_a_wrong_timeout_is_refused(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        weft.get(weft.put(1), timeout=timeout)


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"name": "a ref"}, {"durable": True}, {"replicas": 2}])
def test_put_of_a_ref_is_refused_with_advice(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"put.*not allowed.*put\(\[ref\]\)"):
        weft.put(weft.put(1), **options)


def test_put_of_something_unpicklable_names_it() -> None:
    import threading

    with pytest.raises(TypeError, match=r"\['a'\]\[0\] of type _thread\.lock"):
        weft.put({"a": [threading.Lock()]})


def test_wait_splits_in_the_order_given() -> None:
    gate = Gate.remote()
    late, done = gate.wait.remote(), weft.put(1)
    assert weft.wait([late, done], num_returns=1) == ([done], [late])
    assert weft.wait([late], timeout=0) == ([], [late])
    weft.get(gate.open.remote())
    assert weft.wait([late, done], num_returns=2, timeout=60) == ([late, done], [])
    assert weft.wait([]) == ([], [])


@pytest.mark.parametrize(
    ("refs", "num_returns", "error"),
    [
        ("single", 1, TypeError),
        ("tuple", 1, TypeError),
        ("wrong", 1, TypeError),
        ("twins", 1, ValueError),
        ("list", 0, ValueError),
        ("list", 3, ValueError),
        ("list", 1.5, TypeError),
    ],
)
def test_wait_checks_its_arguments(refs: str, num_returns: Any, error: type[Exception]) -> None:
    one, two = weft.put(1), weft.put(2)
    given: Any = {"single": one, "tuple": (one,), "wrong": [one, 3], "twins": [one, one], "list": [one, two]}[refs]
    with pytest.raises(error):
        weft.wait(given, num_returns=num_returns)


def test_wait_counts_a_failed_task_as_ready() -> None:
    @weft.remote
    def fail() -> None:
        raise ValueError

    ready, _ = weft.wait([fail.remote()], timeout=30)
    assert len(ready) == 1


def test_many_refs_are_drained_one_by_one() -> None:
    pending = [echo.remote(i) for i in range(500)]
    seen = []
    while pending:
        [ready], pending = weft.wait(pending)
        seen.append(weft.get(ready))
    assert sorted(seen) == list(range(500))


def test_refs_are_equal_by_what_they_name() -> None:
    ref = weft.put(1)
    [again] = weft.get(echo.remote([ref]))
    assert again == ref
    assert hash(again) == hash(ref)
    assert len({ref, again}) == 1
    assert weft.put(1) != ref
    assert repr(ref) == f"ObjectRef({ref.hex()})"
    assert weft.ObjectID is weft.ObjectRef


def test_a_ref_can_be_awaited() -> None:
    async def main() -> Any:
        return await echo.remote(1), await asyncio.gather(*[echo.remote(i) for i in range(20)])

    assert asyncio.run(main()) == (1, list(range(20)))


def test_an_awaited_failure_raises() -> None:
    @weft.remote
    def fail() -> None:
        raise KeyError("k")

    async def main() -> None:
        await fail.remote()

    with pytest.raises(KeyError):
        asyncio.run(main())


def test_a_ref_can_be_awaited_twice_and_given_up() -> None:
    async def main() -> Any:
        gate = Gate.remote()
        ref = gate.wait.remote(3)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(ref), timeout=0.01)
        await gate.open.remote()
        return await ref, await ref

    assert asyncio.run(main()) == (3, 3)


def test_a_ref_gives_a_thread_safe_future() -> None:
    future = echo.remote(5).future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=30) == 5
    done, _ = concurrent.futures.wait([echo.remote(i).future() for i in range(5)], timeout=30)
    assert sorted(entry.result() for entry in done) == [0, 1, 2, 3, 4]


def test_a_failed_ref_gives_a_failed_future() -> None:
    @weft.remote
    def fail() -> None:
        raise KeyError("k")

    assert isinstance(fail.remote().future().exception(timeout=30), KeyError)


def test_the_ref_type_can_be_subscripted() -> None:
    assert "ObjectRef" in str(weft.ObjectRef[int])


def test_recursive_values_can_be_stored() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    again = weft.get(weft.put(value))
    assert again["self"] is again


class Dereferencing:
    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def __reduce__(self) -> Any:
        return weft.get, (self.ref,)


def test_a_value_may_get_another_while_it_is_unpickled() -> None:
    ref = weft.put(42)
    for _ in range(5):
        ref = weft.put(Dereferencing(ref))
    assert weft.get(ref) == 42


def test_a_ref_pickled_by_hand_still_works() -> None:
    ref = weft.put([1, 2])
    assert weft.get(pickle.loads(pickle.dumps(ref))) == [1, 2]


def test_refs_are_counted_back_to_nothing() -> None:
    from weft import _native

    def settled(count: int) -> bool:
        deadline = time.monotonic() + 10
        while _native.statistics()["objects_owned"] > count:
            if time.monotonic() > deadline:
                return False
            weft.get(echo.remote(0))
        return True

    before = _native.statistics()["objects_owned"]
    refs = [echo.remote([weft.put(bytes(100_000))]) for _ in range(20)]
    weft.get(refs)
    del refs
    assert settled(before)
