"""Applications with real replicas."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import weft
from waiting import wait_until
from weft import serve
from weft.serve.board import _Past
from weft.serve.controller import NAME, NAMESPACE, Controller
from weft.serve.latencies import Figures
from weft.serve.running import Running
from weft.serve.state import DeploymentState
from weft.serve.vault import NAME as VAULT
from weft.serve.vault import Vault
from weft.util import list_named_actors

DEADLINE_S = 30
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def serving(shared_weft_session: ModuleType) -> Iterator[None]:
    yield
    serve.shutdown()


@serve.deployment
class Adder:
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __call__(self, x: int) -> int:
        return x + self.amount

    async def twice(self, x: int) -> int:
        return x + 2 * self.amount

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    async def count_async(self, n: int) -> Any:
        for number in range(n):
            yield number

    def fail(self) -> None:
        raise ValueError("not today")

    def pid(self) -> int:
        return os.getpid()


@serve.deployment
class Gate:
    """Answers when told."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self) -> int:
        await self.open.wait()
        return os.getpid()

    async def release(self) -> None:
        self.open.set()

    async def pid(self) -> int:
        return os.getpid()


def test_classes_answer_with_plain_and_async_methods_and_generators(serving: None) -> None:
    handle = serve.run(Adder.bind(3))
    assert handle.remote(1).result() == 4
    assert handle.twice.remote(1).result() == 7
    assert list(handle.count.options(stream=True).remote(4)) == [0, 1, 2, 3]
    assert list(handle.count_async.options(stream=True).remote(3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="not today"):
        handle.fail.remote().result()
    with pytest.raises(AttributeError, match="no method 'missing'"):
        handle.missing.remote().result()
    with pytest.raises(TypeError, match="stream=True"):
        handle.count.remote(4).result()


def test_functions_answer_whatever_their_kind(serving: None) -> None:
    @serve.deployment
    def plain(x: int) -> int:
        return x + 1

    @serve.deployment
    async def waits(x: int) -> int:
        return x + 2

    @serve.deployment
    async def yields(n: int) -> Any:
        for number in range(n):
            yield number

    assert serve.run(plain.bind(), name="a", route_prefix=None).remote(1).result() == 2
    assert serve.run(waits.bind(), name="b", route_prefix=None).remote(1).result() == 3
    stream = serve.run(yields.bind(), name="c", route_prefix=None).options(stream=True)
    assert list(stream.remote(3)) == [0, 1, 2]
    assert sorted(serve.status()) == ["a", "b", "c"]


def test_deployments_are_composed_by_handles(serving: None) -> None:
    @serve.deployment
    class Both:
        def __init__(self, first: Any, others: list[Any]) -> None:
            self.first, self.others = first, others

        async def __call__(self, x: int) -> int:
            between = self.first.remote(x)
            answers = [await other.remote(between) for other in self.others]
            return sum(answers)

        def blocking(self, x: int) -> int:
            return int(self.first.remote(x).result())

    handle = serve.run(Both.bind(Adder.bind(1), [Adder.bind(10), Adder.bind(100)]))
    assert handle.remote(0).result() == 11 + 101
    assert handle.blocking.remote(1).result() == 2
    assert sorted(serve.status()["default"].deployments) == ["Adder", "Adder_2", "Adder_3", "Both"]


def test_handles_work_in_tasks_and_in_async_code(serving: None) -> None:
    handle = serve.run(Adder.bind(1))

    @weft.remote
    def ask(given: Any) -> int:
        return int(given.remote(1).result())

    async def gather() -> list[int]:
        stream = [item async for item in handle.count.options(stream=True).remote(2)]
        return [*await asyncio.gather(*(handle.remote(i) for i in range(50))), *stream]

    assert weft.get(ask.remote(handle)) == 2
    assert asyncio.run(gather()) == [*range(1, 51), 0, 1]
    assert serve.get_app_handle().remote(5).result() == 6


def test_arrays_arrive_as_they_were(serving: None) -> None:
    @serve.deployment
    def mean(x: np.ndarray) -> np.ndarray:
        return x * 2.0

    given = np.arange(200_000, dtype=np.float32)
    np.testing.assert_array_equal(serve.run(mean.bind()).remote(given).result(), given * 2)


def test_a_replica_takes_no_more_than_it_may_and_then_callers_are_refused(serving: None) -> None:
    gate = Gate.options(max_ongoing_requests=3, max_queued_requests=1, graceful_shutdown_timeout_s=0.1)
    handle = serve.run(gate.bind())
    handle.pid.remote().result()
    taken = [handle.remote() for _ in range(3)]
    waits = handle.remote()
    with pytest.raises(serve.BackPressureError, match="has 1 requests of this process waiting"):
        handle.remote()
    assert not any(one.done() for one in [*taken, waits])
    serve.delete()
    assert isinstance(_outcome(waits), serve.DeploymentGoneError)
    assert all(isinstance(_outcome(one), serve.ServeError) for one in taken)


def _outcome(response: Any) -> Any:
    try:
        return response.result(timeout_s=DEADLINE_S)
    except Exception as error:
        return error


def test_a_killed_replica_is_replaced_and_its_request_fails_by_name(serving: None) -> None:
    handle = serve.run(Gate.bind())
    response = handle.remote()
    pid = handle.pid.remote().result()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(serve.ReplicaDiedError, match="may have run in part"):
        response.result(timeout_s=DEADLINE_S)
    assert handle.pid.remote().result(timeout_s=DEADLINE_S) != pid


def test_retry_on_death_loses_no_request(serving: None) -> None:
    handle = serve.run(Adder.options(num_replicas=2, retry_on_death=True).bind(1))
    pids = {handle.pid.remote().result() for _ in range(20)}
    responses = [handle.remote(i) for i in range(300)]
    os.kill(pids.pop(), signal.SIGKILL)
    responses += [handle.remote(i) for i in range(300, 600)]
    assert [one.result(timeout_s=DEADLINE_S) for one in responses] == [i + 1 for i in range(600)]


def test_a_rolling_update_fails_no_request(serving: None) -> None:
    handle = serve.run(Adder.options(num_replicas=2).bind(1))
    seen: list[int] = []
    stop = threading.Event()
    errors: list[BaseException] = []

    def load() -> None:
        while not stop.is_set():
            try:
                seen.append(handle.remote(0).result(timeout_s=DEADLINE_S))
            except BaseException as error:
                errors.append(error)
                return

    thread = threading.Thread(target=load)
    thread.start()
    try:
        wait_until(lambda: bool(seen))
        for amount in (2, 3):
            serve.run(Adder.options(num_replicas=2).bind(amount))
        wait_until(lambda: 3 in seen or bool(errors))
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert set(seen) <= {1, 2, 3}
    assert handle.remote(0).result() == 3


def test_run_waits_until_every_replica_uses_the_new_user_config(serving: None) -> None:
    @serve.deployment(num_replicas=2, user_config=0)
    class Tunable:
        def reconfigure(self, config: int) -> None:
            threading.Event().wait(0.2)  # as long as loading weights may take
            self.amount = config

        async def __call__(self) -> int:
            return self.amount

        async def pid(self) -> int:
            return os.getpid()

    handle = serve.run(Tunable.bind())
    for amount in (1, 2):
        os.kill(handle.pid.remote().result(), signal.SIGKILL)
        serve.run(Tunable.options(user_config=amount).bind())
        assert {handle.remote().result() for _ in range(20)} == {amount}


def test_run_says_what_it_waits_for_and_ends_in_time(
    serving: None, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr("weft.serve.api.TELL_S", 0.1)
    app = Adder.options(num_replicas=3, actor_options={"num_cpus": 1}).bind(1)
    with pytest.raises(
        TimeoutError, match=r"of 3 replicas ready, . starting; a replica needs 1 CPU, but 0 of 2 is free"
    ):
        serve.run(app, timeout_s=4)
    assert "waits: deployment default:Adder has" in capfd.readouterr().err
    assert serve.get_app_handle().remote(1).result() == 2
    serve.delete()
    never = Adder.options(actor_options={"resources": {"no-such": 1}}).bind(1)
    with pytest.raises(serve.DeploymentFailedError, match="can never be placed: 1 no-such is asked for"):
        serve.run(never)


def test_a_user_config_reloads_without_a_restart(serving: None) -> None:
    @serve.deployment(user_config={"amount": 1})
    class Tunable:
        def reconfigure(self, config: dict[str, int]) -> None:
            self.amount = config["amount"]

        def __call__(self) -> tuple[int, int]:
            return os.getpid(), self.amount

    handle = serve.run(Tunable.bind())
    pid, amount = handle.remote().result()
    assert amount == 1
    serve.run(Tunable.options(user_config={"amount": 2}).bind())
    wait_until(lambda: handle.remote().result() == (pid, 2))


def test_an_unhealthy_replica_is_replaced(serving: None) -> None:
    @serve.deployment(health_check_period_s=0.05)
    class Sickly:
        sick = False

        def check_health(self) -> None:
            if self.sick:
                raise RuntimeError("I am ill")

        def fall_ill(self) -> int:
            self.sick = True
            return os.getpid()

        def __call__(self) -> int:
            return os.getpid()

    handle = serve.run(Sickly.bind())
    pid = handle.fall_ill.remote().result()
    wait_until(lambda: _outcome(handle.remote()) != pid)


def test_deleting_lets_requests_finish_and_then_handles_say_that_it_is_gone(serving: None) -> None:
    handle = serve.run(Gate.bind())
    response = handle.remote()
    wait_until(lambda: response._request.ref is not None)
    deleting = threading.Thread(target=serve.delete)
    release = handle.release.remote()
    deleting.start()
    release.result(timeout_s=DEADLINE_S)
    assert isinstance(response.result(timeout_s=DEADLINE_S), int)
    deleting.join()
    assert serve.status() == {}
    with pytest.raises(serve.DeploymentGoneError, match="default:Gate does not exist"):
        handle.remote().result(timeout_s=DEADLINE_S)
    with pytest.raises(LookupError, match="no application 'default'"):
        serve.delete()


def test_a_constructor_that_fails_is_told_to_who_runs_it(serving: None) -> None:
    @serve.deployment
    class Broken:
        def __init__(self) -> None:
            raise OSError("no such model")

    with pytest.raises(serve.DeploymentFailedError, match="no such model"):
        serve.run(Broken.bind())


def test_autoscaling_comes_back_from_zero_for_a_waiting_request(serving: None) -> None:
    scaling = serve.AutoscalingConfig(min_replicas=0, max_replicas=2, downscale_delay_s=0.1)
    handle = serve.run(Adder.options(autoscaling=scaling).bind(1))
    assert serve.status()["default"].deployments["Adder"].target == 0
    assert handle.remote(1).result(timeout_s=DEADLINE_S) == 2
    wait_until(lambda: serve.status()["default"].deployments["Adder"].replicas == {})
    assert handle.remote(2).result(timeout_s=DEADLINE_S) == 3


def test_batches_form_under_load_and_errors_stay_with_their_request(serving: None) -> None:
    @serve.deployment
    class Batched:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        @serve.batch(max_batch_size=8, wait_s=0.02)
        async def __call__(self, values: list[int]) -> list[Any]:
            self.sizes.append(len(values))
            return [ValueError(f"odd {one}") if one % 2 else one * 10 for one in values]

        async def seen(self) -> list[int]:
            return self.sizes

    handle = serve.run(Batched.bind())
    outcomes = [_outcome(one) for one in [handle.remote(i) for i in range(32)]]
    assert [one for one in outcomes if isinstance(one, int)] == [i * 10 for i in range(0, 32, 2)]
    assert all(f"odd {i}" in str(outcomes[i]) for i in range(1, 32, 2))
    sizes = handle.seen.remote().result()
    assert sum(sizes) == 32 and max(sizes) > 1


def test_a_batch_of_arrays_is_stacked_and_one_that_does_not_fit_fails_alone(serving: None) -> None:
    @serve.deployment
    class Stacked:
        @serve.batch(max_batch_size=8, wait_s=0.05, stack=True)
        async def __call__(self, rows: np.ndarray) -> np.ndarray:
            assert rows.ndim == 2 and rows.dtype == np.float32
            return rows.sum(axis=1)

    handle = serve.run(Stacked.bind())
    assert handle.remote(np.ones(3, np.float32)).result() == 3
    shapes = [3, 3, 4, 3]
    outcomes = [_outcome(one) for one in [handle.remote(np.ones(size, np.float32)) for size in shapes]]
    fits = [one for one in outcomes if not isinstance(one, BaseException)]
    assert set(fits) <= {3.0, 4.0} and len(fits) >= 3
    assert all("a value of a batch must be float32" in str(one) for one in outcomes if isinstance(one, BaseException))


def test_a_response_can_be_waited_for_so_long_and_cancelled(serving: None) -> None:
    handle = serve.run(Gate.options(max_ongoing_requests=1).bind())
    response = handle.remote()
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        response.result(timeout_s=0.01)
    response.cancel()
    assert handle.pid.remote().result(timeout_s=DEADLINE_S) > 0  # the only place is free again

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting := handle.remote(), 0.01)
        waiting.cancel()

    asyncio.run(give_up())
    assert handle.pid.remote().result(timeout_s=DEADLINE_S) > 0


def test_a_stream_that_nobody_reads_takes_no_place(serving: None) -> None:
    @serve.deployment(max_ongoing_requests=1)
    class Endless:
        async def __call__(self) -> Any:
            while True:
                yield 0

        async def ping(self) -> str:
            return "pong"

    handle = serve.run(Endless.bind())
    streaming = handle.options(stream=True)
    streaming.remote()
    assert handle.ping.remote().result(DEADLINE_S) == "pong", "dropped before it was read"
    unread = streaming.remote()
    unread.close()
    assert handle.ping.remote().result(DEADLINE_S) == "pong", "closed before it was read"

    async def cancelled() -> None:
        reading = asyncio.ensure_future(streaming.remote().__anext__())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(cancelled())
    assert handle.ping.remote().result(DEADLINE_S) == "pong", "cancelled while it began"


def test_a_request_that_nobody_waits_for_is_sent_again_when_it_was_refused(serving: None) -> None:
    @serve.deployment(max_ongoing_requests=1)
    class Narrow:
        def __init__(self) -> None:
            self.seen = 0

        async def hold(self) -> None:
            await asyncio.Event().wait()

        async def see(self) -> int:
            self.seen += 1
            return self.seen

    @weft.remote
    class Other:
        def fill(self, given: Any) -> None:
            self.held = given.hold.remote()
            while not weft.get(replica_of(given).load.remote()):
                pass

        def leave(self) -> None:
            self.held.cancel()

    def replica_of(given: Any) -> Any:
        (replica,) = weft.get(given._controller.listen.remote(given._key, -1)).replicas.values()
        return replica

    handle = serve.run(Narrow.bind())
    other = Other.remote()
    weft.get(other.fill.remote(handle))
    handle.see.remote()  # dropped at once, and refused
    kept = handle.see.remote()
    weft.get(other.leave.remote())
    wait_until(kept.done)
    wait_until(lambda: handle.see.remote().result(DEADLINE_S) >= 3)


def test_responses_that_pile_up_make_room_for_others_without_being_waited_for(serving: None) -> None:
    handle = serve.run(Adder.options(max_ongoing_requests=2).bind(1))
    responses = [handle.twice.remote(number) for number in range(200)]
    wait_until(responses[-1].done)
    assert [one.result(DEADLINE_S) for one in reversed(responses)] == [number + 2 for number in reversed(range(200))]


def test_the_boards_first_look_has_no_rate_and_the_second_a_true_one() -> None:
    past = _Past()
    assert past.rate_of({"a": Figures(1000, 0, None, None, None)}, 5.0) is None
    assert past.rate_of({"a": Figures(1010, 0, None, None, None), "b": Figures(10, 0, None, None, None)}, 7.0) == 10.0


def test_models_are_loaded_once_and_the_oldest_is_dropped(serving: None) -> None:
    @serve.deployment
    class Zoo:
        def __init__(self) -> None:
            self.loaded: list[str] = []

        @serve.multiplexed(max_num_models_per_replica=2)
        async def model(self, model_id: str) -> str:
            if model_id == "bad":
                raise OSError("no such model")
            self.loaded.append(model_id)
            return model_id.upper()

        async def __call__(self) -> str:
            return str(await self.model())

        async def loads(self) -> list[str]:
            return self.loaded

    handle = serve.run(Zoo.bind())
    for name in "abacb":
        assert handle.options(multiplexed_model_id=name).remote().result() == name.upper()
    assert handle.loads.remote().result() == ["a", "b", "c", "b"]
    for _ in range(2):
        with pytest.raises(OSError, match="no such model"):
            handle.options(multiplexed_model_id="bad").remote().result()
    with pytest.raises(ValueError, match="needs a model id"):
        handle.remote().result()


def test_importing_serve_loads_no_web_server() -> None:
    code = "import weft.serve, sys; weft.serve.run; print({'uvicorn', 'starlette', 'fastapi'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("name", "output"),
    [("serve_hello", "hello world\n"), ("serve_http", "by handle: 6.0\nover HTTP: 6.0\n")],
)
def test_the_examples_run(
    shared_weft_session: ModuleType, capsys: pytest.CaptureFixture[str], name: str, output: str
) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == output


