"""Actors: creation, calls in order, handles, options, ends."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from typing import Any

import psutil
import pytest

import weft
from weft.exceptions import ActorDiedError, PendingCallsLimitExceeded, RayActorError

pytestmark = pytest.mark.usefixtures("shared_weft_session")


class PlainCounter:
    """Counts."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("on purpose")

    @weft.method(num_returns=2)
    def pair(self) -> Any:
        return self.value, -self.value

    @classmethod
    def make(cls, start: int) -> Any:
        return cls(start)

    @staticmethod
    def twice(x: int) -> int:
        return 2 * x

    @property
    def shown(self) -> str:
        return f"<{self.value}>"


Counter = weft.remote(PlainCounter)


def ended(pid: int) -> bool:
    try:
        psutil.Process(pid).wait(timeout=60)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def test_calls_of_one_caller_run_in_order() -> None:
    counter = Counter.remote(10)
    assert weft.get([counter.add.remote() for _ in range(100)]) == list(range(11, 111))


def test_an_actor_has_a_process_of_its_own() -> None:
    one, two = Counter.remote(), Counter.remote()
    pids = weft.get([one.pid.remote(), two.pid.remote(), one.pid.remote()])
    assert pids[0] == pids[2]
    assert len({*pids, os.getpid()}) == 3


def test_an_exception_does_not_end_the_actor() -> None:
    counter = Counter.remote()
    with pytest.raises(ValueError, match="on purpose"):
        weft.get(counter.fail.remote())
    assert weft.get(counter.add.remote()) == 1


def test_methods_can_return_several_values() -> None:
    counter = Counter.remote(3)
    assert weft.get(counter.pair.remote()) == [3, -3]
    assert weft.get(counter.pair.options(num_returns=1).remote()) == (3, -3)


def test_static_and_class_methods_work_on_handles_and_on_the_class() -> None:
    counter = Counter.remote()
    assert weft.get(counter.twice.remote(4)) == 8
    assert weft.get(counter.make.remote(5)).value == 5
    assert Counter.make(6).value == 6
    assert Counter.twice(4) == 8


def test_inherited_methods_are_there() -> None:
    @weft.remote
    class Child(PlainCounter):
        def add(self, amount: int = 1) -> int:
            return super().add(10 * amount)

    child = Child.remote(1)
    assert weft.get([child.add.remote(), child.twice.remote(3)]) == [11, 6]


@weft.remote
class TimesTen(PlainCounter):
    """In the module's namespace, where its methods can be found through the actor class."""

    def add(self, amount: int = 1, *, plus: int = 0) -> int:
        return super().add(10 * amount) + plus


def test_a_method_of_a_modules_actor_class_reaches_what_it_overrides() -> None:
    assert weft.get(TimesTen.remote(1).add.remote(plus=5)) == 16


def test_an_actor_class_can_not_be_inherited_from() -> None:
    with pytest.raises(TypeError, match=r"Inheriting from actor classes .* 'PlainCounter' is one"):

        class Child(Counter):  # type: ignore[misc,valid-type]
            pass


def test_an_actor_class_can_not_be_called() -> None:
    with pytest.raises(TypeError, match=r"use 'PlainCounter\.remote\(\)'"):
        Counter()


def test_a_method_can_not_be_called_directly() -> None:
    with pytest.raises(TypeError, match=r"try 'object\.add\.remote\(\)'"):
        Counter.remote().add(1)


def test_an_unknown_method_names_the_class_and_what_was_meant() -> None:
    counter = Counter.remote()
    with pytest.raises(AttributeError, match=r"'PlainCounter' has no method 'ad'\. Did you mean add"):
        _ = counter.ad


def test_a_property_is_named_as_what_it_is() -> None:
    class Thermometer:
        @property
        def degrees(self) -> int:
            return 21

    class Thermostat(Thermometer):
        pass

    handle = weft.remote(Thermostat).remote()
    with pytest.raises(AttributeError, match=r"'degrees' is a property of the actor class 'Thermostat'"):
        _ = handle.degrees
    assert weft.get(handle.__ray_call__.remote(lambda self: self.degrees)) == 21


@pytest.mark.parametrize(("args", "kwargs"), [((1, 2), {}), ((), {"begin": 3}), ((1,), {"start": 1})])
def test_a_wrong_constructor_call_raises_at_once(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError, match=r"PlainCounter\.remote\(\)"):
        Counter.remote(*args, **kwargs)


def test_a_wrong_call_of_a_method_raises_where_it_is_made() -> None:
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"add\(\) takes 1 positional argument but 2 were given"):
        counter.add.remote(1, 2)
    with pytest.raises(TypeError, match=r"twice\(\) missing 1 required positional argument: 'x'"):
        counter.twice.remote()


def test_a_failing_constructor_is_raised_by_the_first_call() -> None:
    @weft.remote
    class Broken:
        def __init__(self) -> None:
            raise ValueError("bad start")

        def ping(self) -> None: ...

    broken = Broken.remote()
    with pytest.raises(ActorDiedError, match="bad start") as caught:
        weft.get(broken.ping.remote())
    assert caught.value.actor_init_failed
    with pytest.raises(RayActorError):
        weft.get(broken.ping.remote())


