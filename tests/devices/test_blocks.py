"""What values name of a device's memory, on the stand-in for a device: who keeps it, who opens it, when it goes."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import psutil
import pytest

import weft
from waiting import wait_until
from weft.devices import holder
from weft.testing import fake_device
from weft.testing.fake_device import FakeArray

SIZE = 400_000


@weft.remote(num_cpus=0)
class Holder:
    """Makes arrays on the device, and says what is held there."""

    def __init__(self, variables: dict[str, str] | None = None) -> None:
        os.environ.update(variables or {})
        self.kept: list[Any] = []

    def make(self, number: int, size: int = SIZE) -> FakeArray:
        return FakeArray.of(np.full(size, number, np.uint8))

    def make_and_keep(self, number: int) -> FakeArray:
        self.kept.append(FakeArray.of(np.full(SIZE, number, np.uint8)))
        return self.kept[-1]

    def put(self, number: int) -> list[Any]:
        self.kept.append(FakeArray.of(np.full(SIZE, number, np.uint8)))
        return [weft.put(self.kept[-1])]

    def write(self, number: int) -> None:
        self.kept[-1].array()[:] = number

    def used(self) -> int:
        return fake_device.used_bytes()

    def opened(self) -> int:
        return fake_device.open_count()

    def total(self, value: Any) -> tuple[int, bool]:
        return int(value.array().sum(dtype=np.int64)), value.is_on_device

    def keep(self, value: Any) -> int:
        self.kept.append(value)
        return fake_device.open_count()

    def drop(self) -> None:
        self.kept.clear()

    def rows(self) -> list[dict[str, Any]]:
        return holder.server().rows()

    def spilled(self) -> int:
        return holder.server().spilled

    def pid(self) -> int:
        return os.getpid()


pytestmark = pytest.mark.usefixtures("weft_session")


def used(actor: Any) -> int:
    return int(weft.get(actor.used.remote()))


def test_what_an_actor_returns_stays_on_its_device_and_is_opened_where_it_lies() -> None:
    maker = Holder.remote()
    value = weft.get(maker.make.remote(7))
    assert value.is_on_device
    assert fake_device.open_count() == 1
    assert (value.array() == 7).all()
    value.array()[0] = 9  # the same memory, not a copy
    assert used(maker) == SIZE
    del value
    assert fake_device.open_count() == 0
    wait_until(lambda: used(maker) == 0)


def test_memory_is_held_as_long_as_there_is_a_ref_and_no_longer() -> None:
    maker, reader = Holder.remote(), Holder.remote()
    ref = maker.make.remote(3)
    assert weft.get(reader.total.remote(ref)) == (3 * SIZE, True)
    assert weft.get(reader.total.remote(ref)) == (3 * SIZE, True)
    assert used(maker) == SIZE
    assert weft.get(reader.used.remote()) == 0
    del ref
    wait_until(lambda: used(maker) == 0)


def test_a_reader_that_keeps_the_value_keeps_the_memory_after_the_last_ref() -> None:
    maker, reader = Holder.remote(), Holder.remote()
    ref = maker.make.remote(3)
    assert weft.get(reader.keep.remote(ref)) == 1
    del ref
    other = maker.make.remote(4)
    weft.get(reader.total.remote(other))
    del other
    wait_until(lambda: used(maker) == SIZE)
    weft.get(reader.drop.remote())
    wait_until(lambda: used(maker) == 0)


def test_a_reader_that_is_killed_keeps_nothing() -> None:
    maker, reader = Holder.remote(), Holder.remote()
    ref = maker.make.remote(3)
    weft.get(reader.keep.remote(ref))
    assert weft.get(maker.rows.remote())[0]["readers"] == 1
    os.kill(weft.get(reader.pid.remote()), signal.SIGKILL)
    wait_until(lambda: weft.get(maker.rows.remote())[0]["readers"] == 0)
    del ref
    wait_until(lambda: used(maker) == 0)


def test_values_in_values_and_refs_in_refs_hold_the_memory() -> None:
    maker = Holder.remote()
    inner = maker.make.remote(5)
    outer = weft.put({"nested": [inner]})
    del inner
    other = maker.make.remote(6)
    weft.wait([other])
    again = weft.get(outer)["nested"][0]
    assert (weft.get(again).array() == 5).all()
    del again, outer
    wait_until(lambda: used(maker) == SIZE)
    del other
    wait_until(lambda: used(maker) == 0)


def test_what_is_put_is_copied_so_that_its_maker_may_go_on_writing() -> None:
    maker = Holder.remote()
    [ref] = weft.get(maker.put.remote(1))
    weft.get(maker.write.remote(2))
    assert (weft.get(ref).array() == 1).all()


def test_an_argument_given_by_value_is_copied_and_goes_with_its_task() -> None:
    value = FakeArray.of(np.full(SIZE, 2, np.uint8))
    reader = Holder.remote()
    assert weft.get(reader.total.remote(value)) == (2 * SIZE, True)
    wait_until(lambda: fake_device.used_bytes() == SIZE)


def test_the_holder_itself_reads_what_it_stored() -> None:
    value = FakeArray.of(np.full(SIZE, 2, np.uint8))
    ref = weft.put(value)
    assert fake_device.used_bytes() == 2 * SIZE
    assert (weft.get(ref).array() == 2).all()
    del ref
    wait_until(lambda: fake_device.used_bytes() == SIZE)


def test_writable_gives_memory_of_ones_own() -> None:
    maker = Holder.remote()
    ref = maker.make.remote(1)
    own = weft.get(ref, writable=True)
    own.array()[:] = 9
    assert own.is_on_device
    assert (weft.get(ref).array() == 1).all()


def test_a_value_whose_holder_was_killed_is_made_again() -> None:
    @weft.remote(max_retries=3)
    def make() -> tuple[FakeArray, int]:
        return FakeArray.of(np.full(SIZE, 8, np.uint8)), os.getpid()

    ref = make.remote()
    value, pid = weft.get(ref)
    del value
    os.kill(pid, signal.SIGKILL)
    again, other = weft.get(ref)
    assert other != pid
    assert (again.array() == 8).all()


def test_a_lost_argument_is_made_again_for_its_task() -> None:
    @weft.remote(max_retries=3)
    def make() -> tuple[FakeArray, int]:
        return FakeArray.of(np.full(SIZE, 8, np.uint8)), os.getpid()

    @weft.remote
    def read(made: tuple[FakeArray, int]) -> tuple[int, int]:
        return int(made[0].array().sum(dtype=np.int64)), made[1]

    ref = make.remote()
    pid = weft.get(ref)[1]
    os.kill(pid, signal.SIGKILL)
    total, other = weft.get(read.remote(ref))
    assert (total, other != pid) == (8 * SIZE, True)


def test_what_was_put_by_a_process_that_died_is_lost_by_name() -> None:
    maker = Holder.remote()
    [ref] = weft.get(maker.put.remote(1))
    process = psutil.Process(weft.get(maker.pid.remote()))
    process.kill()
    process.wait(60)
    with pytest.raises(weft.exceptions.WeftError):
        weft.get(ref, timeout=30)


def test_a_reader_that_sees_no_device_gets_it_in_memory_of_the_host() -> None:
    maker, reader = Holder.remote(), Holder.remote({fake_device.HIDDEN: "0"})
    large = 100_000_000  # several rounds of the ring
    ref = maker.make.remote(3, large)
    assert weft.get(reader.total.remote(ref)) == (3 * large, False)
    del ref
    wait_until(lambda: used(maker) == 0)


def test_where_devices_may_not_be_shared_it_is_copied_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DEVICE_IPC", "0")
    maker = Holder.remote()
    value = weft.get(maker.make.remote(3, 100_000_000))
    assert value.is_on_device
    assert fake_device.open_count() == 0
    assert (value.array() == 3).all()
    del value
    wait_until(lambda: fake_device.used_bytes() == 0)


def test_what_was_read_longest_ago_is_spilled_when_the_budget_is_full_and_comes_back() -> None:
    maker = Holder.remote({holder.BUDGET_VARIABLE: str(2 * SIZE)})
    refs = [maker.make.remote(number) for number in range(6)]
    weft.wait(refs, num_returns=6)
    assert weft.get(maker.spilled.remote()) == 4
    assert used(maker) == 2 * SIZE
    for number, ref in enumerate(refs):
        value = weft.get(ref)
        assert (value.array() == number).all()
        del value
    wait_until(lambda: used(maker) <= 3 * SIZE)
    del refs, ref
    wait_until(lambda: used(maker) == 0)


def test_what_somebody_reads_is_not_spilled() -> None:
    maker = Holder.remote({holder.BUDGET_VARIABLE: str(SIZE)})
    first = weft.get(maker.make.remote(1))
    refs = [maker.make.remote(number) for number in range(3)]
    weft.wait(refs, num_returns=3)
    assert (first.array() == 1).all()
    first.array()[:] = 5
    assert (first.array() == 5).all()


def test_many_passes_leave_nothing() -> None:
    maker, reader = Holder.remote(), Holder.remote()
    for number in range(50):
        weft.get([reader.total.remote(maker.make.remote(number)) for _ in range(4)])
    wait_until(lambda: used(maker) == 0)
    wait_until(lambda: weft.get(reader.opened.remote()) == 0)
    assert weft.get(maker.rows.remote()) == []


def test_a_value_is_read_on_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same session all processes are of one machine; told apart, they go by a task there."""
    from weft.devices import machine_id

    maker = Holder.remote()
    ref = maker.make.remote(4)
    weft.wait([ref])
    monkeypatch.setattr(machine_id, "of", lambda: "another machine")
    value = weft.get(ref)
    assert (value.array() == 4).all()
    del value
    assert fake_device.open_count() == 0


