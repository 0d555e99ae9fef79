"""Tools that start a session when there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from weft.util import Executor
from weft.util.multiprocessing import Pool


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    weft.shutdown()


def test_a_pool_starts_a_session_of_its_size_and_leaves_it() -> None:
    with Pool(3) as pool:
        assert weft.cluster_resources()["CPU"] == 3
        assert pool.apply(abs, (-3,)) == 3
    pool.join()
    assert weft.is_initialized()


def test_an_executor_starts_a_session_and_leaves_it() -> None:
    with Executor() as executor:
        assert executor.submit(abs, -3).result() == 3
    assert weft.is_initialized()


def test_pools_inside_pools_do_not_starve_on_one_cpu() -> None:
    weft.init(num_cpus=1)

    def inner(n: int) -> list[int]:
        with Pool() as pool:
            return pool.map(abs, range(-n, 0))

    with Pool() as pool:
        assert pool.map(inner, [1, 2]) == [[1], [2, 1]]
    pool.join()


def test_an_executor_inside_a_task_does_not_starve_on_one_cpu() -> None:
    weft.init(num_cpus=1)

    @weft.remote
    def outer() -> list[int]:
        with Executor() as executor:
            futures = [executor.submit(abs, -i) for i in range(50)]
            return [future.result() for future in futures]

    assert weft.get(outer.remote(), timeout=60) == list(range(50))
