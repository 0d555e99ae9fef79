"""The examples run and learn what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    "name", ["train_all_reduce.py", "parameter_server.py", "train_parameter_server.py", "train_quickstart.py"]
)
def test_an_example_learns_the_weights(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], check=True, stdout=subprocess.PIPE, text=True, timeout=280
    )
    words = done.stdout.replace("[", " ").replace("]", " ").split()
    assert words[0] == "learned:"
    assert [round(float(word), 1) for word in words[1:]] == [float(i) for i in range(10)]