def test_a_controller_that_is_killed_comes_back_and_no_request_fails(serving: None) -> None:
    adder = Adder.options(retry_on_death=True)
    handle = serve.run(adder.options(num_replicas=2).bind(1))
    pids = {handle.pid.remote().result() for _ in range(20)}
    failures: list[BaseException] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            try:
                assert handle.remote(1).result(DEADLINE_S) == 2
            except BaseException as error:
                failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(2):
            controller = weft.get_actor(NAME, namespace=NAMESPACE)
            before = weft.get(controller.pid.remote())
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: weft.get(controller.pid.remote()) != before)  # noqa: B023
            wait_until(lambda: _pids(handle) == pids)
        os.kill(min(pids), signal.SIGKILL)
        wait_until(lambda: len(_pids(handle) - pids) == 1)
        handle = serve.run(adder.options(num_replicas=1).bind(1))
        assert handle.remote(5).result() == 6
    finally:
        is_over.set()
        asking.join()
    assert not failures


def _pids(handle: Any) -> set[int]:
    """Of requests that are under way together: one after another would all find the same replica free, if another
    thread keeps the other one busy."""
    return {response.result() for response in [handle.pid.remote() for _ in range(20)]}


def test_a_vault_that_is_killed_is_filled_again(serving: None) -> None:
    adder = Adder.options(retry_on_death=True)
    handle = serve.run(adder.bind(1))
    vault = weft.get_actor(VAULT, namespace=NAMESPACE)
    os.kill(weft.get(vault.pid.remote()), signal.SIGKILL)
    serve.run(adder.bind(2))
    controller = weft.get_actor(NAME, namespace=NAMESPACE)
    before = weft.get(controller.pid.remote())
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: weft.get(controller.pid.remote()) != before)
    assert handle.remote(1).result(DEADLINE_S) == 3
    pid = handle.pid.remote().result()
    os.kill(pid, signal.SIGKILL)
    assert handle.remote(1).result(DEADLINE_S) == 3  # of a new replica, whose code was in the vault


