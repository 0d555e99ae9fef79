"""Frames when workers, nodes and sessions end: results are right, or the error says what happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import modin.config
import numpy as np
import pandas
import pytest
from frames import assert_same, made

import weft
import weft.pandas.modin as pd
from weft.exceptions import WorkerCrashedError
from weft.testing import Cluster

ROWS = 900


@dataclass(frozen=True)
class Once:
    """What happens the first time, in whatever process, and is known by a folder."""

    folder: Path
    driver: int

    def is_now(self) -> bool:
        try:
            (self.folder / "happened").mkdir()
        except FileExistsError:
            return False
        return True

    def has_happened(self) -> bool:
        return (self.folder / "happened").exists()

    def kill_worker(self) -> None:
        """The one that this runs in; not the driver."""
        if os.getpid() != self.driver and self.is_now():
            os.kill(os.getpid(), signal.SIGKILL)

    def interrupt_driver(self) -> None:
        if self.is_now():
            os.kill(self.driver, signal.SIGINT)


@pytest.fixture
def once(tmp_path: Path) -> Once:
    return Once(tmp_path, os.getpid())


class Trap:
    """In the place of a word: kills the worker that reads the block with it, and is a word to the next one."""

    def __init__(self, once: Once) -> None:
        self.once = once

    def __reduce__(self) -> tuple[Any, ...]:
        return _word, (self.once,)


def _word(once: Once) -> str:
    once.kill_worker()
    return "weft"


def rows_with_a_trap(once: Once) -> pandas.DataFrame:
    frame = rows()
    frame.loc[500, "word"] = Trap(once)  # type: ignore[call-overload]
    return frame


def rows() -> pandas.DataFrame:
    frame = made(ROWS)[["key", "word"]].assign(n=np.arange(ROWS), x=np.arange(ROWS) / 7)
    frame.loc[500, "word"] = "weft"
    return frame


# ---- sessions of their own, before the one that the other tests share -------------------------------


def test_a_frame_of_an_earlier_session_says_so() -> None:
    weft.init(num_cpus=1)
    frame = pd.DataFrame(rows())
    weft.shutdown()
    weft.init(num_cpus=1)
    try:
        with pytest.raises(RuntimeError, match=r"a frame of weft.pandas.*earlier weft.init\(\).*before weft.shutdown"):
            frame.x.sum()
        assert pd.DataFrame(rows()).n.sum() == sum(range(ROWS))
    finally:
        weft.shutdown()


def test_blocks_of_a_node_that_died_are_computed_again(tmp_path: Path) -> None:
    theirs = made(40_000)[["key", "price", "word"]]
    theirs.to_csv(tmp_path / "rows.csv", index=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        doomed = cluster.add_node(num_cpus=2)
        cluster.connect()
        names = pandas.DataFrame({"key": range(40), "number": range(40)})
        joined = pd.read_csv(tmp_path / "rows.csv").merge(pd.DataFrame(names), on="key")
        joined._query_compiler.execute()
        cluster.add_node(num_cpus=2)
        cluster.remove_node(doomed, allow_graceful=False)
        assert_same(joined, pandas.read_csv(tmp_path / "rows.csv").merge(names, on="key"))
    finally:
        weft.shutdown()
        cluster.shutdown()


# ---- workers ---------------------------------------------------------------------------------------


def read_csv(once: Once) -> Any:
    def number(text: str) -> int:
        if text == "500":
            once.kill_worker()
        return int(text)

    rows().to_csv(once.folder / "rows.csv", index=False)
    frame = pd.read_csv(once.folder / "rows.csv", converters={"n": number})
    assert frame._query_compiler._modin_frame._partitions.shape[0] == 3
    return frame


def apply_by_row(once: Once) -> Any:
    def twice(row: Any) -> float:
        if row.n == 500:
            once.kill_worker()
        return float(row.x * 2)

    return pd.DataFrame(rows()).apply(twice, axis=1)


def sort_values(once: Once) -> Any:
    def negative(column: Any) -> Any:
        once.kill_worker()
        return -column

    return pd.DataFrame(rows()).sort_values("n", key=negative)


def to_csv(once: Once) -> Any:
    pd.DataFrame(rows_with_a_trap(once)).to_csv(once.folder / "written.csv", index=False)
    return pandas.read_csv(once.folder / "written.csv")


NAMES = pandas.DataFrame({"word": ["warp", "weft"], "number": [1, 2]})
AGGREGATION = {"x": "mean", "n": "sum"}
OPERATIONS: dict[str, tuple[Callable[[Once], Any], Callable[[pandas.DataFrame], Any]]] = {
    "read_csv": (read_csv, lambda theirs: theirs),
    "merge": (
        lambda once: pd.DataFrame(rows_with_a_trap(once)).merge(pd.DataFrame(NAMES), on="word"),
        lambda theirs: theirs.merge(NAMES, on="word"),
    ),
    "groupby.agg": (
        lambda once: pd.DataFrame(rows_with_a_trap(once)).groupby("word").agg(AGGREGATION),
        lambda theirs: theirs.groupby("word").agg(AGGREGATION),
    ),
    "sort_values": (sort_values, lambda theirs: theirs.sort_values("n", ascending=False)),
    "apply by row": (apply_by_row, lambda theirs: (theirs.x * 2).rename(None)),
    "to_csv": (to_csv, lambda theirs: theirs),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("shared_weft_session")
def test_an_operation_whose_worker_is_killed_gives_what_pandas_gives(name: str, once: Once) -> None:
    ours, theirs = OPERATIONS[name]
    assert_same(ours(once), theirs(rows()))
    assert once.has_happened()


@pytest.mark.usefixtures("shared_weft_session")
def test_a_function_that_ends_its_process_is_an_error_and_the_frame_can_be_used() -> None:
    with modin.config.context(NPartitions=1):
        frame = pd.DataFrame(rows())
        with pytest.raises(WorkerCrashedError, match="exited with status 3"):
            frame[["n"]].map(lambda _: os._exit(3)).sum()
    assert frame.n.sum() == sum(range(ROWS))


@pytest.mark.usefixtures("shared_weft_session")
def test_the_traceback_of_a_failed_function_ends_in_it() -> None:
    def no_such_word(row: Any) -> Any:
        return {}[row.word]

    with pytest.raises(KeyError) as raised:
        pd.DataFrame(rows()).apply(no_such_word, axis=1)
    assert "in no_such_word\n" in str(raised.value.__cause__)


@pytest.mark.usefixtures("shared_weft_session")
def test_a_frame_can_be_used_after_an_operation_was_interrupted(once: Once) -> None:
    def interrupt(row: Any) -> float:
        if row.n == 500:
            once.interrupt_driver()
        return float(row.x)

    frame = pd.DataFrame(rows())
    with pytest.raises(KeyboardInterrupt):
        frame.apply(interrupt, axis=1).sum()
    assert_same(frame.apply(interrupt, axis=1), rows().x.rename(None))
