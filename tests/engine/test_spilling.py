"""A full arena: objects go to a file without a name, and come back as they were when they are wanted."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import weft
from waiting import comes_true
from weft.engine.process.session import rpc
from weft.exceptions import ObjectStoreFullError

pytestmark = pytest.mark.usefixtures("small_store")
HANG_S = 60.0
MIB = 1 << 20
SIZE = 4 * MIB


ENTRIES, ENTRIES_AT = struct.Struct("<I"), 28
"""How many entries the object table has, in the segment's header (`native/layout.hpp`)."""


def is_segment(path: str) -> bool:
    try:
        return os.readlink(path).startswith("/memfd:weft")
    except FileNotFoundError:
        return False


def arena() -> dict[str, int]:
    statistics = rpc.request("statistics")
    return {name: statistics[name] for name in ("used_bytes", "objects", "spilled_objects")}


def array(fill: int, size: int = SIZE) -> Any:
    return np.full(size, fill % 251, dtype=np.uint8)


def is_filled(value: Any, fill: int, size: int = SIZE) -> bool:
    return len(value) == size and bool((value == fill % 251).all())


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


@pytest.fixture
def small_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    weft.init(num_cpus=2, object_store_memory=64 * MIB)
    try:
        yield
    finally:
        weft.shutdown()
    assert not list(tmp_path.iterdir()), "a spill file has no name"


def test_what_does_not_fit_goes_to_disk_and_comes_back_as_it_was() -> None:
    refs = [weft.put(array(fill, 8 * MIB)) for fill in range(24)]
    assert arena()["spilled_objects"] > 0
    for fill, ref in enumerate(refs):
        assert is_filled(weft.get(ref), fill, 8 * MIB), fill
    for fill, ref in reversed(list(enumerate(refs))):
        assert is_filled(weft.get(ref), fill, 8 * MIB), fill


def test_there_may_be_more_spilled_objects_than_the_arena_has_room_for() -> None:
    refs = [weft.put(array(fill, 100_000)) for fill in range(1600)]
    assert arena()["spilled_objects"] > 1024, "the arena has 1024 granules"
    for fill in range(0, 1600, 100):
        assert is_filled(weft.get(refs[fill]), fill, 100_000), fill


def test_a_spilled_object_can_be_an_argument_or_a_nested_one() -> None:
    refs = [weft.put(array(fill, 8 * MIB)) for fill in range(16)]
    assert weft.get([first.remote(ref) for ref in refs]) == list(range(16))
    assert weft.get([first.remote([ref]) for ref in refs]) == list(range(16))


def test_results_of_tasks_and_puts_of_workers_are_spilled_too() -> None:
    refs = [make.remote(fill) for fill in range(40)]
    weft.wait(refs, num_returns=40, timeout=HANG_S)
    nested = [weft.get(make_refs.remote(4)) for _ in range(5)]
    assert all(is_filled(weft.get(ref), fill) for fill, ref in enumerate(refs))
    assert all(is_filled(weft.get(ref), fill) for row in nested for fill, ref in enumerate(row))


def test_memory_and_disk_come_back() -> None:
    for _ in range(3):
        refs = [weft.put(array(fill, 8 * MIB)) for fill in range(16)]
        del refs
        assert comes_true(lambda: arena() == {"used_bytes": 0, "objects": 0, "spilled_objects": 0}), arena()
    daemon = psutil.Process(rpc.request("statistics")["daemon_pid"])
    assert spill_bytes(daemon) < 200 * MIB, "the room of what was freed is used again"


def test_what_is_being_read_stays_where_it_is() -> None:
    view = weft.get(weft.put(array(3, 16 * MIB)))
    refs = [weft.put(array(fill, 8 * MIB)) for fill in range(12)]
    assert is_filled(view, 3, 16 * MIB)
    assert is_filled(weft.get(refs[0]), 0, 8 * MIB)


def test_a_store_full_of_what_is_being_read_names_the_largest_holders() -> None:
    views = [weft.get(weft.put(array(fill, size * MIB))) for fill, size in enumerate((24, 16, 12))]
    with pytest.raises(ObjectStoreFullError) as caught:
        weft.put(array(9, 20 * MIB))
    text = str(caught.value)
    assert re.search(rf"24\.0 MiB of the driver \(pid {os.getpid()}\), read by 1", text), text
    assert text.index("24.0 MiB of") < text.index("16.0 MiB of") < text.index("12.0 MiB of")
    assert all(is_filled(view, fill, len(view)) for fill, view in enumerate(views))
    del views
    assert is_filled(weft.get(weft.put(array(9, 20 * MIB))), 9, 20 * MIB)