@weft.remote
class HeldVault(Vault):
    """Writes nothing down before it may; what a controller had sent that has died since is lost."""

    def __init__(self) -> None:
        Vault.__init__(self)
        self._may_write = threading.Event()
        self._loads = 0
        self._waiting = 0

    def load(self) -> tuple[int, bytes | None, dict[str, bytes]]:
        self._loads += 1
        return Vault.load(self)

    def save(self, writer: int, state: bytes) -> list[str] | None:
        self._waiting += 1
        self._may_write.wait()
        return Vault.save(self, writer, state)

    def let_write(self) -> None:
        self._may_write.set()

    def seen(self) -> tuple[int, int]:
        """How many controllers have begun, and how many calls to write something down have come."""
        return self._loads, self._waiting


def test_what_a_controller_before_sends_late_does_not_reach_the_vault() -> None:
    vault = Vault()
    old, *_ = vault.load()
    assert vault.save(old, b"old") == []
    vault.save_code(old, "app:Adder", b"code")
    new, state, codes = vault.load()
    assert (state, codes) == (b"old", {"app:Adder": b"code"})
    assert vault.save(new, b"new") == ["app:Adder"]
    assert vault.save(old, b"late") is None
    vault.save_code(old, "app:Adder", None)
    assert vault.load()[1:] == (b"new", {"app:Adder": b"code"})


