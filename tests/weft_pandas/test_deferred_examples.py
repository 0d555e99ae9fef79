"""What weft.pandas shows in its documentation, its example, and its names."""

from __future__ import annotations

import doctest
import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

import weft.pandas as pd
from weft._elsewhere import WRITE_INSTEAD
from weft.pandas.frames import is_deferred

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.usefixtures("weft_session")
def test_the_quickstart_groups_its_trips() -> None:
    by_city = runpy.run_path(str(EXAMPLES / "pandas_quickstart.py"))["main"](6_000)
    assert by_city.index.tolist() == [0, 1, 2, 3, 4]
    assert (by_city["max"] > by_city["mean"]).all()


@pytest.mark.usefixtures("weft_session")
@pytest.mark.parametrize("name", ["weft.pandas", "weft.pandas.exchange"])
def test_what_the_documentation_shows_is_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_name_of_pandas_is_there_and_a_misspelt_one_is_answered() -> None:
    for name in pandas.__all__:
        assert hasattr(pd, name)
        if name not in ("DataFrame", "Series", "merge", "read_csv", "read_parquet"):
            assert getattr(pd, name) is getattr(pandas, name)
    assert set(pandas.__all__) < set(dir(pd))
    assert pd.DataFrame == pandas.DataFrame and pd.__version__ == pandas.__version__
    with pytest.raises(AttributeError, match="read_csv"):
        pd.raed_csv  # noqa: B018
    with pytest.raises(AttributeError, match=r"set_rows\(n\)"):
        pd.set_small_rows  # noqa: B018


def test_what_is_written_instead_is_not_there() -> None:
    assert not [name for name in WRITE_INSTEAD["weft.pandas"] if hasattr(pd, name)]


def test_nothing_is_loaded_before_a_name_is_used() -> None:
    code = "import sys, weft.pandas\nassert 'pandas' not in sys.modules\nassert weft.pandas.NA is not None"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_what_a_frame_is_can_be_asked() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert is_deferred(frame) and "DataFrame in parts, 1 steps waiting" in pd.explain(frame + 1)
    pd.set_rows(10)
    assert pd.explain(pd.Series([1, 2])).startswith("Series of 2 rows, plain, in this process")
    with pytest.raises(TypeError, match="explain takes a frame or series, but got a int"):
        pd.explain(3)
