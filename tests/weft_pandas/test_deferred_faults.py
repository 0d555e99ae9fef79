"""Deferred frames when workers, nodes and sessions end: results are right, or the error says what happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas
import pytest

import weft
import weft.pandas as pd
from weft.pandas import parts
from weft.pandas.frames import is_deferred
from weft.testing import Cluster

ROWS = 900


@pytest.fixture(autouse=True)
def _on_weft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are in object memory here, as for programs."""
    monkeypatch.setattr(parts, "_chosen", None)


def rows() -> dict[str, list[float]]:
    return {"n": list(range(ROWS)), "x": [row / 7 for row in range(ROWS)]}


def test_a_frame_of_an_earlier_session_says_so() -> None:
    weft.init(num_cpus=1)
    frame = pd.DataFrame(rows())
    assert is_deferred(frame)
    weft.shutdown()
    weft.init(num_cpus=1)
    try:
        with pytest.raises(RuntimeError, match=r"a frame of weft.pandas.*earlier weft.init\(\).*before weft.shutdown"):
            frame.x.sum()
        assert pd.DataFrame(rows()).n.sum() == sum(range(ROWS))
    finally:
        weft.shutdown()


def test_parts_of_a_node_that_died_are_computed_again(tmp_path: Path) -> None:
    pandas.DataFrame(rows()).to_csv(tmp_path / "rows.csv", index=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        doomed = cluster.add_node(num_cpus=2)
        cluster.connect()
        frame = pd.read_csv(tmp_path / "rows.csv")
        assert is_deferred(frame)
        total = frame.x.sum()
        cluster.add_node(num_cpus=2)
        cluster.remove_node(doomed, allow_graceful=False)
        assert frame.x.sum() == total
        pandas.testing.assert_frame_equal(frame * 2, pandas.read_csv(tmp_path / "rows.csv") * 2)
    finally:
        weft.shutdown()
        cluster.shutdown()


@pytest.mark.usefixtures("weft_session")
def test_a_worker_that_dies_in_a_function_of_the_users_costs_time_alone(tmp_path: Path) -> None:
    happened, driver = tmp_path / "happened", os.getpid()

    def doubled(number: int) -> int:
        if number == 500 and os.getpid() != driver and not happened.exists():
            happened.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * 2

    frame = pd.DataFrame(rows())
    assert frame.n.map(doubled).sum() == 2 * sum(range(ROWS))
    assert happened.exists()
