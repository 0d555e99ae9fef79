"""`map_batches(checkpoint=)`: who begins again gets what has been made, and makes the rest once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from weft import data
from weft.data.resuming import Checkpoint, checkpoint_of

ROWS, BATCH = 40, 5


def guessing(log: Path, until: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that notes its batches, and stops at one."""

    def guess(batch: dict[str, Any]) -> dict[str, Any]:
        first = int(batch["x"][0])
        with log.open("a") as file:
            file.write(f"{first}\n")
        if first >= (int(stop.read_text()) if (stop := log.with_suffix(".until")).exists() else until):
            raise RuntimeError("the machine is wanted back")
        return {"x": batch["x"], "guess": batch["x"] * 2}

    return guess


def guesses(folder: Path, function: Any, **options: Any) -> data.Dataset:
    blocks = [pa.table({"x": np.arange(at, at + 10)}) for at in range(0, ROWS, 10)]
    return data.from_arrow(blocks).map_batches(function, batch_size=BATCH, checkpoint=folder, **options)


@pytest.mark.usefixtures("shared_weft_session")
def test_who_begins_again_makes_no_batch_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(data.RowError, match="wanted back"):
        guesses(tmp_path / "kept", guessing(log, until=25)).take_all()
    log.with_suffix(".until").write_text(str(ROWS))
    expected = [{"x": x, "guess": 2 * x} for x in range(ROWS)]
    assert guesses(tmp_path / "kept", guessing(log, until=25)).take_all() == expected
    done = Counter(map(int, log.read_text().split()))
    assert all(done[first] == 1 for first in range(0, 25, BATCH))
    before = log.read_text()
    assert guesses(tmp_path / "kept", guessing(log, until=25)).take_all() == expected
    assert log.read_text() == before


class Scaled:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, batch: dict[str, Any]) -> Any:
        for part in np.array_split(batch["x"], 2):
            yield {"y": part * self.factor}


@pytest.mark.usefixtures("shared_weft_session")
def test_another_argument_is_another_result_and_a_torn_file_is_made_again(tmp_path: Path) -> None:
    def asked(factor: int) -> list[int]:
        made = guesses(tmp_path, Scaled, fn_constructor_args=(factor,), concurrency=1)
        return [row["y"] for row in made.take_all()]

    assert asked(2) == [2 * x for x in range(ROWS)]
    assert asked(3) == [3 * x for x in range(ROWS)]
    for kept in tmp_path.glob("*/*.arrow"):
        kept.write_bytes(kept.read_bytes()[:100])
    assert asked(3) == [3 * x for x in range(ROWS)]


FACTOR = 2


def made_by(callee: Any, given: Any = None) -> str:
    return checkpoint_of("/kept", callee, given).made_by


def test_a_function_is_known_by_its_code_and_by_the_plain_values_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    def closing(over: Any) -> Any:
        return lambda batch, more=1: batch if batch in {"a", "b"} else over * FACTOR + more

    same = made_by(closing(3))
    assert made_by(closing(3)) == same
    assert made_by(partial(closing(3))) != same
    assert len({same, made_by(closing(4)), made_by(lambda batch: 1), made_by(lambda batch: 2), made_by(Scaled)}) == 5
    assert made_by(Scaled(2)) != made_by(Scaled(3))
    assert made_by(np.sqrt, {"fn_args": (object(),)}) == made_by(np.sqrt, {"fn_args": (object(),)})
    monkeypatch.setitem(globals(), "FACTOR", 5)
    assert made_by(closing(3)) != same


def test_a_result_is_found_by_its_rows_and_not_by_how_they_lie(tmp_path: Path) -> None:
    made: list[int] = []

    def asked(rows: pa.Table) -> pa.Table:
        return Checkpoint(str(tmp_path), "f").results(
            rows, lambda: iter([made.append(1) or pa.table({"n": [len(made)]})])
        )

    whole = pa.table({"x": [1, 2, 3, 4], "s": ["a", None, "b", ""]})
    assert asked(whole.slice(1, 2)).to_pylist() == [{"n": 1}]
    assert asked(pa.concat_tables([whole.slice(1, 1), whole.slice(2, 1)])).to_pylist() == [{"n": 1}]
    assert asked(whole.slice(2, 2)).to_pylist() == [{"n": 2}]
    assert asked(whole.slice(1, 2).rename_columns(["x", "t"])).to_pylist() == [{"n": 3}]
