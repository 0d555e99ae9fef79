"""Ray's words work under the alias. They change classes of Weft's, so they are tried in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("suite", ["under_the_alias.py", "libraries_under_the_alias.py", "rllib_under_the_alias.py"])
def test_the_words_of_ray_work_under_the_alias(suite: str) -> None:
    tests = Path(__file__).with_name(suite)
    command = [sys.executable, "-m", "weft.compat", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


def test_the_names_that_the_page_says_are_there_are() -> None:
    command = [sys.executable, "-m", "weft.compat", str(Path(__file__).with_name("ray_names.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def test_weft_without_the_alias_has_none_of_them() -> None:
    code = """
import weft, weft.exceptions
assert not hasattr(weft.remote_function.RemoteFunction, "_remote")
assert not issubclass(weft.exceptions.TaskCancelledError, weft.exceptions.TaskError)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
