"""Remote functions: calls, arguments, returns, options, misuse."""

from __future__ import annotations

import os
import sys
import time
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
def add(a: int, b: int = 10) -> int:
    """Adds."""
    return a + b


def test_a_task_runs_in_another_process() -> None:
    @weft.remote
    def pid() -> int:
        return os.getpid()

    assert weft.get(pid.remote()) != os.getpid()


def test_arguments_can_be_positional_named_and_defaulted() -> None:
    assert weft.get([add.remote(1, 2), add.remote(1), add.remote(b=3, a=1)]) == [3, 11, 4]


def test_star_arguments_arrive_as_given() -> None:
    @weft.remote
    def echo(a: Any = "x", *args: Any, **kwargs: Any) -> Any:
        return a, args, kwargs

    assert weft.get(echo.remote(1, 2, 3, k=4)) == (1, (2, 3), {"k": 4})
    assert weft.get(echo.remote(k=4)) == ("x", (), {"k": 4})


def test_refs_at_the_top_are_resolved_and_nested_ones_are_not() -> None:
    @weft.remote
    def kinds(value: Any, nested: list[Any]) -> Any:
        return type(value).__name__, type(nested[0]).__name__, weft.get(nested[0])

    assert weft.get(kinds.remote(weft.put(1), [weft.put(2)])) == ("int", "ObjectRef", 2)


def test_tasks_depend_on_each_other() -> None:
    ref = add.remote(0, 0)
    for _ in range(100):
        ref = add.remote(ref, 1)
    assert weft.get(ref) == 100


def test_a_task_may_submit_tasks_to_any_depth() -> None:
    @weft.remote
    def nested(depth: int) -> int:
        return 0 if depth == 0 else 1 + weft.get(nested.remote(depth - 1))

    assert weft.get(nested.remote(8)) == 8


def test_several_values_can_be_returned() -> None:
    @weft.remote(num_returns=3)
    def three() -> Any:
        return 1, 2, 3

    @weft.remote(num_returns=0)
    def none() -> None:
        return None

    assert weft.get(three.remote()) == [1, 2, 3]
    assert none.remote() is None
    assert weft.get(three.options(num_returns=1).remote()) == (1, 2, 3)


def test_a_wrong_number_of_values_is_an_error_that_says_so() -> None:
    @weft.remote(num_returns=2)
    def one() -> Any:
        return (1,)

    with pytest.raises(ValueError, match="num_returns=2"):
        weft.get(one.remote()[0])


def test_closures_lambdas_and_local_classes_travel() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    offset = 5

    @weft.remote
    def shift(point: Point) -> Point:
        return Point(point.x + offset)

    assert weft.get(shift.remote(Point(1))).x == 6
    assert isinstance(weft.get(shift.remote(Point(1))), Point)
    assert weft.get(weft.remote(lambda x: x * 2).remote(4)) == 8


def test_a_redefined_function_is_the_new_one() -> None:
    @weft.remote
    def version() -> int:
        return 1

    first = version.remote()

    @weft.remote  # type: ignore[no-redef]
    def version() -> int:
        return 2

    assert weft.get([first, version.remote()]) == [1, 2]


def test_a_recursive_function_refers_to_itself() -> None:
    @weft.remote
    def fib(n: int) -> int:
        return n if n < 2 else sum(weft.get([fib.remote(n - 1), fib.remote(n - 2)]))

    assert weft.get(fib.remote(6)) == 8


def test_options_change_one_call_only() -> None:
    @weft.remote
    def name() -> Any:
        return weft.get_runtime_context().get_task_name()

    assert weft.get([name.options(name="special").remote(), name.remote()]) == ["special", "name"]
    assert name.options(name="special") is name.options(name="special")


def test_a_remote_function_keeps_its_name_and_documentation() -> None:
    import inspect

    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."
    assert list(inspect.signature(add).parameters) == ["a", "b"]


def test_a_remote_function_can_be_passed_to_a_task() -> None:
    @weft.remote
    def call(function: Any, x: int) -> int:
        return weft.get(function.remote(x))

    assert weft.get(call.remote(add, 1)) == 11


def test_calling_a_remote_function_directly_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"try '.*add\.remote\(\)'"):
        add(1, 2)


