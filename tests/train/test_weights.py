"""A learner's weights to many readers: what they get, how many copies there are, and when an old version goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from waiting import wait_until
from weft import train
from weft.testing import fake_device
from weft.testing.fake_device import HIDDEN, FakeArray

SIZE = 400_000


@weft.remote(num_cpus=0)
class Process:
    """A learner, or a reader that sees one device of that number, or none."""

    def __init__(self, device: int | None = 0) -> None:
        os.environ[HIDDEN] = "0" if device is None else "1"
        fake_device.FakeDriver.devices = lambda self: [] if device is None else [f"fake-{device}"]  # type: ignore[method-assign]
        fake_device.FakeDriver.device_of = lambda self, address: f"fake-{device}"  # type: ignore[method-assign]
        self.kept: list[Any] = []

    def publish(self, weights: train.Weights, number: int) -> int:
        return weights.publish({"layer": FakeArray.of(np.full(SIZE, number, np.uint8))})

    def read(self, weights: train.Weights, newer_than: int = 0, keep: bool = True) -> tuple[int, int, bool]:
        version, state = weights.read(newer_than)
        if keep:
            self.kept.append(state)
        return version, int(state["layer"].array().max()), state["layer"].is_on_device

    def kept_numbers(self) -> list[int]:
        return [int(state["layer"].array().max()) for state in self.kept]

    def drop(self) -> None:
        self.kept.clear()

    def used(self) -> int:
        return fake_device.used_bytes()

    def opened(self) -> int:
        return fake_device.open_count()

    def fill(self) -> None:
        fake_device.TOTAL_BYTES = fake_device.used_bytes()

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture(autouse=True, scope="module")
def session() -> Iterator[None]:
    """Tasks see no device; a process sees what it is told to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HIDDEN, "0")
        weft.init(num_cpus=2)
        yield
        weft.shutdown()


def each(actors: list[Any], method: str, *args: Any) -> list[Any]:
    return weft.get([getattr(actor, method).remote(*args) for actor in actors])


def test_what_is_published_is_what_all_read_whatever_library_it_is_of() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")

    @weft.remote(num_cpus=0)
    def read(weights: train.Weights) -> tuple[int, list[float]]:
        version, state = weights.read()
        return version, [float(state[name].sum()) for name in ("numpy", "torch", "jax")]

    weights = train.Weights()
    for version in (1, 2):
        numbers = np.full(100_000, version, np.float32)
        assert (
            weights.publish({"numpy": numbers, "torch": torch.tensor(numbers), "jax": jax.asarray(numbers)}) == version
        )
        numbers[:] = -1  # the learner trains on
        assert weft.get([read.remote(weights) for _ in range(4)]) == [(version, [1e5 * version] * 3)] * 4


def test_who_waits_for_a_newer_version_gets_it_when_it_comes() -> None:
    @weft.remote(num_cpus=0)
    def wait(weights: train.Weights) -> tuple[int, int]:
        return weights.read(newer_than=1)

    weights = train.Weights()
    with pytest.raises(weft.exceptions.GetTimeoutError, match="no version of the weights above 0"):
        weights.read(timeout_s=0.01)
    weights.publish(10)
    waiting = [wait.remote(weights) for _ in range(3)]
    assert not weft.wait(waiting, timeout=0.05)[0]
    weights.publish(20)
    assert weft.get(waiting) == [(2, 20)] * 3


def test_readers_on_the_learners_device_open_what_it_has() -> None:
    weights, learner, readers = train.Weights(), Process.remote(), [Process.remote() for _ in range(4)]
    weft.get(learner.publish.remote(weights, 7))
    assert each(readers, "read", weights) == [(1, 7, True)] * 4
    assert each(readers, "used") == [0] * 4
    assert each(readers, "opened") == [1] * 4


def test_an_old_version_is_readable_until_its_last_reader_is_done() -> None:
    weights, learner, readers = train.Weights(), Process.remote(), [Process.remote() for _ in range(2)]
    weft.get(learner.publish.remote(weights, 7))
    each(readers, "read", weights)
    weft.get(learner.publish.remote(weights, 8))
    assert weft.get(readers[0].read.remote(weights)) == (2, 8, True)
    assert each(readers, "kept_numbers") == [[7, 8], [7]]
    assert weft.get(learner.used.remote()) == 2 * SIZE
    each(readers, "drop")
    wait_until(lambda: weft.get(learner.used.remote()) == SIZE)


def test_a_second_device_has_one_copy_for_all_readers_there() -> None:
    weights, learner, readers = train.Weights(), Process.remote(), [Process.remote(1) for _ in range(4)]
    for version in (1, 2):
        weft.get(learner.publish.remote(weights, version))
        assert each(readers, "read", weights, version - 1) == [(version, version, True)] * 4
    wait_until(lambda: sum(each(readers, "used")) == 2 * SIZE)
    each(readers, "drop")
    wait_until(lambda: sum(each(readers, "used")) == SIZE)  # the newest version stays for those that come


def test_when_the_reader_that_has_the_copy_dies_another_one_brings_it() -> None:
    weights, learner, readers = train.Weights(), Process.remote(), [Process.remote(1) for _ in range(3)]
    weft.get(learner.publish.remote(weights, 7))
    weft.get(readers[0].read.remote(weights))
    os.kill(weft.get(readers[0].pid.remote()), signal.SIGKILL)
    assert each(readers[1:], "read", weights) == [(1, 7, True)] * 2
    wait_until(lambda: sum(each(readers[1:], "used")) == SIZE)


def test_who_sees_no_device_reads_one_copy_in_memory_of_the_host() -> None:
    weights, learner, readers = train.Weights(), Process.remote(), [Process.remote(None) for _ in range(3)]
    weft.get(learner.publish.remote(weights, 7))
    assert each(readers, "read", weights) == [(1, 7, False)] * 3
    assert each(readers, "used") == [0] * 3


def test_a_reader_that_cannot_copy_says_why_and_holds_nobody_up() -> None:
    weights, learner, readers = train.Weights(), Process.remote(), [Process.remote(1) for _ in range(3)]

    weft.get(learner.publish.remote(weights, 7))
    weft.get(readers[0].fill.remote())
    with pytest.raises(weft.exceptions.TaskError, match="has no room for"):
        weft.get(readers[0].read.remote(weights))
    assert each(readers[1:], "read", weights) == [(1, 7, True)] * 2
