"""Errors keep their class, their story and their causes on the way from a worker to the caller."""

from __future__ import annotations

import builtins
import pickle
import sys
from typing import Any

import pytest

from weft import exceptions
from weft.engine.process.calls import errors
from weft.exceptions import ActorDiedError, TaskError, UnserializableException, WeftError

needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")


def travel(error: BaseException, name: str = "f") -> BaseException:
    """What the caller gets for what a task raised."""
    return errors.load_error(errors.dump_error(error, name)[0])


def raised(error: BaseException) -> BaseException:
    """With a traceback, as a task's is."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_exception_comes_back_as_its_own_type_and_as_a_task_error() -> None:
    error = travel(raised(ValueError("seven")))
    assert isinstance(error, ValueError)
    assert isinstance(error, TaskError)
    assert type(error).__name__ == "TaskError(ValueError)"
    assert isinstance(error.cause, ValueError)
    assert error.cause.args == ("seven",)


def test_the_remote_traceback_is_in_the_text_without_the_engines_frames() -> None:
    text = str(travel(raised(ValueError("seven")), "load_shard"))
    assert text.startswith("weft::load_shard() (pid=")
    assert "in raised" in text
    assert text.endswith("ValueError: seven")
    assert "engine/process" not in text


def test_fields_of_the_cause_can_be_read() -> None:
    class Odd(Exception):
        def __init__(self, code: int, *, hint: str) -> None:
            super().__init__(code)
            self.code, self.hint = code, hint

        def __reduce__(self) -> Any:
            return _make_odd, (Odd, self.code, self.hint)

    error = travel(raised(Odd(7, hint="turn it off")))
    assert isinstance(error, TaskError)
    assert error.code == 7  # type: ignore[attr-defined]
    assert error.hint == "turn it off"  # type: ignore[attr-defined]


def _make_odd(cls: Any, code: int, hint: str) -> Any:
    return cls(code, hint=hint)


def test_builtin_fields_are_filled() -> None:
    error = travel(raised(FileNotFoundError(2, "No such file", "data.csv")))
    assert isinstance(error, OSError)
    assert (error.errno, error.filename) == (2, "data.csv")
    assert travel(raised(StopIteration(3))).value == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [KeyError("k"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")])
def test_odd_builtin_classes_come_back(error: BaseException) -> None:
    assert isinstance(travel(raised(error)), type(error))


def test_an_interrupt_that_a_task_raises_is_not_one_of_who_waits() -> None:
    error = travel(raised(KeyboardInterrupt("abc")))
    assert isinstance(error, exceptions.TaskCancelledError)
    assert "KeyboardInterrupt: abc" in str(error)


def test_an_exception_that_is_no_exception_subclass_comes_back() -> None:
    class Special(BaseException):
        pass

    assert isinstance(travel(raised(Special("abc"))), Special)


def test_read_only_args_do_no_harm() -> None:
    class ReadOnly(Exception):
        def __init__(self, text: str) -> None:
            self._text = text

        @property
        def args(self) -> Any:  # type: ignore[override]
            return (self._text,)

        def __str__(self) -> str:
            return self._text

    error = travel(raised(ReadOnly("boom")))
    assert isinstance(error, ReadOnly)
    assert error.args == (error.cause,)  # type: ignore[attr-defined]
    assert "boom" in str(error)


def test_a_final_class_comes_back_as_the_cause() -> None:
    class Final(Exception):
        def __init_subclass__(cls) -> None:
            raise TypeError("Final is final")

    error = travel(raised(Final("no heirs")))
    assert type(error) is TaskError
    assert isinstance(error.cause, Final)


def test_an_unpicklable_exception_comes_back_with_its_text() -> None:
    import threading

    class Holder(Exception):
        def __init__(self) -> None:
            super().__init__("holds a lock")
            self.lock = threading.Lock()

    error = travel(raised(Holder()))
    assert isinstance(error, TaskError)
    assert isinstance(error.cause, WeftError)
    assert "isn't serializable" in str(error.cause)
    assert "holds a lock" in str(error)


def test_an_exception_that_can_not_be_unpickled_comes_back_with_its_text() -> None:
    class TwoArguments(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    error = travel(raised(TwoArguments(1, 2)))
    assert isinstance(error, UnserializableException)
    assert "1 and 2" in str(error)


def test_causes_are_kept() -> None:
    def fail() -> None:
        try:
            {}["key"]
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError) as caught:
        fail()
    error = travel(caught.value)
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, KeyError)
    assert "direct cause" in str(error)


@needs_groups
def test_exception_groups_come_back_as_groups() -> None:
    group = builtins.ExceptionGroup("several", [ValueError(1), KeyError(2)])
    error = travel(raised(group))
    assert isinstance(error, builtins.ExceptionGroup)
    assert isinstance(error, TaskError)
    assert [type(inner) for inner in error.exceptions] == [ValueError, KeyError]


@needs_groups
def test_a_group_of_base_exceptions_comes_back_as_a_task_error() -> None:
    error = travel(raised(builtins.BaseExceptionGroup("several", [BaseException("abc")])))
    assert isinstance(error, TaskError)


def test_an_error_that_passed_through_two_tasks_keeps_its_class() -> None:
    inner = travel(raised(ZeroDivisionError("division by zero")), "bar")
    outer = travel(raised(inner), "foo")
    assert isinstance(outer, ZeroDivisionError)
    assert isinstance(outer, TaskError)
    assert "weft::foo()" in str(outer)
    assert "weft::bar()" in str(outer)


def test_errors_survive_pickling() -> None:
    error = travel(raised(ValueError("seven")))
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ValueError)
    assert isinstance(again, TaskError)
    assert str(again) == str(error)
    died = pickle.loads(pickle.dumps(ActorDiedError("it is gone", "ab12")))
    assert (str(died), died.actor_id) == ("it is gone", "ab12")


@pytest.mark.parametrize("name", [name for name in dir(exceptions) if name.endswith(("Error", "Exit", "Removed"))])
def test_every_public_error_survives_pickling(name: str) -> None:
    cls = getattr(exceptions, name)
    error = cls()
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)


def test_a_failed_constructor_is_the_actors_death() -> None:
    error = travel(raised(ValueError("bad start")), "Counter.__init__")
    assert isinstance(error, ActorDiedError)
    assert error.actor_init_failed
    assert "bad start" in str(error)


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (1, exceptions.WorkerCrashedError),
        (2, exceptions.ActorDiedError),
        (3, exceptions.OwnerDiedError),
        (4, exceptions.ObjectLostError),
        (5, exceptions.TaskCancelledError),
        (6, exceptions.NodeDiedError),
        (7, exceptions.ActorUnavailableError),
        (8, exceptions.ObjectStoreFullError),
        (9, exceptions.GetTimeoutError),
        (200, exceptions.SystemFailureError),
    ],
)
def test_the_engines_own_errors_have_classes(code: int, cls: type[Exception]) -> None:
    error = errors.load_error(bytes((ord("S"), code)) + "what happened: ü".encode())
    assert type(error) is cls
    assert "what happened: ü" in str(error)


def test_a_get_timeout_is_a_timeout() -> None:
    assert issubclass(exceptions.GetTimeoutError, TimeoutError)


def test_rays_names_are_the_same_classes() -> None:
    assert exceptions.RayError is exceptions.WeftError
    assert exceptions.RayTaskError is exceptions.TaskError
    assert exceptions.RayActorError is exceptions.ActorError
    assert issubclass(exceptions.ActorDiedError, exceptions.RayActorError)
    assert issubclass(exceptions.OwnerDiedError, exceptions.ObjectLostError)


def test_only_listed_exceptions_are_retried() -> None:
    types = pickle.dumps((ValueError,))
    assert errors.dump_error(ValueError(), "f", types)[1]
    assert not errors.dump_error(KeyError(), "f", types)[1]
    assert errors.dump_error(KeyError(), "f", b"")[1]
    assert not errors.dump_error(KeyboardInterrupt(), "f", b"")[1]


def test_a_reply_names_its_exception() -> None:
    assert isinstance(errors.error_from_kind("ValueError", "no such name"), ValueError)
    assert isinstance(errors.error_from_kind("ActorDiedError", "gone"), ActorDiedError)
    assert isinstance(errors.error_from_kind("Nonsense", "?"), exceptions.RpcError)
    assert isinstance(errors.error_from_kind("", "?"), exceptions.RpcError)