def test_handles_travel_and_stay_equal() -> None:
    @weft.remote
    def use(handle: Any, inside: list[Any]) -> Any:
        return weft.get(inside[0].add.remote()), handle

    counter = Counter.remote()
    value, handle = weft.get(use.remote(counter, [counter]))
    assert value == 1
    assert handle == counter
    assert hash(handle) == hash(counter)
    assert counter != 1
    assert repr(counter) == f"Actor(PlainCounter, {counter._actor_id.hex()})"


def test_actors_may_hold_each_other() -> None:
    @weft.remote
    class Node:
        def __init__(self) -> None:
            self.other: Any = None

        def link(self, other: Any) -> None:
            self.other = other

        def name(self) -> str:
            return "node"

        def ask(self) -> Any:
            return weft.get(self.other.name.remote())

    one, two = Node.remote(), Node.remote()
    weft.get([one.link.remote(two), two.link.remote(one)])
    assert weft.get(one.ask.remote()) == "node"


def test_the_last_handles_end_is_the_actors() -> None:
    counter = Counter.remote()
    pid = weft.get(counter.pid.remote())
    del counter
    assert ended(pid)


def test_the_actor_finishes_its_calls_before_it_ends() -> None:
    assert weft.get(Counter.remote(4).add.remote()) == 5


def test_a_handle_is_freed_without_the_garbage_collector() -> None:
    counter = Counter.remote()
    assert weft.get(counter.add.options(num_returns=1).remote()) == 1
    weak = weakref.ref(counter)
    gc.disable()
    try:
        del counter
        assert weak() is None
    finally:
        gc.enable()


def test_a_killed_actor_fails_its_calls() -> None:
    counter = Counter.remote()
    pid = weft.get(counter.pid.remote())
    weft.kill(counter)
    assert ended(pid)
    with pytest.raises(ActorDiedError):
        weft.get(counter.add.remote())


def test_an_attribute_of_the_instance_does_not_hide_a_method() -> None:
    class Base:
        def inherited(self) -> str:
            return "inherited"

    @weft.remote
    class Counter(Base):
        def __init__(self) -> None:
            self.value = 0  # type: ignore[assignment, method-assign]
            self.inherited = 1  # type: ignore[assignment, method-assign]

        def value(self) -> int:
            self.value += 1  # type: ignore[assignment, method-assign, operator]
            return self.value  # type: ignore[return-value]

        @staticmethod
        def static(number: int) -> int:
            return 2 * number

        @classmethod
        def of_class(cls, number: int) -> tuple[str, int]:
            return cls.__name__, number

    counter: Any = Counter.remote()
    calls = [counter.value.remote(), counter.value.remote(), counter.inherited.remote()]
    assert weft.get(calls) == [1, 2, "inherited"]
    assert weft.get([counter.static.remote(4), counter.of_class.remote(number=3)]) == [8, ("Counter", 3)]


def test_a_namespace_is_never_empty() -> None:
    with pytest.raises(ValueError, match="not a valid namespace"):
        weft.get_actor("counter", namespace="")
    with pytest.raises(ValueError, match="not a valid namespace"):
        weft.init(namespace="", ignore_reinit_error=True)


def test_kill_wants_a_handle() -> None:
    with pytest.raises(ValueError, match="only supported for actors"):
        weft.kill("counter")  # type: ignore[arg-type]


def test_an_actor_can_end_itself() -> None:
    @weft.remote
    class Quitter:
        def pid(self) -> int:
            return os.getpid()

        def quit(self) -> None:
            weft.actor.exit_actor()

    quitter = Quitter.remote()
    pid = weft.get(quitter.pid.remote())
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)") as caught:
        weft.get(quitter.quit.remote())
    assert caught.value.actor_id == quitter._actor_id.hex() and "\0" not in str(caught.value)
    assert ended(pid)
    with pytest.raises(ActorDiedError):
        weft.get(quitter.pid.remote())


@pytest.mark.parametrize("concurrency", [1, 2, "async"])
def test_code_that_catches_everything_does_not_keep_an_actor_that_exits(concurrency: int | str) -> None:
    def resign() -> str:
        try:
            weft.actor.exit_actor()
        except BaseException:
            return "still here"

    class Clings:
        def pid(self) -> int:
            return os.getpid()

        def quit(self) -> str:
            return resign()

    class ClingsAsync(Clings):
        async def quit(self) -> str:  # type: ignore[override]
            return resign()

    chosen = ClingsAsync if concurrency == "async" else Clings
    options = {"max_concurrency": concurrency} if concurrency == 2 else {"num_cpus": 0}
    clings = weft.remote(**options)(chosen).remote()
    pid = weft.get(clings.pid.remote())
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        weft.get(clings.quit.remote())
    assert ended(pid)
    with pytest.raises(ActorDiedError):
        weft.get(clings.pid.remote())


