"""What may be written in a runtime environment, its normal form, and how two are joined."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from weft.environments import ignore
from weft.environments.merge import canonical, merge
from weft.environments.validation import normalise
from weft.exceptions import RuntimeEnvSetupError
from weft.runtime_env import RuntimeEnv, RuntimeEnvConfig


@pytest.mark.parametrize(
    ("env", "error", "text"),
    [
        ({"env_varz": {}}, ValueError, "no field 'env_varz'"),
        ({"conda": "base"}, ValueError, "not supported"),
        ({"env_vars": {"A": 1}}, TypeError, "strings to strings"),
        ({"env_vars": ["A"]}, TypeError, "dict of strings"),
        ({"env_vars": {"A=B": "1"}}, ValueError, "cannot name a variable"),
        ({"working_dir": 10}, TypeError, "must be a path"),
        ({"working_dir": "/does/not/exist"}, ValueError, "does not exist"),
        ({"working_dir": "."}, ValueError, "absolute"),
        ({"working_dir": "s3://bucket/code.zip"}, ValueError, "only paths of this machine"),
        ({"py_modules": "."}, TypeError, "list"),
        ({"py_modules": [10]}, TypeError, "paths or modules"),
        ({"pip": {"pip_check": True}}, ValueError, "packages"),
        ({"pip": {"packages": ["six"], "speed": 1}}, ValueError, "can only have"),
        ({"pip": [1]}, TypeError, "list of requirements"),
        ({"pip": "/no/such/requirements.txt"}, ValueError, "no such requirements file"),
        ({"pip": ["six"], "uv": ["six"]}, ValueError, "not both"),
        ({"py_executable": 3}, TypeError, "command"),
        ({"worker_process_setup_hook": 3}, TypeError, "function"),
        ({"excludes": "x"}, TypeError, "list of patterns"),
        ({"config": {"setup_timeout_seconds": 0}}, ValueError, "greater than zero"),
        ({"config": {"timeout": 1}}, ValueError, "no field 'timeout'"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_written(env: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        normalise(env)


def test_a_requirements_file_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# tools\nsix==1.0  # old\n\nattrs\n--no-deps\nsix==1.0\n")
    assert normalise({"pip": str(path)})["pip"]["packages"] == ["six==1.0", "attrs", "--no-deps"]


def test_empty_fields_are_left_out() -> None:
    assert normalise({"env_vars": {}, "pip": [], "excludes": [], "working_dir": None}) == {}


def test_a_hook_that_can_not_be_pickled_is_refused_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(RuntimeEnvSetupError, match="Failed to export the setup function"):
        normalise({"worker_process_setup_hook": lambda: print(lock)})


def test_the_childs_fields_win_and_variables_are_joined() -> None:
    parent = {"env_vars": {"A": "1", "B": "1"}, "working_dir": "/a", "pip": {"packages": ["six"]}}
    child = {"env_vars": {"B": "2"}, "uv": {"packages": ["attrs"]}}
    merged = {"env_vars": {"A": "1", "B": "2"}, "working_dir": "/a", "uv": {"packages": ["attrs"]}}
    assert merge(parent, child) == merged


def test_equal_environments_have_equal_text() -> None:
    one = {"env_vars": {"A": "1", "B": "2"}, "py_executable": "python"}
    other = {"py_executable": "python", "env_vars": {"B": "2", "A": "1"}}
    assert canonical(one) == canonical(other)
    assert canonical({}) == ""


def test_runtime_env_is_a_dictionary_that_checks() -> None:
    env = RuntimeEnv(env_vars={"A": "1"}, config={"setup_timeout_seconds": 5})
    assert isinstance(env["config"], RuntimeEnvConfig)
    assert type(env.to_dict()["config"]) is dict
    with pytest.raises(TypeError):
        env["env_vars"] = 3
    with pytest.raises(ValueError, match="no field"):
        RuntimeEnv(unknown=1)
    assert RuntimeEnv.deserialize(env.serialize()).env_vars() == {"A": "1"}
    assert pickle.loads(pickle.dumps(env)) == env


@pytest.mark.parametrize(
    ("patterns", "path", "is_folder", "left_out"),
    [
        (["test2"], "test2", False, True),
        (["test2"], "a/test2", False, True),
        (["/test2"], "a/test2", False, False),
        (["a/b"], "a/b", True, True),
        (["a/b"], "x/a/b", True, False),
        (["cache/"], "x/cache", True, True),
        (["cache/"], "x/cache", False, False),
        (["*.py[co]", "!keep.pyc"], "keep.pyc", False, False),
        (["a/**/z"], "a/b/c/z", False, True),
        (["**/z"], "a/z", False, True),
        (["a/**"], "a", True, False),
        (["a/**"], "a/b", False, True),
        (["[!a]b"], "cb", False, True),
        (["[!a]b"], "ab", False, False),
        (["\\#x"], "#x", False, True),
        (["# note", ""], "# note", False, False),
        (["*"], "anything", False, True),
        (["a*b"], "a/b", False, False),
    ],
)
def test_patterns_mean_what_they_mean_in_gitignore(
    patterns: list[str], path: str, is_folder: bool, left_out: bool
) -> None:
    assert ignore.decide([("", ignore.parse(patterns))], path, is_folder) is left_out