def test_a_coroutine_function_can_not_be_a_task() -> None:
    with pytest.raises(ValueError, match="'async def' should not be used for remote tasks"):

        @weft.remote
        async def f() -> None: ...


@pytest.mark.parametrize("target", [3, "f", None])
def test_only_functions_and_classes_can_be_remote(target: Any) -> None:
    with pytest.raises(TypeError, match="must be applied"):
        weft.remote(target)


def test_the_decorator_wants_keywords_or_nothing() -> None:
    with pytest.raises(TypeError, match="with options as keywords"):
        weft.remote()
    with pytest.raises(ValueError, match="Invalid option keyword nonsense"):
        weft.remote(nonsense=1)(lambda: None)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((1, 2, 3), {}, "takes 2 positional arguments but 3 were given"),
        ((1,), {"c": 2}, "unexpected keyword argument 'c'"),
        ((1,), {"a": 2}, "multiple values for argument 'a'"),
    ],
)
def test_a_wrong_call_raises_where_it_is_made(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        add.remote(*args, **kwargs)


def test_a_large_closure_is_refused_with_advice() -> None:
    big = bytearray(100 * 2**20)

    @weft.remote
    def f() -> int:
        return len(big)

    with pytest.raises(ValueError, match=r"The remote function .*f is too large.*weft\.put"):
        f.remote()


def test_a_function_that_captures_a_lock_names_it() -> None:
    import threading

    lock = threading.Lock()

    @weft.remote
    def guarded() -> None:
        with lock:
            pass

    with pytest.raises(TypeError, match=r"guarded\.<closure>\.lock of type _thread\.lock captured by .*guarded"):
        guarded.remote()


def test_an_argument_that_can_not_be_pickled_is_named() -> None:
    import threading

    class Database:
        def __init__(self) -> None:
            self._lock = threading.Lock()

    with pytest.raises(TypeError, match=r"args\[0\]\._lock of type _thread\.lock of task add: "):
        add.remote(Database())
    with pytest.raises(TypeError, match=r"kwargs\['b'\]\._lock of type _thread\.lock of task add: "):
        add.remote(1, b=Database())


def test_a_result_that_can_not_be_pickled_is_named() -> None:
    @weft.remote
    def make() -> Any:
        import threading

        return {"lock": threading.Lock()}

    with pytest.raises(TypeError, match=r"result\['lock'\] of type _thread\.lock of task make"):
        weft.get(make.remote())


def test_workers_import_what_the_driver_can(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("VALUE = 42\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import weft, only_here\n"
        "@weft.remote\n"
        "def f():\n"
        "    import only_here\n"
        "    return only_here.VALUE\n"
        "weft.init(num_cpus=1)\n"
        "print(weft.get(f.remote()))\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr


def test_workers_limit_their_blas_threads() -> None:
    @weft.remote
    def threads() -> Any:
        return os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]

    assert weft.get(threads.remote()) == ("1", "1")


def test_a_large_array_is_passed_without_copies() -> None:
    array = np.arange(1_000_000)

    @weft.remote
    def total(values: Any) -> Any:
        return int(values.sum()), values.flags.writeable

    assert weft.get(total.remote(array)) == (int(array.sum()), False)
    assert weft.get(total.remote(weft.put(array))) == (int(array.sum()), False)


def test_tasks_with_custom_resources_wait_for_them(shared_weft_session: ModuleType) -> None:
    @weft.remote(num_cpus=2)
    def wide() -> float:
        return time.monotonic()

    assert len(weft.get([wide.remote() for _ in range(3)])) == 3


def test_exceptions_are_retried_when_asked(tmp_path: Any) -> None:
    @weft.remote(max_retries=3, retry_exceptions=[KeyError])
    def flaky(path: str, error: type[Exception]) -> int:
        with open(path, "a") as file:
            file.write("x")
        tries = os.path.getsize(path)
        if tries < 3:
            raise error(tries)
        return tries

    assert weft.get(flaky.remote(str(tmp_path / "a"), KeyError)) == 3
    with pytest.raises(IndexError):
        weft.get(flaky.remote(str(tmp_path / "b"), IndexError))