def test_an_actor_that_calls_sys_exit_ends() -> None:
    @weft.remote
    class Quitter:
        def pid(self) -> int:
            return os.getpid()

        def quit(self) -> None:
            sys.exit()

    quitter = Quitter.remote()
    pid = weft.get(quitter.pid.remote())
    with pytest.raises(ActorDiedError):
        weft.get(quitter.quit.remote())
    assert ended(pid)


def test_exit_actor_outside_an_actor_is_an_error() -> None:
    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor"):
        weft.actor.exit_actor()


def test_every_actor_has_rays_special_methods() -> None:
    counter = Counter.remote(3)
    assert weft.get(counter.__ray_ready__.remote()) is True
    assert weft.get(counter.__ray_call__.remote(lambda self, x: self.value + x, 4)) == 7
    pid = weft.get(counter.pid.remote())
    with pytest.raises(ActorDiedError):
        weft.get(counter.__ray_terminate__.remote())
    assert ended(pid)


def test_an_actor_that_leaves_in_its_constructor_runs_its_exit_functions(tmp_path: Any) -> None:
    marker = tmp_path / "ended"

    @weft.remote
    class Declines:
        def __init__(self, path: str) -> None:
            import atexit

            atexit.register(lambda: open(path, "w").close())
            weft.actor.exit_actor()

    declines = Declines.remote(str(marker))
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        weft.get(declines.__ray_ready__.remote())
    assert marker.exists()


def test_an_orderly_end_runs_the_exit_functions(tmp_path: Any) -> None:
    marker = tmp_path / "ended"

    @weft.remote
    class Careful:
        def __init__(self, path: str) -> None:
            import atexit

            atexit.register(lambda: open(path, "w").close())

        def pid(self) -> int:
            return os.getpid()

    careful = Careful.remote(str(marker))
    pid = weft.get(careful.pid.remote())
    weft.wait([careful.__ray_terminate__.remote()])
    assert ended(pid)
    assert marker.exists()


def test_a_restarted_actor_answers_again() -> None:
    phoenix = Counter.options(max_restarts=1, max_task_retries=1).remote()
    first = weft.get(phoenix.pid.remote())
    weft.kill(phoenix, no_restart=False)
    assert ended(first)
    second = weft.get(phoenix.pid.remote())
    assert second != first
    weft.kill(phoenix, no_restart=False)
    assert ended(second)
    with pytest.raises(RayActorError):
        weft.get(phoenix.pid.remote())


def test_an_actor_whose_process_dies_is_dead() -> None:
    counter = Counter.remote()
    pid = weft.get(counter.pid.remote())
    os.kill(pid, 9)
    with pytest.raises(RayActorError):
        weft.get(counter.add.remote())


def test_calls_beyond_max_pending_calls_are_refused() -> None:
    @weft.remote(max_pending_calls=2, max_concurrency=3)
    class Slow:
        def __init__(self) -> None:
            self.event = threading.Event()

        def wait(self) -> None:
            self.event.wait()

        def __call__(self) -> None:
            self.event.set()

    slow = Slow.remote()
    refs = [slow.wait.remote() for _ in range(2)]
    with pytest.raises(PendingCallsLimitExceeded, match="max_pending_calls"):
        slow.wait.remote()
    weft.kill(slow)
    ready, _ = weft.wait(refs, num_returns=2, timeout=30)
    assert len(ready) == 2


def test_actor_options_are_checked_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="Invalid option keyword max_retries for actors"):
        weft.remote(max_retries=1)(PlainCounter)
    with pytest.raises(TypeError, match="max_restarts"):
        Counter.options(max_restarts=0.5)
    with pytest.raises(ValueError, match="allow_out_of_order_execution"):
        Counter.options(max_concurrency=2, allow_out_of_order_execution=False).remote()


def test_the_method_decorator_wants_known_keywords() -> None:
    with pytest.raises(ValueError, match="must be applied using"):
        weft.method()
    with pytest.raises(ValueError, match="Invalid option keyword speed"):
        weft.method(speed=3)


def test_an_actor_holds_what_num_cpus_says() -> None:
    def free() -> float:
        return weft.available_resources().get("CPU", 0.0)

    before = free()
    holder = Counter.options(num_cpus=1).remote()
    weft.get(holder.add.remote())
    assert free() == before - 1
    light = Counter.remote()
    weft.get(light.add.remote())
    assert free() == before - 1


def test_a_handle_can_be_seen_as_its_class_by_type_checkers() -> None:
    class Account:
        @weft.method
        def deposit(self, amount: int) -> int:
            return amount

        @weft.method(num_returns=2)
        def split(self) -> tuple[int, int]:
            return self.deposit(1), 2

    handle = weft.remote(Account).remote()
    assert weft.actor.typed(handle) is handle
    assert weft.get(weft.actor.typed(handle).deposit.remote(3)) == 3
    assert weft.get(handle.split.remote()) == [1, 2]
    with pytest.raises(TypeError, match="typed\\(\\) wants an actor's handle, but got 3"):
        weft.actor.typed(3)  # type: ignore[arg-type]