def _has_vault() -> bool:
    return VAULT in [one["name"] for one in list_named_actors(all_namespaces=True)]


def test_an_application_is_deployed_though_its_controller_is_killed_before_it_is_written_down(serving: None) -> None:
    wait_until(lambda: not _has_vault())  # that of the test before
    vault = HeldVault.options(name=VAULT, namespace=NAMESPACE, lifetime="detached", max_concurrency=100).remote()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(serve.run, Adder.options(num_replicas=1).bind(1))
        wait_until(lambda: weft.get(vault.seen.remote())[1] > 0)
        controller = weft.get_actor(NAME, namespace=NAMESPACE)
        os.kill(weft.get(controller.pid.remote()), signal.SIGKILL)
        wait_until(lambda: weft.get(vault.seen.remote())[0] == 2)
        weft.get(vault.let_write.remote())
        assert running.result().remote(1).result(DEADLINE_S) == 2


def test_calls_of_a_controller_that_are_repeated_after_its_death_find_what_they_have_done(serving: None) -> None:
    serve.run(Adder.bind(1))
    serve.run(Adder.bind(2), canary_share=0.5)
    controller = weft.get_actor(NAME, namespace=NAMESPACE)
    for _ in range(2):
        weft.get(controller.promote.remote("default"))
    for _ in range(2):
        weft.get(controller.delete.remote("default"))
    assert serve.status() == {}
    with pytest.raises(LookupError, match="no application 'default'"):
        serve.delete()


