"""Counting and borrowing: whatever was done with refs, the node's memory is empty again once they are gone.

Large values only: what is measured is the arena, and the objects that this process owns or borrows.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest

import weft
from waiting import comes_true
from weft import _native
from weft.engine.process.session import rpc

HANG_S = 60.0
SIZE = 4 << 20
MIB = 1 << 20


def arena() -> dict[str, int]:
    statistics = rpc.request("statistics")
    return {name: statistics[name] for name in ("used_bytes", "objects", "spilled_objects")}


def held() -> dict[str, int]:
    statistics = _native.statistics()
    return {name: statistics[name] for name in ("objects_owned", "objects_borrowed", "pending_tasks")}


def array(fill: int, size: int = SIZE) -> Any:
    return np.full(size, fill % 251, dtype=np.uint8)


def is_filled(value: Any, fill: int, size: int = SIZE) -> bool:
    return len(value) == size and bool((value == fill % 251).all())


@pytest.fixture
def baseline(shared_weft_session: ModuleType) -> Iterator[None]:
    """Afterwards nothing runs, this process holds nothing and the arena is empty."""
    yield
    gc.collect()
    assert comes_true(lambda: not any(held().values()) and not any(arena().values())), (held(), arena())


@weft.remote
def make(fill: int) -> Any:
    return array(fill)


@weft.remote
def first(values: Any) -> int:
    """Of an array, or of a ref in a list."""
    return int((weft.get(values[0]) if isinstance(values, list) else values)[0])


@weft.remote
def make_refs(count: int) -> list[Any]:
    return [weft.put(array(number)) for number in range(count)]


@weft.remote
def make_task_refs(count: int) -> list[Any]:
    return [make.remote(number) for number in range(count)]


@weft.remote
def pass_on(refs: list[Any], depth: int) -> Any:
    """The same refs, through as many processes as it takes."""
    return refs if depth == 0 else weft.get(pass_on.remote(refs, depth - 1))


@weft.remote
class Keeper:
    def __init__(self) -> None:
        self.kept: Any = None

    def keep(self, refs: Any) -> int:
        self.kept = refs
        return os.getpid()

    def read(self) -> int:
        return int(weft.get(self.kept[0])[0])

    def lend(self) -> Any:
        return self.kept

    def make(self, fill: int) -> list[Any]:
        return [weft.put(array(fill))]

    def drop(self) -> None:
        self.kept = None


# ---- one owner -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("baseline")
class TestOwner:
    def test_a_dropped_put_is_freed(self) -> None:
        ref = weft.put(array(1))
        assert arena()["used_bytes"] >= SIZE
        del ref

    def test_many_puts_leave_nothing(self) -> None:
        refs = [weft.put(array(fill, MIB)) for fill in range(100)]
        assert all(is_filled(value, fill, MIB) for fill, value in enumerate(weft.get(refs)))

    def test_a_dropped_result_is_freed(self) -> None:
        assert is_filled(weft.get(make.remote(3)), 3)

    def test_a_result_nobody_waits_for_is_freed(self) -> None:
        for fill in range(10):
            make.remote(fill)

    def test_a_large_argument_lives_as_long_as_its_task(self) -> None:
        assert weft.get([first.remote(array(fill)) for fill in range(10)]) == list(range(10))

    def test_a_ref_dropped_before_its_task_ends_is_kept_for_it(self) -> None:
        results = []
        for fill in range(10):
            ref = weft.put(array(fill))
            results.append(first.remote(ref))
            del ref
        assert weft.get(results) == list(range(10))

    def test_a_result_that_only_another_task_needs_is_kept_for_it(self) -> None:
        assert weft.get([first.remote(make.remote(fill)) for fill in range(10)]) == list(range(10))

    def test_a_ref_inside_a_value_is_kept_with_it(self) -> None:
        outer = weft.put({"inner": [weft.put(array(5))]})
        gc.collect()
        [inner] = weft.get(outer)["inner"]
        del outer
        assert is_filled(weft.get(inner), 5)

    def test_refs_in_refs_in_refs_are_freed_with_the_outermost(self) -> None:
        ref = weft.put([array(0)])
        for _ in range(20):
            ref = weft.put([ref])
        for _ in range(20):
            [ref] = weft.get(ref)
        assert is_filled(weft.get(ref)[0], 0)

    def test_a_failed_task_frees_its_arguments(self) -> None:
        @weft.remote
        def fail(value: Any, refs: Any) -> None:
            raise ValueError("on purpose")

        with pytest.raises(ValueError, match="on purpose"):
            weft.get(fail.remote(array(1), [weft.put(array(2))]))

    def test_refs_in_a_cycle_go_with_the_cycle(self) -> None:
        cycle: list[Any] = [weft.put(array(1))]
        cycle.append(cycle)

    def test_the_memory_of_threads_that_put_and_get_comes_back(self) -> None:
        def work(fill: int) -> None:
            for _ in range(20):
                assert is_filled(weft.get(weft.put(array(fill, MIB))), fill, MIB)

        threads = [threading.Thread(target=work, args=(fill,)) for fill in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


# ---- views -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("baseline")
class TestViews:
    def test_a_view_outlives_its_ref(self) -> None:
        ref = weft.put(array(7))
        view = weft.get(ref)
        del ref
        gc.collect()
        others = [weft.put(array(fill)) for fill in range(10)]  # would be written where it was
        assert is_filled(view, 7)
        assert arena()["used_bytes"] >= 11 * SIZE
        del others

    def test_a_slice_keeps_the_whole(self) -> None:
        part = weft.get(weft.put(array(9)))[10:20]
        gc.collect()
        others = [weft.put(array(fill)) for fill in range(10)]
        assert part.tolist() == [9] * 10
        del others

    def test_a_view_of_a_result_outlives_the_worker(self) -> None:
        keeper = Keeper.remote()
        [ref] = weft.get(keeper.make.remote(4))
        view = weft.get(ref)
        weft.kill(keeper)
        del ref, keeper
        others = [weft.put(array(fill)) for fill in range(10)]
        assert is_filled(view, 4)
        del others

    def test_a_worker_can_keep_a_view_of_its_argument(self) -> None:
        @weft.remote
        class Viewer:
            def look(self, value: Any) -> None:
                self.view = value

            def check(self, fill: int) -> bool:
                return is_filled(self.view, fill)

        viewer = Viewer.remote()
        weft.get(viewer.look.remote(array(6)))
        others = [weft.put(array(fill)) for fill in range(10)]
        assert weft.get(viewer.check.remote(6))
        assert arena()["used_bytes"] >= 11 * SIZE
        del others


# ---- borrowers -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("baseline")
class TestBorrowers:
    def test_a_task_borrows_for_as_long_as_it_runs(self) -> None:
        assert weft.get([first.remote([weft.put(array(fill))]) for fill in range(10)]) == list(range(10))

    def test_refs_returned_by_a_task_are_owned_by_its_worker_and_freed_by_us(self) -> None:
        refs = weft.get(make_refs.remote(5))
        assert all(is_filled(value, fill) for fill, value in enumerate(weft.get(refs)))

    def test_refs_of_tasks_returned_by_a_task_are_freed(self) -> None:
        refs = weft.get(make_task_refs.remote(5))
        assert weft.get([first.remote(ref) for ref in refs]) == list(range(5))

    def test_returned_refs_that_nobody_looks_at_are_freed(self) -> None:
        weft.wait([make_refs.remote(5)], timeout=HANG_S)
        make_refs.remote(5)
        make_task_refs.remote(5)

    def test_a_ref_that_comes_back_to_its_owner_is_its_own(self) -> None:
        ref = weft.put(array(8))
        [back] = weft.get(pass_on.remote([ref], 0))
        assert back == ref
        del ref
        assert is_filled(weft.get(back), 8)

    def test_a_ref_passed_on_by_borrowers_is_freed_after_the_last(self) -> None:
        refs = weft.get(pass_on.remote([weft.put(array(2))], 4))
        assert is_filled(weft.get(refs[0]), 2)

    def test_a_workers_ref_passed_on_by_borrowers_is_freed_after_the_last(self) -> None:
        refs = weft.get(pass_on.remote(weft.get(make_refs.remote(3)), 3))
        assert weft.get([first.remote([ref]) for ref in refs]) == [0, 1, 2]

    def test_an_actor_keeps_what_it_stores(self) -> None:
        keeper = Keeper.remote()
        ref = weft.put(array(3))
        weft.get(keeper.keep.remote([ref]))
        del ref
        gc.collect()
        assert weft.get(keeper.read.remote()) == 3
        assert arena()["used_bytes"] >= SIZE
        weft.get(keeper.drop.remote())
        assert comes_true(lambda: arena()["used_bytes"] == 0), arena()

    def test_an_actor_that_ends_gives_back_what_it_kept(self) -> None:
        keeper = Keeper.remote()
        weft.get(keeper.keep.remote([weft.put(array(3))]))
        del keeper

    def test_a_borrower_that_is_killed_gives_back_what_it_kept(self) -> None:
        keepers = [Keeper.remote() for _ in range(3)]
        ref = weft.put(array(3))
        weft.get([keeper.keep.remote([ref]) for keeper in keepers])
        del ref
        for keeper in keepers:
            weft.kill(keeper)

    def test_a_borrower_lends_to_a_borrower_and_dies(self) -> None:
        lender, second = Keeper.remote(), Keeper.remote()
        weft.get(lender.keep.remote([weft.put(array(5))]))
        weft.get(second.keep.remote(weft.get(lender.lend.remote())))
        weft.kill(lender)
        assert weft.get(second.read.remote()) == 5

    def test_an_actors_put_is_freed_when_the_last_borrower_drops_it(self) -> None:
        maker, keeper = Keeper.remote(), Keeper.remote()
        weft.get(keeper.keep.remote(weft.get(maker.make.remote(6))))
        assert weft.get(keeper.read.remote()) == 6
        weft.get(keeper.drop.remote())
        assert comes_true(lambda: arena()["used_bytes"] == 0), arena()
        assert weft.get(maker.lend.remote()) is None

    def test_actors_that_keep_each_others_handles_end_when_killed(self) -> None:
        one, other = Keeper.remote(), Keeper.remote()
        weft.get([one.keep.remote([other, weft.put(array(1))]), other.keep.remote([one, weft.put(array(2))])])
        weft.kill(one)
        weft.kill(other)

    def test_an_actors_handle_to_itself_does_not_keep_memory_after_its_end(self) -> None:
        keeper = Keeper.remote()
        weft.get(keeper.keep.remote([keeper, weft.put(array(1))]))
        weft.kill(keeper)

    def test_a_thousand_refs_through_one_task_are_all_freed(self) -> None:
        refs = [weft.put(array(fill, 100_000)) for fill in range(1000)]

        @weft.remote
        def total(refs: list[Any]) -> int:
            return sum(int(value[0]) for value in weft.get(refs))

        assert weft.get(total.remote(refs)) == sum(fill % 251 for fill in range(1000))


def test_the_process_itself_does_not_grow(shared_weft_session: ModuleType) -> None:
    """Entries, records and rings are reused: a million calls cost what a thousand cost."""

    @weft.remote
    def echo(x: Any) -> Any:
        return x

    def work(count: int) -> None:
        for _ in range(count):
            assert weft.get([echo.remote(i) for i in range(1000)]) == list(range(1000))
            weft.get([weft.put(array(1, 200_000)) for _ in range(3)])

    pids = [os.getpid(), rpc.request("statistics")["daemon_pid"]]
    work(20)
    gc.collect()
    before = [psutil.Process(pid).memory_full_info().uss for pid in pids]
    work(60)
    gc.collect()
    after = [psutil.Process(pid).memory_full_info().uss for pid in pids]
    assert all(now - then < 4 * MIB for now, then in zip(after, before, strict=True)), (before, after)
