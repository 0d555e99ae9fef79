"""Tasks that wait for tasks, level below level: an answer, or an error that names the chain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from weft.engine.process.session import rpc

LIMIT = 12


@weft.remote
def depth(levels: int) -> int:
    return 0 if levels == 0 else 1 + weft.get(depth.remote(levels - 1))


@weft.remote
def fibonacci(n: int) -> int:
    return n if n < 2 else sum(weft.get([fibonacci.remote(n - 1), fibonacci.remote(n - 2)]))


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WEFT_MAX_BLOCKED_WORKERS", str(LIMIT))
    weft.init(num_cpus=2)
    yield
    weft.shutdown()


def test_a_chain_that_is_too_deep_ends_in_an_error_that_names_it(limited: None) -> None:
    with pytest.raises(weft.exceptions.TaskNestingError, match=r"depth > depth > depth > \.\.\. > depth") as caught:
        weft.get(depth.remote(5_000))
    assert "WEFT_MAX_BLOCKED_WORKERS" in str(caught.value)
    assert rpc.request("statistics")["workers"] < 3 * LIMIT
    assert weft.get(depth.remote(LIMIT // 2)) == LIMIT // 2, "the session works as before"


def test_a_recursion_that_is_wide_and_not_deep_is_answered(limited: None) -> None:
    assert weft.get(fibonacci.remote(5)) == 5


def test_a_limit_that_is_no_number_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_MAX_BLOCKED_WORKERS", "many")
    with pytest.raises(RuntimeError, match="WEFT_MAX_BLOCKED_WORKERS must be a positive number"):
        weft.init(num_cpus=1)