@weft.remote
def read_until_told(view: Any, folder: Path) -> int:
    fill = int(view[0])
    (folder / f"reads {fill}").touch()
    assert comes_true((folder / "enough").exists)
    return fill


def test_room_comes_when_another_process_has_read_what_fills_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("told")
    reading = [read_until_told.remote(weft.put(array(fill, 24 * MIB)), folder) for fill in (5, 6)]
    assert comes_true(lambda: all((folder / f"reads {fill}").exists() for fill in (5, 6)))
    letting_go = threading.Timer(0.3, (folder / "enough").touch)
    letting_go.start()
    late = weft.put(array(9, 40 * MIB))
    letting_go.join()
    assert weft.get(reading, timeout=HANG_S) == [5, 6] and is_filled(weft.get(late), 9, 40 * MIB)


def test_a_thread_that_waits_for_room_does_not_hear_what_another_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("told")
    reading = [read_until_told.remote(weft.put(array(fill, 24 * MIB)), folder) for fill in (5, 6)]
    assert comes_true(lambda: all((folder / f"reads {fill}").exists() for fill in (5, 6)))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: weft.put(array(9, 40 * MIB)))
        for _ in range(20):
            with pytest.raises(ObjectStoreFullError, match="larger than the whole store"):
                weft.put(array(1, 100 * MIB))
        (folder / "enough").touch()
        assert is_filled(weft.get(waiting.result(HANG_S)), 9, 40 * MIB)
    assert weft.get(reading, timeout=HANG_S) == [5, 6]


def test_two_puts_that_do_not_fit_together_have_their_room_one_after_the_other() -> None:
    with ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(lambda start: [weft.put(array(start + i, 40 * MIB)) for i in range(4)], (0, 100)))
    for row, start in zip(rows, (0, 100), strict=True):
        assert all(is_filled(weft.get(ref), start + i, 40 * MIB) for i, ref in enumerate(row))


def test_a_node_that_is_ended_while_it_spills_leaves_nothing() -> None:
    @weft.remote
    def fill() -> None:
        kept = []
        while True:
            kept.append(weft.put(array(1, 16 * MIB)))

    fill.remote()
    assert comes_true(lambda: arena()["spilled_objects"] > 2)
    # The fixture ends the node now, and looks for what is left.


def test_a_full_object_table_says_so_and_what_to_do() -> None:
    segment = next(number for number in os.listdir("/proc/self/fd") if is_segment(f"/proc/self/fd/{number}"))
    before = os.pread(int(segment), ENTRIES.size, ENTRIES_AT)
    os.pwrite(int(segment), ENTRIES.pack(128), ENTRIES_AT)
    refs: list[Any] = []

    def put_more_than_fit() -> None:
        for number in range(129):
            refs.append(weft.put(array(number, 100_000)))

    with pytest.raises(ObjectStoreFullError, match=r"object table is full: \d+ objects.* Drop refs that are not"):
        put_more_than_fit()
    assert arena()["spilled_objects"] == 0, "nothing else was moved for it"
    del refs[10:]
    assert comes_true(lambda: arena()["objects"] < 100)
    refs.append(weft.put(array(7, 100_000)))
    assert is_filled(weft.get(refs[10]), 7, 100_000) and is_filled(weft.get(refs[9]), 9, 100_000)
    os.pwrite(int(segment), before, ENTRIES_AT)


def test_what_could_never_fit_is_refused() -> None:
    with pytest.raises(ObjectStoreFullError, match=r"100\.0 MiB do not fit"):
        weft.put(array(1, 100 * MIB))


def test_a_task_whose_result_does_not_fit_fails_with_that_error() -> None:
    @weft.remote
    def too_large() -> Any:
        return array(1, 100 * MIB)

    with pytest.raises(ObjectStoreFullError):
        weft.get(too_large.remote(), timeout=HANG_S)
    assert weft.get(first.remote(array(4))) == 4


def test_an_argument_that_does_not_fit_is_refused_at_the_call() -> None:
    with pytest.raises(ObjectStoreFullError):
        first.remote(array(1, 100 * MIB))
    assert weft.get(first.remote(array(4))) == 4


def spill_bytes(daemon: psutil.Process) -> int:
    """How much disk the daemon's nameless file takes."""
    total = 0
    for number in os.listdir(f"/proc/{daemon.pid}/fd"):
        path = f"/proc/{daemon.pid}/fd/{number}"
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            target = os.readlink(path)
            if "memfd" not in target and target.endswith("(deleted)"):
                total += os.stat(path).st_blocks * 512
    return total