def test_what_was_under_way_for_a_deployment_that_is_gone_does_not_end_the_next_of_its_name() -> None:
    """A replica that was being made when its application was deleted fails after that was deployed again."""
    controller: Any = object.__new__(Controller)
    controller._keeping = Mock()
    gone, next_one = (Running(DeploymentState("app:Adder")) for _ in range(2))
    gone.state.deleted(0.0)
    assert gone.state.is_gone
    controller._deployments = {"app:Adder": next_one}
    controller._follow(gone, gone.state.replica_start_failed(1.0, "app:Adder#1", "it was killed"))
    assert controller._deployments == {"app:Adder": next_one} and not controller._keeping.save_code.called
    controller._deployments = {"app:Adder": gone}
    controller._follow(gone, [])
    assert not controller._deployments


def test_an_update_goes_on_when_its_controller_is_killed(serving: None) -> None:
    handle = serve.run(Adder.options(num_replicas=3).bind(1))
    controller = weft.get_actor(NAME, namespace=NAMESPACE)
    pid = weft.get(controller.pid.remote())
    killer = threading.Timer(0.05, os.kill, (pid, signal.SIGKILL))
    killer.start()
    serve.run(Adder.options(num_replicas=3).bind(10))
    killer.join()
    assert {handle.remote(1).result(DEADLINE_S) for _ in range(30)} == {11}
    wait_until(lambda: serve.status()["default"].deployments["Adder"].replicas == {"RUNNING": 3})


