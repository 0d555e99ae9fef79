"""weft.map: as the builtin map, in parallel, in bounded memory, and nothing of it goes on after its end."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import comes_true, wait_until

import weft
from weft.engine.process.calls import mapping
from weft.exceptions import TaskError, WorkerCrashedError
from weft.terminal import bar

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def double(x: Any) -> Any:
    return 2 * x


remote_double = weft.remote(double)


@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
@pytest.mark.parametrize("items", [range(100), [*range(100)], tuple(range(100)), "iterator", np.arange(100)])
def test_results_are_those_of_the_builtin_map(items: Any, chunk: int | None) -> None:
    given = iter(range(100)) if isinstance(items, str) else items
    assert list(weft.map(double, given, chunk=chunk)) == [2 * x for x in range(100)]


def test_results_come_in_any_order_if_wanted() -> None:
    assert sorted(weft.map(double, range(50), order=False)) == [2 * x for x in range(50)]


def test_a_slow_first_item_holds_nothing_back_without_order(tmp_path: Path) -> None:
    def wait_for_the_last(x: int) -> int:
        wait_until((tmp_path / "go").exists) if x == 0 else None
        return x

    results = weft.map(wait_for_the_last, range(4), order=False, chunk=1)
    assert sorted(itertools.islice(results, 3)) == [1, 2, 3]
    (tmp_path / "go").touch()
    assert list(results) == [0]


def test_several_iterables_give_several_arguments_until_the_shortest_ends() -> None:
    assert list(weft.map(pow, [2, 3, 4], itertools.count(2))) == [4, 27, 256]


def test_a_remote_function_maps_with_its_options() -> None:
    assert list(remote_double.map([1, 2])) == [2, 4]
    assert list(remote_double.options(num_cpus=2).map([1, 2])) == [2, 4]
    assert list(weft.map(remote_double, [3])) == [6]


def test_refs_among_the_items_are_given_as_values() -> None:
    assert list(weft.map(double, [1, weft.put(2)])) == [2, 4]
    assert list(weft.map(pow, [weft.put(2)], [3])) == [8]


def test_nothing_and_an_endless_input_are_fine() -> None:
    assert list(weft.map(double, [])) == []
    assert list(itertools.islice(weft.map(double, itertools.count()), 5)) == [0, 2, 4, 6, 8]


def test_the_input_is_read_a_bounded_way_ahead() -> None:
    read = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    results = weft.map(double, numbers(), chunk=3)
    assert next(results) == 0
    assert len(read) == 3 * mapping.AHEAD * 2  # of two CPUs
    results.close()


def test_a_changed_global_is_seen_by_the_next_map() -> None:
    code = "factor = 2\ndef times(x): return factor * x"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code, namespace)
    assert list(weft.map(namespace["times"], [1])) == [2]
    namespace["factor"] = 3
    assert list(weft.map(namespace["times"], [1])) == [3]


# ---- errors ----


def fails_at_seven(x: int) -> int:
    if x == 7:
        raise ValueError("no sevens")
    return x


def test_an_error_comes_in_its_turn_and_names_its_item() -> None:
    taken: list[int] = []
    with pytest.raises(ValueError, match="no sevens") as raised:
        taken.extend(weft.map(fails_at_seven, range(20), chunk=5))
    assert taken == [0, 1, 2, 3, 4, 5, 6]
    assert isinstance(raised.value, TaskError)
    assert "in weft.map(fails_at_seven), item 7: 7" in str(raised.value)
    assert "fails_at_seven" in str(raised.value) and "chunk_task.py" not in str(raised.value)


def test_what_the_input_raises_comes_after_the_results_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("the disk is full")

    results = weft.map(double, source())
    assert next(results) == 2
    with pytest.raises(KeyError, match="the disk is full"):
        next(results)


def test_a_function_that_raises_stop_iteration_does_not_end_it_silently() -> None:
    def stop(x: int) -> int:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(weft.map(stop, [1]))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_a_worker_that_dies_is_told_with_its_chunk() -> None:
    die = weft.remote(max_retries=0)(lambda x: os._exit(1))
    with pytest.raises(WorkerCrashedError) as raised:
        list(die.map(range(4), chunk=2))
    assert "a chunk of 2 items, 0 to 1" in raised.value.__notes__[0]


def test_an_error_that_is_to_be_retried_is_retried(tmp_path: Path) -> None:
    @weft.remote(retry_exceptions=True, max_retries=1)
    def fail_once(x: int) -> int:
        if not (tmp_path / "tried").exists():
            (tmp_path / "tried").touch()
            raise ValueError
        return x

    assert list(fail_once.map([5])) == [5]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: weft.map(double), "at least one iterable"),
        (lambda: weft.map([1], double), "a function first, then the items"),
        (lambda: weft.map(double, 3), "not iterable"),
        (lambda: weft.map(double, [1], chunk=0), "chunk must be at least 1"),
        (lambda: weft.map(double, [1], chunk=1.5), "chunk must be a number of items"),
        (lambda: weft.map(double, [1], order="yes"), "order must be True"),
        (lambda: weft.map(remote_double.remote, [1]), "takes the function itself"),
        (lambda: weft.map(weft.remote(type("A", (), {})), [1]), "ActorPool"),
        (lambda: weft.map(weft.remote(num_returns=2)(double), [1]), "one value per call"),
        (lambda: weft.map(lambda x: (yield x), [1]), "it yields"),
    ],
)
def test_a_mistake_is_told_where_it_is_made(call: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        call()


# ---- the end ----


def unfinished() -> int:
    return sum(row["state"] not in ("FINISHED", "FAILED") for row in weft._native.submitted_tasks(1000))


def hold(folder: Path) -> Any:
    def wait(x: int) -> int:
        (folder / f"begun-{x}").touch()
        wait_until((folder / "go").exists) if x else None
        return x

    return wait


@pytest.mark.parametrize("how", ["break", "close", "with", "error"])
def test_leaving_early_ends_what_is_under_way(how: str, tmp_path: Path) -> None:
    results = weft.map(hold(tmp_path), range(100), chunk=1)
    if how == "break":
        for _ in results:
            break
        del results, _
    elif how == "close":
        assert next(results) == 0
        results.close()
        assert list(results) == []
    elif how == "with":
        with results:
            assert next(results) == 0
    else:
        with pytest.raises(RuntimeError, match="mine"):
            _raise_after_one(results)
        del results
    assert comes_true(lambda: not unfinished())


def _raise_after_one(results: Any) -> None:
    for _ in results:
        raise RuntimeError("mine")


def test_an_interrupt_ends_what_is_under_way() -> None:
    code = """
