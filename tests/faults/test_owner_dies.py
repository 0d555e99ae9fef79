"""The process that owns an object dies: who still refers to it goes on, and its memory comes back at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from waiting import comes_true
from weft import _native
from weft.engine.process.calls.export import define_shape
from weft.engine.process.options.call_options import Placement
from weft.engine.process.session import rpc

MIB = 1 << 20


@weft.remote
class Owner:
    """A process of its own, which owns what it makes."""

    def pid(self) -> int:
        return os.getpid()

    def put(self, value: Any) -> list[Any]:
        return [weft.put(value)]

    def put_nested(self) -> list[Any]:
        return [weft.put([weft.put(np.full(MIB, 7, dtype=np.uint8)), weft.put("small")])]

    def submit(self, folder: str, retries: int = 3) -> list[Any]:
        return [wait_for_file.options(max_retries=retries).remote(folder)]

    def submit_pair(self, folder: str) -> list[Any]:
        return [pair.remote(folder)[1]]

    def submit_chain(self, folder: str) -> list[Any]:
        first = wait_for_file.remote(folder)
        second = add.remote(first, weft.put(np.ones(MIB, dtype=np.uint8)))
        return [add_boxed.remote([second], 1)]

    def call(self, actor: Any, folder: str) -> list[Any]:
        return [actor.answer.remote(folder)]

    def take_items(self, folder: str) -> list[Any]:
        self.items = items.remote(folder)
        return [next(self.items), next(self.items)]

    def pass_stream_on(self, folder: str) -> list[Any]:
        return [items.remote(folder)]


@weft.remote
class Slow:
    def answer(self, folder: str) -> int:
        Path(folder, "started-call").touch()
        return wait_for_go(folder)


@weft.remote
class Keeper:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, refs: list[Any]) -> None:
        self.kept = refs

    def wait_for_go(self, folder: str) -> int:
        Path(folder, "started").touch()
        return wait_for_go(folder)

    def read(self) -> Any:
        return weft.get(self.kept[0])

    def lend(self) -> list[Any]:
        return self.kept


def wait_for_go(folder: str) -> int:
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return 5


@weft.remote
def wait_for_file(folder: str) -> int:
    Path(folder, f"started-{os.getpid()}-{time.monotonic_ns()}").touch()
    return wait_for_go(folder)


@weft.remote(num_returns=2)
def pair(folder: str) -> tuple[str, str]:
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return "first", "second"


@weft.remote
def items(folder: str) -> Iterator[Any]:
    yield "small"
    yield np.full(MIB, 6, dtype=np.uint8)
    yield wait_for_go(folder)


@weft.remote
def add(number: int, array: Any) -> int:
    return number + int(array.sum())


@weft.remote
def add_boxed(refs: list[Any], number: int) -> int:
    return int(weft.get(refs[0])) + number


@weft.remote
def read(value: Any) -> Any:
    return value


@weft.remote
def read_boxed(refs: list[Any]) -> Any:
    return weft.get(refs[0])


def kill(actor: Any) -> None:
    """With -9, and nothing of it is left."""
    pid = weft.get(actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    assert comes_true(lambda: all(worker["pid"] != pid for worker in rpc.request("workers")))


def holds_nothing() -> bool:
    mine, node = _native.statistics(), rpc.request("statistics")
    return mine["objects_owned"] == mine["objects_borrowed"] == mine["pending_tasks"] == node["objects"] == 0


@pytest.mark.parametrize("value", ["small", np.arange(MIB)], ids=["inline", "in the arena"])
def test_what_it_put_is_still_there(weft_session: ModuleType, value: Any) -> None:
    owner = Owner.remote()
    [ref] = weft.get(owner.put.remote(value))
    kill(owner)
    assert np.array_equal(weft.get(ref, timeout=60), value)
    assert np.array_equal(weft.get(read.remote(ref), timeout=60), value)
    assert np.array_equal(weft.get(read_boxed.remote([ref]), timeout=60), value)
    del ref, owner
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_a_value_that_was_read_before_stays_and_can_be_passed_on(weft_session: ModuleType) -> None:
    owner = Owner.remote()
    [ref] = weft.get(owner.put.remote(np.ones(MIB)))
    view = weft.get(ref)
    kill(owner)
    assert view.sum() == MIB
    assert weft.get(read_boxed.remote([ref]), timeout=60).sum() == MIB


def test_a_ref_may_be_passed_on_while_it_moves(weft_session: ModuleType) -> None:
    for _ in range(10):
        owner = Owner.remote()
        [ref] = weft.get(owner.put.remote(np.ones(MIB)))
        weft.get(ref)
        os.kill(weft.get(owner.pid.remote()), signal.SIGKILL)
        results = [read_boxed.remote([ref]) for _ in range(20)]
        assert [int(array.sum()) for array in weft.get(results, timeout=60)] == [MIB] * 20
        del owner, ref, results
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_a_ref_that_waits_in_an_inbox_while_its_owner_dies_is_counted_in(
    weft_session: ModuleType, tmp_path: Path
) -> None:
    """Its caller drops it as soon as the call has returned, and reads nothing before."""
    owner, keeper = Owner.remote(), Keeper.remote()
    [ref] = weft.get(owner.put.remote(np.ones(MIB)))
    busy = keeper.wait_for_go.remote(str(tmp_path))
    assert comes_true((tmp_path / "started").exists)
    kept = keeper.keep.remote([ref])
    kill(owner)
    assert weft.wait([ref], timeout=60)[0], "it has an heir"
    (tmp_path / "go").touch()
    weft.get([busy, kept], timeout=60)
    del ref, busy, kept, owner
    assert comes_true(lambda: _native.statistics()["objects_borrowed"] == 0)
    assert weft.get(keeper.read.remote(), timeout=60).sum() == MIB
    del keeper
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_refs_in_its_values_stay_good(weft_session: ModuleType) -> None:
    owner = Owner.remote()
    [outer] = weft.get(owner.put_nested.remote())
    kill(owner)
    large, small = weft.get(outer, timeout=60)
    assert weft.get(large, timeout=60).sum() == 7 * MIB
    assert weft.get(small, timeout=60) == "small"
    del outer, large, small, owner
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_a_task_that_it_had_submitted_is_run_again(weft_session: ModuleType, tmp_path: Path) -> None:
    owner = Owner.remote()
    [ref] = weft.get(owner.submit.remote(str(tmp_path)))
    assert comes_true(lambda: bool(list(tmp_path.glob("started-*"))))
    kill(owner)
    assert weft.wait([ref], timeout=0)[0] == []
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=60) == 5


def test_a_task_of_it_is_not_taken_for_one_that_the_adopter_asked_for_itself(
    weft_session: ModuleType, tmp_path: Path
) -> None:
    """However many sets of resources the adopter has asked for: what it is given has a number of its own."""
    numbers = [define_shape(Placement({"gold": float(i)}), "never runs") for i in range(1, 4_200)]
    assert len(set(numbers)) == len(numbers)
    owner = Owner.remote()
    [ref] = weft.get(owner.submit.remote(str(tmp_path)))
    assert comes_true(lambda: bool(list(tmp_path.glob("started-*"))))
    kill(owner)
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=60) == 5


def test_what_its_tasks_need_is_handed_on_with_them(weft_session: ModuleType, tmp_path: Path) -> None:
    owner = Owner.remote()
    [ref] = weft.get(owner.submit_chain.remote(str(tmp_path)))
    assert comes_true(lambda: bool(list(tmp_path.glob("started-*"))))
    kill(owner)
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=60) == 5 + MIB + 1
    del ref, owner
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_a_task_that_may_not_run_twice_is_lost_with_its_owner(weft_session: ModuleType, tmp_path: Path) -> None:
    owner = Owner.remote()
    [ref] = weft.get(owner.submit.remote(str(tmp_path), 0))
    assert comes_true(lambda: bool(list(tmp_path.glob("started-*"))))
    kill(owner)
    with pytest.raises(weft.exceptions.OwnerDiedError, match="max_retries=0"):
        weft.get(ref, timeout=60)
    (tmp_path / "go").touch()


def test_a_call_that_may_not_be_made_twice_is_lost_with_its_caller(weft_session: ModuleType, tmp_path: Path) -> None:
    owner, slow = Owner.remote(), Slow.remote()
    [ref] = weft.get(owner.call.remote(slow, str(tmp_path)))
    assert comes_true((tmp_path / "started-call").exists)
    kill(owner)
    with pytest.raises(weft.exceptions.OwnerDiedError, match="max_task_retries=0"):
        weft.get(ref, timeout=60)
    (tmp_path / "go").touch()
    assert weft.get(slow.answer.remote(str(tmp_path)), timeout=60) == 5, "the actor goes on"


def test_of_several_returns_the_one_that_is_referred_to_is_made_by_its_new_owner(
    weft_session: ModuleType, tmp_path: Path
) -> None:
    owner = Owner.remote()
    [second] = weft.get(owner.submit_pair.remote(str(tmp_path)))
    kill(owner)
    (tmp_path / "go").touch()
    assert weft.get(second, timeout=60) == "second"


def test_items_of_a_stream_outlive_their_taker_and_nobody_else_can_wait_for_more(
    weft_session: ModuleType, tmp_path: Path
) -> None:
    owner = Owner.remote()
    small, large = weft.get(owner.take_items.remote(str(tmp_path)))
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        weft.get(owner.pass_stream_on.remote(str(tmp_path)))
    kill(owner)
    assert weft.get(small, timeout=60) == "small"
    assert weft.get(large, timeout=60).sum() == 6 * MIB
    (tmp_path / "go").touch()
    del small, large, owner
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_all_who_refer_to_it_find_its_new_owner(weft_session: ModuleType) -> None:
    owner = Owner.remote()
    keepers = [Keeper.options(num_cpus=0).remote() for _ in range(3)]
    [ref] = weft.get(owner.put.remote(np.full(MIB, 3, dtype=np.uint8)))
    weft.get([keeper.keep.remote([ref]) for keeper in keepers])
    kill(owner)
    assert [int(array.sum()) for array in weft.get([keeper.read.remote() for keeper in keepers], timeout=60)] == [
        3 * MIB
    ] * 3
    assert weft.get(ref, timeout=60).sum() == 3 * MIB
    del ref
    [lent] = weft.get(keepers[1].lend.remote(), timeout=60)
    assert weft.get(lent, timeout=60).sum() == 3 * MIB
    del lent, keepers, owner
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))


def test_owners_may_die_one_after_the_other(weft_session: ModuleType) -> None:
    first, second = Owner.remote(), Owner.options(num_cpus=0).remote()
    keeper = Keeper.options(num_cpus=0).remote()
    [ref] = weft.get(first.put.remote(np.full(MIB, 3, dtype=np.uint8)))
    weft.get(keeper.keep.remote([ref]))
    del ref
    kill(first)
    assert weft.get(keeper.read.remote(), timeout=60).sum() == 3 * MIB
    [lent] = weft.get(keeper.lend.remote(), timeout=60)
    weft.kill(keeper)
    assert weft.get(lent, timeout=60).sum() == 3 * MIB
    kill(second)
    assert weft.get(lent, timeout=60).sum() == 3 * MIB


def test_a_detached_actor_keeps_what_a_driver_left(weft_session: ModuleType) -> None:
    script = """if True:
        import sys, numpy, weft
        weft.init(address=sys.argv[1], namespace="kept")
        keeper = weft.get_actor("keeper")
        weft.get(keeper.keep.remote([weft.put(numpy.full(1 << 20, 9, dtype=numpy.uint8))]))
    """
    keeper = Keeper.options(name="keeper", namespace="kept", lifetime="detached").remote()
    weft.get(keeper.lend.remote())
    address = weft.get_runtime_context().gcs_address
    subprocess.run([sys.executable, "-c", script, address], check=True, timeout=280)
    assert weft.get(keeper.read.remote(), timeout=60).sum() == 9 * MIB
    weft.kill(keeper)


def test_what_nobody_refers_to_goes_with_it(weft_session: ModuleType) -> None:
    owner = Owner.remote()
    [ref] = weft.get(owner.put.remote(np.ones(MIB)))
    pid = weft.get(owner.pid.remote())
    del ref
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    del owner
    assert comes_true(holds_nothing), (_native.held_objects(9), rpc.request("statistics"))
