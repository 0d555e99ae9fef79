"""What is wrong is refused where it is written, with the argument's name and what it got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.util import ActorPool
from weft.util.queue import Queue

pytestmark = pytest.mark.usefixtures("shared_weft_session")

NAN, INFINITE = float("nan"), float("inf")


@weft.remote
def task(x: Any = None) -> Any:
    return x


@weft.remote
class Actor:
    def method(self, *values: Any) -> int:
        return len(values)


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_cpus": NAN}, ValueError, "num_cpus must be a finite number, but got nan"),
    ({"num_cpus": INFINITE}, ValueError, "num_cpus must be a finite number, but got inf"),
    ({"num_cpus": True}, TypeError, "'num_cpus' must be .* got True"),
    ({"resources": {"disk": NAN}}, ValueError, "disk must be a finite number, but got nan"),
    ({"num_returns": 1 << 31}, ValueError, "'num_returns' must be at most 16777216, but got 2147483648"),
    ({"num_returns": True}, TypeError, "'num_returns' must be .* got True"),
    ({"max_retries": True}, TypeError, "'max_retries' must be .* got True"),
    ({"max_retries": 1 << 31}, ValueError, "'max_retries' must be at most 2147483647, or -1 .*, but got 2147483648"),
    ({"priority": 10**30}, ValueError, "'priority' must lie between .*, but got 10000"),
    ({"name": "n" * 70_000}, ValueError, "'name' takes at most 10000 bytes, but got 70000 characters"),
    ({"name": "\ud800"}, ValueError, "'name' must be text that UTF-8 can hold"),
]


@pytest.mark.parametrize(("options", "error", "text"), OPTIONS)
def test_a_wrong_option_is_refused_where_it_is_written(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        task.options(**options)
    with pytest.raises(error, match=text):
        weft.remote(**options)(lambda: None)


CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: weft.get(task.remote(), timeout=NAN), ValueError, "'timeout' .*, but got nan"),
    (lambda: weft.wait([task.remote()], timeout=NAN), ValueError, "'timeout' .*, but got nan"),
    (lambda: weft.wait([task.remote()], fetch_local="no"), TypeError, "fetch_local must be .* got 'no'"),  # type: ignore[arg-type]
    (lambda: weft.cancel(task.remote(), force="yes"), TypeError, "force must be True or False, but got 'yes'"),  # type: ignore[arg-type]
    (lambda: weft.cancel(task.remote(), recursive=1), TypeError, "recursive must be True or False, but got 1"),  # type: ignore[arg-type]
    (lambda: weft.kill(Actor.remote(), no_restart=0), TypeError, "no_restart must be True or False, but got 0"),  # type: ignore[arg-type]
    (lambda: ActorPool(None), TypeError, "actors must be a list of actor handles, but got None"),  # type: ignore[arg-type]
    (lambda: ActorPool("ab"), TypeError, "actors must be a list of actor handles, but got 'ab'"),
    (lambda: ActorPool([3]), TypeError, "but got 3 among them"),
    (lambda: Queue("3"), TypeError, "maxsize must be an int, but got '3'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "error", "text"), CALLS)
def test_a_wrong_call_is_refused_at_once(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


SESSIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_cpus": NAN}, ValueError, "num_cpus must be a finite number, but got nan"),
    ({"num_cpus": 1e30}, ValueError, "num_cpus must be at most 1e"),
    ({"num_gpus": 0.5}, ValueError, "num_gpus must be a whole number of devices, but got 0.5"),
    ({"labels": {"zone": 1}}, TypeError, "labels must map strings to strings, but got 'zone': 1"),
    ({"resources": {"disk": NAN}}, ValueError, "disk must be a finite number, but got nan"),
    ({"resources": {"disk": "1"}}, TypeError, "resources must map names to numbers, but got 'disk': '1'"),
    ({"local_mode": 1}, TypeError, "local_mode must be bool, but got 1"),
]


@pytest.mark.parametrize(("options", "error", "text"), SESSIONS)
def test_a_wrong_session_is_not_started(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        weft.init(**options)
