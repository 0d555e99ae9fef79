"""Random plans give what Polars gives. A longer run: `make plans`."""

from __future__ import annotations

import contextlib

import pytest
import random_plans

from weft.data import projecting
from weft.data.reach import Reach

SEEDS = 60
AT_ONCE = 20

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_a_random_plan_gives_what_polars_gives(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        random_plans.check(seed)


def test_a_fault_that_is_planted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projecting, "reach", lambda expression: Reach.ROW)  # everything runs block by block
    held = 0
    with contextlib.suppress(AssertionError):
        for seed in range(SEEDS):
            random_plans.check(seed)
            held += 1
    assert held < SEEDS
