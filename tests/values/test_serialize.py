"""Pickling: what goes fast, what goes by value, and who is to blame when it fails."""

from __future__ import annotations

import dataclasses
import functools
import io
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from weft.util.check_serialize import inspect_serializability
from weft.values import culprit, serialize


def round_trip(value: Any) -> Any:
    data, buffers = serialize.serialize(value)
    return serialize.deserialize(data, [memoryview(bytes(buffer)) for buffer in buffers])


def test_an_arrays_memory_is_not_copied_into_the_pickle() -> None:
    array = np.arange(100_000)
    data, buffers = serialize.serialize({"x": array})
    assert len(data) < 1000
    assert len(buffers) == 1
    assert np.shares_memory(np.frombuffer(buffers[0], array.dtype), array)
    assert (round_trip({"x": array})["x"] == array).all()


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(100)[::3],
        np.array([], dtype=np.float32),
        np.zeros((2, 0)),
        np.array("text"),
        np.array([{"a": 1}, None], dtype=object),
        np.float32(1.5),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
    ids=str,
)
def test_all_kinds_of_arrays_come_back(array: Any) -> None:
    again = round_trip(array)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


def test_only_values_that_a_worker_can_import_take_the_fast_path() -> None:
    assert serialize.fast_path([1, "a", np.ones(3), {"k": (None, b"x")}])
    assert not serialize.fast_path([lambda: 1])
    assert not serialize.fast_path({"k": dataclasses.make_dataclass("Local", ["x"])(1)})
    assert not serialize.fast_path(np.array([object()], dtype=object))
    assert not serialize.fast_path(list(range(10_000)))


def test_a_list_that_holds_itself_is_pickled() -> None:
    value: list[Any] = [1]
    value.append(value)
    again = round_trip(value)
    assert again[1] is again


def test_local_functions_and_classes_are_pickled_by_value() -> None:
    class Local:
        def double(self, x: int) -> int:
            return 2 * x

    offset = 3
    again, function = round_trip((Local(), lambda x: x + offset))
    assert again.double(4) == 8
    assert function(1) == 4


def test_a_registered_serializer_is_used_until_it_is_taken_back() -> None:
    class WithLock:
        def __init__(self, x: int) -> None:
            self.x, self.lock = x, threading.Lock()

    serialize.register_serializer(WithLock, serializer=lambda value: value.x, deserializer=WithLock)
    try:
        assert round_trip([WithLock(7)])[0].x == 7
    finally:
        serialize.deregister_serializer(WithLock)
    serialize.deregister_serializer(WithLock)
    with pytest.raises(TypeError):
        round_trip(WithLock(7))


class Database:
    def __init__(self) -> None:
        self._lock = threading.Lock()


class Service:
    def __init__(self) -> None:
        self.db = Database()


class Slotted:
    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner = threading.Lock()


def a_function_with_a_lock() -> Any:
    lock = threading.Lock()
    return lambda: lock


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (threading.Lock(), "v"),
        (Service(), "v.db._lock"),
        ([1, {"a": (Service(),)}], "v[1]['a'][0].db._lock"),
        (Slotted(), "v.inner"),
        (functools.partial(print, Service()), "v.args[0].db._lock"),
        (a_function_with_a_lock(), "v.<closure>.lock"),
        (Service().db.__init__, "v.__self__._lock"),
    ],
    ids=["itself", "attributes", "containers", "slots", "partial", "closure", "method"],
)
def test_the_path_to_the_culprit_is_found(value: Any, path: str) -> None:
    found = culprit.find_culprit(value, "v")
    assert found.path == path
    assert culprit.type_name(found.obj) == "_thread.lock"


def test_the_message_says_what_where_and_what_to_do() -> None:
    with pytest.raises(TypeError) as caught:
        pickle.dumps(Service())
    text = str(culprit.explain(Service(), "args[0]", " of task f", caught.value))
    assert text.startswith("Could not serialize args[0].db._lock of type _thread.lock of task f: cannot pickle")
    assert "__getstate__" in text


def test_a_recursive_value_does_not_confuse_the_search() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    value["lock"] = threading.Lock()
    assert culprit.find_culprit(value, "v").path == "v['lock']"


def test_inspect_serializability_names_the_culprit() -> None:
    lock = threading.Lock()

    def task() -> object:
        return lock

    out = io.StringIO()
    fine, failures = inspect_serializability(task, name="my_task", print_file=out)
    assert not fine
    assert [failure.obj for failure in failures] == [lock]
    assert [failure.path for failure in failures] == ["my_task.<closure>.lock"]
    assert "FAILED" in out.getvalue()


def test_inspect_serializability_says_when_only_the_whole_fails() -> None:
    class Tricky:
        def __reduce__(self) -> Any:
            raise TypeError("cannot pickle 'Tricky' object")

    out = io.StringIO()
    inspect_serializability(Tricky(), print_file=out)
    assert "WARNING" in out.getvalue()
    assert "inspect_serializability" in out.getvalue()


def test_inspect_serializability_is_content_with_what_is_fine() -> None:
    assert inspect_serializability([1, 2], print_file=io.StringIO()) == (True, set())
