"""The check of a call against a function's parameters says what Python says."""

from __future__ import annotations

from typing import Any

import pytest

from weft.engine.process.calls.parameters import Parameters


def f0() -> None: ...
def f1(a: Any) -> None: ...
def f2(a: Any, b: Any = 1) -> None: ...
def f3(a: Any, /, b: Any, *, c: Any, d: Any = 1) -> None: ...
def f4(*args: Any, **kwargs: Any) -> None: ...
def f5(a: Any, *args: Any, c: Any = 1, **kwargs: Any) -> None: ...


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((), {"a": 1}),
    ((1,), {"a": 1}),
    ((1,), {"b": 1}),
    ((1,), {"b": 1, "c": 2}),
    ((1, 2), {"c": 1}),
    ((1, 2), {"c": 1, "d": 2, "e": 3}),
    ((), {"a": 1, "b": 2, "c": 3}),
    ((), {"x": 1}),
]


@pytest.mark.parametrize("function", [f0, f1, f2, f3, f4, f5])
@pytest.mark.parametrize(("args", "kwargs"), CALLS)
def test_a_call_is_refused_exactly_when_python_refuses_it(function: Any, args: Any, kwargs: Any) -> None:
    parameters = Parameters.of(function)
    assert parameters is not None
    try:
        function(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError, match=function.__name__):
            parameters.check(function.__name__, args, kwargs)
        least, most = parameters.plain_range()
        assert kwargs or not least <= len(args) <= most
    else:
        parameters.check(function.__name__, args, kwargs)


def test_self_is_not_the_callers() -> None:
    class A:
        def method(self, x: int) -> None: ...

    parameters = Parameters.of(A.method, skip=1)
    assert parameters is not None
    assert parameters.positional == ("x",)
    assert parameters.plain_range() == (1, 1)


def test_a_builtin_is_not_checked() -> None:
    assert Parameters.of(print) is None