def test_explain_tells_the_device_the_process_and_the_size_and_reads_nothing() -> None:
    maker = Holder.remote()
    pid = weft.get(maker.pid.remote())
    ref = maker.make.remote(7)
    weft.wait([ref])
    held = f"The process pid={pid} holds 1 block of it on fake-0: 400000 bytes lie on the device"
    assert f"{held}, nobody has it open." in weft.explain(ref)
    assert weft.get(maker.rows.remote())[0]["readers"] == 0
    value = weft.get(ref)
    assert f"{held}, readers have it open." in weft.explain(ref)
    assert (value.array() == 7).all()
    two = weft.put([value, FakeArray.of(np.ones(SIZE, np.uint8))])
    assert f"The process pid={os.getpid()} holds 2 blocks of it on fake-0: 800000 bytes lie" in weft.explain(two)


def test_explain_tells_what_is_spilled_and_leaves_it_so() -> None:
    maker = Holder.remote({holder.BUDGET_VARIABLE: str(SIZE)})
    refs = [maker.make.remote(number) for number in range(3)]
    weft.wait(refs, num_returns=3)
    spilled = "are spilled to the host"
    for ref, where in zip(refs, (spilled, spilled, "lie on the device"), strict=True):
        told = weft.explain(ref)
        assert f": 400000 bytes {where}, nobody has it open." in told, told
    assert weft.get(maker.spilled.remote()) == 2
    assert used(maker) == SIZE


