"""Whoever waits for a value without a thread of its own (await, futures, callbacks) learns of the session's end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import weft
from waiting import wait_until
from weft.util.multiprocessing import Pool


@weft.remote(num_cpus=0.1)
def for_ever() -> None:
    while True:
        time.sleep(3600)


@weft.remote(num_cpus=0.1, num_returns="streaming")
def one_item() -> Iterator[int]:
    yield 1
    while True:
        time.sleep(3600)


async def awaited() -> None:
    await for_ever.remote()


async def gathered() -> None:
    await asyncio.gather(for_ever.remote(), for_ever.remote())


async def streamed() -> None:
    async for ref in one_item.remote():
        await ref


async def as_future() -> None:
    await asyncio.wrap_future(for_ever.remote().future())


@pytest.mark.parametrize("wait", [awaited, gathered, streamed, as_future])
def test_a_coroutine_that_waits_for_a_value_ends_in_an_error_when_the_session_does(
    wait: Callable[[], Awaitable[None]],
) -> None:
    weft.init(num_cpus=2)
    sleeps = threading.Event()

    async def program() -> None:
        waiting = asyncio.ensure_future(wait())
        asyncio.get_running_loop().call_later(0.2, sleeps.set)
        with pytest.raises(RuntimeError):
            await waiting

    thread = threading.Thread(target=asyncio.run, args=(program(),))
    thread.start()
    sleeps.wait()
    weft.shutdown()
    thread.join()
    assert not weft.is_initialized()


def test_a_future_and_a_callback_of_a_value_hear_of_the_sessions_end() -> None:
    weft.init(num_cpus=2)
    ref = for_ever.remote()
    future: Future[Any] = ref.future()
    called: list[Any] = []
    ref.add_done_callback(called.append)
    weft.shutdown()
    with pytest.raises(RuntimeError):
        future.result()
    assert called == [ref]


def test_a_callback_that_fails_at_the_sessions_end_is_printed_and_keeps_no_other_from_its_turn(
    capfd: pytest.CaptureFixture[str],
) -> None:
    weft.init(num_cpus=2)
    refs = [for_ever.remote() for _ in range(3)]
    for ref in refs:
        ref.add_done_callback(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    future = refs[-1].future()
    weft.shutdown()
    with pytest.raises(RuntimeError):
        future.result()
    assert capfd.readouterr().err.count("ZeroDivisionError") == 3


def test_a_wait_on_generators_and_refs_ends_when_another_thread_ends_the_session() -> None:
    weft.init(num_cpus=2)
    stream = one_item.remote()
    assert weft.get(next(stream)) == 1
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            weft.wait([stream, for_ever.remote()], num_returns=2)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.2)
    weft.shutdown()
    thread.join()
    assert isinstance(errors[0], RuntimeError)


def test_what_a_pool_was_given_is_settled_with_the_sessions_end() -> None:
    weft.init(num_cpus=2)
    errors: list[BaseException] = []
    pool = Pool(2)
    for _ in range(4):
        pool.apply_async(time.sleep, (3600,), error_callback=errors.append)
    weft.shutdown()
    wait_until(lambda: len(errors) == 4)
    assert not weft.is_initialized()
