"""concurrent.futures on tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
import time
from typing import Any

import pytest

import weft
from weft.util import Executor

pytestmark = pytest.mark.usefixtures("shared_weft_session")


class Refused(Exception):
    pass


def refuse(x: object) -> None:
    raise Refused(x)


@weft.remote(num_cpus=0)
class Gate:
    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def state(self) -> bool:
        return self.is_open


def pass_gate(gate: Any) -> str:
    while not weft.get(gate.state.remote()):
        time.sleep(0.002)
    return "passed"


def test_submit_gives_a_future_with_the_value_or_the_error() -> None:
    with Executor() as executor:
        assert executor.submit(pow, 2, 10).result() == 1024
        assert executor.submit(lambda *, a: a, a=3).result() == 3
        assert executor.submit(abs, weft.put(-4)).result() == 4
        failed = executor.submit(refuse, 5)
        with pytest.raises(Refused):
            failed.result()
        assert isinstance(failed.exception(), Refused)
        with pytest.raises(TypeError):
            executor.submit(abs, threading.Lock()).result()


def test_the_functions_of_the_standard_library_know_the_futures() -> None:
    with Executor() as executor:
        futures = [executor.submit(abs, -i) for i in range(30)]
        assert sorted(future.result() for future in concurrent.futures.as_completed(futures)) == list(range(30))
        done, rest = concurrent.futures.wait([executor.submit(abs, -1)], timeout=30)
        assert len(done) == 1 and not rest

        async def use() -> list[int]:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(executor, abs, -i) for i in range(5)))

        assert asyncio.run(use()) == [0, 1, 2, 3, 4]


def test_map_keeps_the_order() -> None:
    with Executor() as executor:
        assert list(executor.map(pow, range(20), itertools.repeat(2))) == [i * i for i in range(20)]
        assert list(executor.map(lambda x: -x, range(20), chunksize=7)) == [-i for i in range(20)]
        assert list(executor.map(abs, [])) == []
        endless = executor.map(abs, itertools.count(), buffersize=4)
        assert list(itertools.islice(endless, 10)) == list(range(10))
        endless.close()  # type: ignore[attr-defined]
        with pytest.raises(Refused):
            list(executor.map(refuse, [1]))


def test_a_bound_on_workers_holds_and_what_waits_can_be_cancelled() -> None:
    gate = Gate.remote()
    with Executor(max_workers=1) as executor:
        running, waiting, last = (executor.submit(pass_gate, gate) for _ in range(3))
        assert running.running() and not waiting.running()
        assert not running.cancel()
        assert waiting.cancel() and waiting.cancelled()
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result()
        with pytest.raises(concurrent.futures.TimeoutError):
            running.result(timeout=0.01)
        weft.get(gate.open.remote())
        assert running.result() == last.result() == "passed"


def test_map_times_out() -> None:
    gate = Gate.remote()
    with Executor() as executor:
        results = executor.map(pass_gate, [gate], timeout=0.01)
        with pytest.raises(concurrent.futures.TimeoutError):
            next(results)
        weft.get(gate.open.remote())


def test_shutdown_ends_it() -> None:
    gate = Gate.remote()
    executor = Executor(max_workers=1)
    futures = [executor.submit(pass_gate, gate) for _ in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert not futures[0].cancelled() and futures[1].cancelled() and futures[2].cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)
    weft.get(gate.open.remote())
    executor.shutdown()
    assert futures[0].done()


def test_a_futures_callbacks_may_use_the_engine() -> None:
    seen: list[int] = []
    with Executor() as executor:
        gate = Gate.remote()
        future = executor.submit(pass_gate, gate)
        future.add_done_callback(lambda done: seen.append(weft.get(weft.put(len(done.result())))))
        weft.get(gate.open.remote())
    assert seen == [6]


def test_options_are_those_of_the_tasks() -> None:
    with Executor(options={"num_cpus": 2}) as executor:
        assert executor.submit(lambda: weft.get_runtime_context().get_assigned_resources()).result() == {"CPU": 2.0}


@pytest.mark.parametrize("wrong", [0, -1])
def test_bad_arguments_are_refused_at_once(wrong: int) -> None:
    with pytest.raises(ValueError, match="max_workers"):
        Executor(max_workers=wrong)
    with pytest.raises(TypeError, match="max_workers"):
        Executor(max_workers="two")  # type: ignore[arg-type]
    with Executor() as executor:
        with pytest.raises(TypeError, match="callable"):
            executor.submit(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="chunksize"):
            executor.map(abs, [1], chunksize=wrong)