def test_explain_of_another_machine_asks_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.devices import machine_id

    maker = Holder.remote()
    pid = weft.get(maker.pid.remote())
    ref = maker.make.remote(7)
    weft.wait([ref])
    monkeypatch.setattr(machine_id, "of", lambda: "another machine")
    assert f"The process pid={pid} holds 1 block of it on fake-0: 400000 bytes lie" in weft.explain(ref)


def test_explain_of_lost_blocks_says_so_and_get_makes_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.devices import machine_id

    @weft.remote(max_retries=3)
    def make() -> tuple[FakeArray, int]:
        return FakeArray.of(np.full(SIZE, 8, np.uint8)), os.getpid()

    ref = make.remote()
    value, pid = weft.get(ref)
    del value
    process = psutil.Process(pid)
    process.kill()
    process.wait(60)
    gone = "Its blocks on a device are gone: the process of this node that held them has ended."
    assert gone in weft.explain(ref)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(machine_id, "of", lambda: "another machine")
        assert gone in weft.explain(ref)
    assert (weft.get(ref)[0].array() == 8).all()


def test_explain_of_a_value_with_refs_and_no_blocks_tells_of_no_device() -> None:
    maker = Holder.remote()
    inner = maker.make.remote(5)
    outer = weft.put([inner, np.ones(SIZE)])
    assert "read in place. This process owns it" in weft.explain(outer)