def share_of(handle: serve.DeploymentHandle, answer: int) -> float:
    answers = [handle.remote(0).result(DEADLINE_S) for _ in range(400)]
    return answers.count(answer) / len(answers)


def test_a_canary_gets_its_share_and_is_promoted_or_taken_back(serving: None) -> None:
    handle = serve.run(Adder.options(num_replicas=2).bind(1))
    with pytest.raises(LookupError, match="has no canary"):
        serve.promote()
    serve.run(Adder.options(num_replicas=2).bind(100), canary_share=0.25)
    wait_until(lambda: share_of(handle, 100) > 0)
    assert 0.1 < share_of(handle, 100) < 0.4
    assert serve.status()["default"].deployments["Adder@canary"].replicas == {"RUNNING": 1}
    serve.rollback()
    assert share_of(handle, 1) == 1 and "Adder@canary" not in serve.status()["default"].deployments
    serve.run(Adder.options(num_replicas=2).bind(100), canary_share=0.5)
    serve.promote()
    assert share_of(handle, 100) == 1
    assert serve.status()["default"].deployments["Adder"].replicas == {"RUNNING": 2}


@serve.deployment
class Fails:
    def __init__(self, is_broken: bool) -> None:
        self.is_broken = is_broken

    async def __call__(self) -> int:
        if self.is_broken:
            raise ValueError("broken")
        return 7


@pytest.mark.parametrize("is_broken", [True, False], ids=["rolled back", "promoted"])
def test_a_canary_with_a_rule_is_judged_by_how_its_requests_end(serving: None, is_broken: bool) -> None:
    handle = serve.run(Fails.bind(False))
    rule = serve.CanaryRule(min_requests=40, latency_ratio=1000)
    serve.run(Fails.options(max_ongoing_requests=50).bind(is_broken), canary_share=0.5, canary_rule=rule)

    def has_verdict() -> bool:
        for _ in range(20):
            with contextlib.suppress(ValueError):
                assert handle.remote().result(DEADLINE_S) == 7
        return bool(serve.status()["default"].verdict)

    wait_until(has_verdict)
    wait_until(lambda: list(serve.status()["default"].deployments) == ["Fails"])
    assert ("rolled back" if is_broken else "promoted") in serve.status()["default"].verdict
    assert [handle.remote().result(DEADLINE_S) for _ in range(20)] == [7] * 20


def test_an_update_ends_the_canary(serving: None) -> None:
    handle = serve.run(Adder.bind(1))
    serve.run(Adder.bind(2), canary_share=0.5)
    serve.run(Adder.bind(3))
    wait_until(lambda: set(serve.status()["default"].deployments) == {"Adder"})
    assert share_of(handle, 3) == 1


def test_a_canary_must_stand_beside_something(serving: None) -> None:
    with pytest.raises(LookupError, match="there is no application 'default'"):
        serve.run(Adder.bind(1), canary_share=0.5)
    with pytest.raises(ValueError, match="canary_share must be"):
        serve.run(Adder.bind(1), canary_share=2)
