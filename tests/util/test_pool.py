"""The drop-in for multiprocessing.Pool: what the standard one does, and what it does better."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.util.multiprocessing import Pool, TimeoutError

SESSION = pytest.mark.usefixtures("shared_weft_session")


class Refused(Exception):
    pass


def square(x: int) -> int:
    return x * x


def refuse(x: Any) -> None:
    raise Refused(x)


def refuse_odd(x: int) -> int:
    if x % 2:
        raise Refused(x)
    return x


@weft.remote(num_cpus=0)
class Gate:
    """Opens for all who wait."""

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


@pytest.fixture
def pool(shared_weft_session: Any) -> Iterator[Pool]:
    with Pool(2) as made:
        yield made
    made.join()


# ---- calls -----------------------------------------------------------------------------------------


def test_apply_returns_the_value_and_raises_what_was_raised(pool: Pool) -> None:
    assert pool.apply(pow, (2, 5)) == 32
    assert pool.apply(lambda a, *, b: a + b, (1,), {"b": 2}) == 3
    with pytest.raises(Refused) as caught:
        pool.apply(refuse, (7,))
    assert type(caught.value) is Refused and caught.value.args == (7,)
    assert "in refuse" in str(caught.value.__cause__)


@pytest.mark.parametrize("chunksize", [None, 1, 3, 100])
def test_map_keeps_the_order(pool: Pool, chunksize: int | None) -> None:
    for items in (range(50), list(range(50)), tuple(range(50)), iter(range(50)), dict.fromkeys(range(50))):
        assert pool.map(square, items, chunksize) == [i * i for i in range(50)]
    assert pool.map(square, []) == []


def test_starmap_spreads_the_arguments(pool: Pool) -> None:
    assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
    assert pool.starmap_async(pow, zip([2, 3], [3, 2], strict=True)).get() == [8, 9]


def test_map_raises_the_first_error_after_all_chunks_are_done(pool: Pool) -> None:
    result = pool.map_async(refuse_odd, range(10), chunksize=1)
    with pytest.raises(Refused):
        result.get()
    assert result.ready() and not result.successful()
    assert pool.map(square, [3]) == [9]


def test_what_can_not_be_pickled_fails_the_call_and_not_the_pool(pool: Pool) -> None:
    with pytest.raises(TypeError):
        pool.apply(square, (threading.Lock(),))
    with pytest.raises(TypeError):
        pool.apply(threading.Lock)
    with pytest.raises(TypeError):
        pool.apply(lambda: lock, ()) if (lock := threading.Lock()) else None

    class Stubborn(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("not me")

    def raise_stubborn() -> None:
        raise Stubborn

    with pytest.raises(Exception, match="Stubborn"):
        pool.apply(raise_stubborn)
    assert pool.apply(square, (2,)) == 4


def test_a_closure_is_pickled_at_each_call(pool: Pool) -> None:
    seen = [1]

    def last() -> int:
        return seen[-1]

    assert pool.apply(last) == 1
    seen.append(2)
    assert pool.apply(last) == 2


def test_a_function_with_large_data_travels_once(pool: Pool) -> None:
    data = bytes(1_000_000)
    assert pool.map(lambda i: len(data) + i, range(20), 1) == [1_000_000 + i for i in range(20)]


# ---- results ---------------------------------------------------------------------------------------


def test_a_result_can_be_waited_for_and_asked(pool: Pool) -> None:
    gate = Gate.remote()
    result = pool.apply_async(pass_gate, (gate,))
    result.wait(0.01)
    assert not result.ready()
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    with pytest.raises(TimeoutError):
        result.get(timeout=0.01)
    with pytest.raises(multiprocessing.TimeoutError):
        result.get(timeout=0)
    weft.get(gate.open.remote())
    assert result.get(timeout=60) == "passed"
    assert result.successful()


def test_a_callback_has_run_when_the_result_is_ready(pool: Pool) -> None:
    values: list[Any] = []
    errors: list[BaseException] = []
    pool.map_async(square, range(5), callback=values.extend).wait()
    assert values == [0, 1, 4, 9, 16]
    pool.map_async(refuse_odd, range(5), 1, values.append, errors.append).wait()
    assert len(errors) == 1 and isinstance(errors[0], Refused)
    pool.map_async(square, [], callback=values.append).wait()
    assert values[-1] == []


def test_callbacks_may_use_the_pool_and_what_they_raise_is_printed(pool: Pool, capsys: Any) -> None:
    inner: list[int] = []
    pool.apply_async(square, (3,), callback=lambda value: inner.append(pool.apply(square, (value,)))).wait()
    assert inner == [81]
    pool.apply_async(square, (3,), callback=refuse).wait()
    assert "Refused: 9" in capsys.readouterr().err


# ---- iterators -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("kind", [list, iter])
def test_imap_gives_every_result_and_raises_each_error_in_its_place(pool: Pool, chunksize: int, kind: Any) -> None:
    results = pool.imap(refuse_odd, kind(range(10)), chunksize)
    for i in range(10):
        if i % 2:
            with pytest.raises(Refused):
                next(results)
        else:
            assert results.next() == i
    with pytest.raises(StopIteration):
        results.next()


def test_imap_unordered_does_not_wait_for_a_slow_one(pool: Pool) -> None:
    gate = Gate.remote()

    def run(i: int) -> int:
        if i == 0:
            pass_gate(gate)
        return i

    results = pool.imap_unordered(run, range(200))
    first = [results.next(timeout=60) for _ in range(199)]
    assert sorted(first) == list(range(1, 200))
    with pytest.raises(TimeoutError):
        results.next(timeout=0.01)
    weft.get(gate.open.remote())
    assert results.next(timeout=60) == 0


def test_imap_reads_an_endless_iterator_a_bounded_way_ahead(pool: Pool) -> None:
    taken = itertools.count()
    results = pool.imap(square, taken)
    assert list(itertools.islice(results, 300)) == [i * i for i in range(300)]
    assert next(taken) < 1000


def test_imap_raises_what_the_iterable_raises_in_its_place(pool: Pool) -> None:
    def numbers() -> Iterator[int]:
        yield 2
        raise Refused("no more")

    results = pool.imap(square, numbers())
    assert next(results) == 4
    with pytest.raises(Refused):
        next(results)
    assert list(results) == []
    with pytest.raises(TypeError, match="not iterable"):
        pool.imap(square, 3)  # type: ignore[arg-type]


@SESSION
def test_what_nobody_takes_from_an_imap_is_run_before_join_returns(tmp_path: Path) -> None:
    pool = Pool(2)
    pool.imap_unordered(lambda i: (tmp_path / str(i)).touch(), (i for i in range(300)))
    pool.close()
    pool.join()
    assert len(list(tmp_path.iterdir())) == 300


# ---- balance ---------------------------------------------------------------------------------------


def test_short_calls_do_not_stay_behind_a_long_one(pool: Pool) -> None:
    """The pool has learnt that the function is quick when, of two calls that need each other, the first comes."""
    gate = Gate.remote()

    def run(i: int) -> int:
        if i == 1_000:
            pass_gate(gate)
        elif i == 1_001:
            weft.get(gate.open.remote())
        return i

    assert pool.map(run, range(1_200), chunksize=1) == list(range(1_200))


def test_many_threads_may_share_a_pool(pool: Pool) -> None:
    wrong: list[Any] = []

    def use(start: int) -> None:
        for _ in range(20):
            if pool.map(square, range(start, start + 20), 2) != [i * i for i in range(start, start + 20)]:
                wrong.append(start)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- workers ---------------------------------------------------------------------------------------


@SESSION
def test_the_initializer_runs_in_each_worker_before_the_pool_is_there(tmp_path: Path) -> None:
    def prepare(where: Path) -> None:
        (where / str(os.getpid())).touch()
        os.environ["PREPARED"] = "yes"

    with Pool(2, initializer=prepare, initargs=(tmp_path,)) as pool:
        assert len(list(tmp_path.iterdir())) == 2
        assert pool.apply(os.getenv, ("PREPARED",)) == "yes"
    pool.join()


@SESSION
def test_an_initializer_that_raises_is_reported_at_once() -> None:
    with pytest.raises(weft.exceptions.WeftError, match="Refused"):
        Pool(1, initializer=refuse, initargs=(1,))


@SESSION
def test_a_worker_is_replaced_after_its_share_of_chunks() -> None:
    with Pool(2, maxtasksperchild=1) as pool:
        assert len(set(pool.map(lambda _: os.getpid(), range(6), chunksize=1))) == 6
    pool.join()


def test_a_worker_that_dies_fails_its_call_alone_and_is_replaced(pool: Pool) -> None:
    def run(i: int) -> int:
        if i == 500:
            os._exit(1)
        return i

    result = pool.map_async(run, range(1_000), chunksize=1)
    with pytest.raises(weft.exceptions.ActorDiedError):
        result.get()
    assert pool.map(square, range(10)) == [i * i for i in range(10)]
    each = pool.imap(run, range(490, 510))
    outcomes: list[Any] = []
    for _ in range(20):
        try:
            outcomes.append(next(each))
        except weft.exceptions.ActorDiedError:
            outcomes.append("died")
    assert outcomes == [*range(490, 500), "died", *range(501, 510)]


def test_pools_nest_and_their_calls_may_use_tasks(pool: Pool) -> None:
    @weft.remote
    def root(x: float) -> float:
        return math.sqrt(x)

    def inner(n: int) -> list[float]:
        with Pool(1) as nested:
            return nested.map(lambda x: weft.get(root.remote(x)), [n * n])

    assert pool.map(inner, range(3)) == [[0.0], [1.0], [2.0]]

    @weft.remote
    def in_a_task() -> list[list[float]]:
        with Pool(2) as nested:
            return nested.map(inner, range(2))

    assert weft.get([in_a_task.remote() for _ in range(2)], timeout=60) == [[[0.0], [1.0]]] * 2


# ---- the end ---------------------------------------------------------------------------------------


@SESSION
def test_close_finishes_what_was_given() -> None:
    pool = Pool(2)
    values: list[int] = []
    for i in range(20):
        pool.apply_async(square, (i,), callback=values.append)
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pool.close()
    with pytest.raises(ValueError, match="not running"):
        pool.map(square, [1])
    pool.join()
    assert sorted(values) == [i * i for i in range(20)]
    pool.join()


@SESSION
def test_terminate_fails_what_is_not_done() -> None:
    pool = Pool(2)
    gate = Gate.remote()
    result = pool.map_async(pass_gate, [gate] * 10)
    pool.terminate()
    pool.join()
    assert result.ready() and not result.successful()
    with pytest.raises(weft.exceptions.ActorDiedError):
        result.get()


@SESSION
def test_a_pool_that_is_dropped_leaves_no_worker() -> None:
    pool = Pool(2)
    pids = set(pool.map(lambda _: os.getpid(), range(10), 1))
    pool.apply_async(square, (1,), callback=square).wait()
    del pool
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@SESSION
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"processes": 0}, ValueError),
        ({"processes": "2"}, TypeError),
        ({"processes": 3}, ValueError),
        ({"maxtasksperchild": 0}, ValueError),
        ({"initializer": 3}, TypeError),
    ],
)
def test_bad_arguments_are_refused_at_once(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(given))):
        Pool(**given)


def test_bad_calls_are_refused_at_once(pool: Pool) -> None:
    with pytest.raises(ValueError, match="Chunksize"):
        pool.map(square, [1], 0)
    with pytest.raises(ValueError, match="Chunksize"):
        pool.imap(square, [1], -1)
    with pytest.raises(TypeError, match="expected a function"):
        pool.map(3, [1])  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        pickle.dumps(pool)
