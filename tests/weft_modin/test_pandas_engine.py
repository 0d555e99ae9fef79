"""The engine registers itself with Modin, starts when it is needed, and not before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(program: str, **environment: str) -> str:
    """What the program prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("variable", ["MODIN_ENGINE", "MODIN_BACKEND"])
def test_modin_finds_the_engine_that_the_environment_names(variable: str) -> None:
    program = (
        "import modin.pandas as pd\n"
        "frame = pd.DataFrame({'a': [1, 2, 3]}).set_backend('Weft')\n"
        "print(frame.get_backend(), frame.a.sum())"
    )
    assert run(program, **{variable: "weft"}) == "Weft 6"


def test_neither_pandas_nor_modin_is_loaded_before_a_name_is_used() -> None:
    program = (
        "import sys, weft, weft.pandas.modin as pd\n"
        "print('pandas' in sys.modules, 'modin' in sys.modules)\n"
        "pd.DataFrame\n"
        "print('modin' in sys.modules, weft.is_initialized())"
    )
    assert run(program).split() == ["False", "False", "True", "False"]


def test_the_engine_starts_with_the_first_frame_that_needs_it() -> None:
    program = (
        "import weft, weft.pandas.modin as pd\n"
        "frame = pd.DataFrame({'a': range(100)}).set_backend('Weft')\n"
        "print(frame.a.sum(), weft.is_initialized())"
    )
    assert run(program) == "4950 True"


def test_frames_are_cut_for_the_cpus_of_the_cluster() -> None:
    program = (
        "import weft, weft.pandas.modin as pd\n"
        "weft.init(num_cpus=5)\n"
        "frame = pd.DataFrame({'a': range(1000)}).set_backend('Weft')\n"
        "print(frame._query_compiler._modin_frame._partitions.shape)"
    )
    assert run(program) == "(5, 1)"


def test_a_choice_of_the_environment_is_kept() -> None:
    program = "import weft.pandas.modin as pd\nprint(pd.DataFrame({'a': [1]}).get_backend())"
    assert run(program, MODIN_BACKEND="python_test") == "Python_Test"


def test_a_later_choice_of_the_program_is_kept() -> None:
    program = (
        "import weft.pandas.modin as pd, modin.config\n"
        "pd.DataFrame\n"
        "modin.config.Backend.put('Python_Test')\n"
        "print(pd.DataFrame({'a': [1]}).get_backend())"
    )
    assert run(program) == "Python_Test"


def test_set_execution_and_the_backend_name_it() -> None:
    program = (
        "import weft.pandas.modin as pd, modin, modin.config\n"
        "pd.DataFrame\n"
        "modin.set_execution('Python', 'Pandas')\n"
        "print(modin.config.Backend.get())\n"
        "modin.set_execution('weft', 'pandas')\n"
        "print(modin.config.Backend.get(), modin.utils.get_current_execution())"
    )
    assert run(program).split() == ["Python_Test", "Weft", "PandasOnWeft"]


def test_every_public_name_of_pandas_is_there() -> None:
    program = (
        "import pandas, weft.pandas.modin as pd\n"
        "print([name for name in dir(pandas) if name[0] != '_' and not hasattr(pd, name)], pd.offsets.MonthEnd(2))"
    )
    assert run(program) == "['pandas'] <2 * MonthEnds>"