import os, signal, time, weft
weft.init(num_cpus=2)
driver = os.getpid()
def wait(x):
    if x == 1:
        os.kill(driver, signal.SIGINT)
    time.sleep(600) if x else None
    return x
results = weft.map(wait, range(10), chunk=1)
try:
    list(results)
except KeyboardInterrupt:
    print("interrupted")
assert weft.get(weft.remote(abs).remote(-5)) == 5  # there is room for it
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert ran.stdout.split() == ["interrupted"], ran.stderr
    assert ran.returncode == 0


# ---- size and progress ----


def test_chunks_grow_with_quick_items_and_shrink_with_slow_ones() -> None:
    source = mapping.Source((range(10**6),))
    pace = mapping._Pace(source, None, 2)
    assert pace.size() == 1
    chunk = source.take(100)
    assert chunk is not None
    pace.note(chunk, 100e-6)
    assert pace.size() == 100 * mapping.GROWTH
    pace.note(chunk, 100.0)
    assert pace.size() == 1
    source.read = 10**6 - 6
    pace.note(chunk, 100e-6)
    assert pace.size() == 2  # the last items are spread over both CPUs


def test_a_bar_is_drawn_where_somebody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    assert list(weft.map(double, range(10), progress="doubling")) == [*range(0, 20, 2)]
    assert screen.getvalue() == ""
    monkeypatch.setenv("WEFT_PROGRESS", "1")
    assert list(weft.map(double, range(10), progress=False)) == [*range(0, 20, 2)]
    assert screen.getvalue() == ""
    assert list(weft.map(double, range(10), progress="doubling")) == [*range(0, 20, 2)]
    assert screen.getvalue().endswith("\n")
    assert f"doubling: 100%|{'█' * bar.WIDTH}| 10/10 [00:00<00:00" in screen.getvalue()
