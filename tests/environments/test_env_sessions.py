"""Runtime environments of jobs, tasks and actors in real sessions."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.exceptions import ActorDiedError, RuntimeEnvSetupError


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """weft.init with two CPUs, undone after the test."""
    yield lambda env=None: weft.init(num_cpus=2, runtime_env=env)
    weft.shutdown()


@weft.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@weft.remote
def nested_variable(name: str) -> str | None:
    return weft.get(variable.remote(name))


@weft.remote
def process_id() -> int:
    return os.getpid()


@weft.remote
class Reader:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def folder(self) -> str:
        return os.getcwd()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "data.txt").write_text("first")
    (folder / "weft_test_module.py").write_text("value = 1\n")
    (folder / "weft_test_package").mkdir()
    (folder / "weft_test_package" / "__init__.py").write_text("value = 2\n")
    return folder


# ---- variables -------------------------------------------------------------------------------------


def test_variables_are_inherited_and_joined(start: Callable[..., Any]) -> None:
    start({"env_vars": {"WT_A": "job", "WT_B": "job"}})
    own = {"env_vars": {"WT_A": "task"}}
    assert weft.get(variable.remote("WT_A")) == "job"
    assert weft.get(variable.options(runtime_env=own).remote("WT_A")) == "task"
    assert weft.get(variable.options(runtime_env=own).remote("WT_B")) == "job"
    assert weft.get(nested_variable.options(runtime_env=own).remote("WT_A")) == "task"
    actor = Reader.options(runtime_env=own).remote()
    assert weft.get([actor.variable.remote("WT_A"), actor.variable.remote("WT_B")]) == ["task", "job"]


def test_a_variable_can_be_built_on_the_one_before(start: Callable[..., Any]) -> None:
    start({"env_vars": {"PATH": "${PATH}:/weft/test"}})
    assert weft.get(variable.remote("PATH")) == os.environ["PATH"] + ":/weft/test"


def test_a_worker_serves_one_environment(start: Callable[..., Any]) -> None:
    start()
    one = process_id.options(runtime_env={"env_vars": {"WT_A": "1"}})
    other = process_id.options(runtime_env={"env_vars": {"WT_A": "2"}})
    pids = weft.get([process_id.remote()]) + weft.get([one.remote()]) + weft.get([other.remote()])
    assert len(set(pids)) == 3
    assert weft.get(one.remote()) == pids[1]


def test_variables_that_act_at_a_start_get_an_interpreter_of_their_own(start: Callable[..., Any]) -> None:
    start({"env_vars": {"PYTHONHASHSEED": "0"}})

    @weft.remote
    def flag() -> int:
        return sys.flags.hash_randomization

    assert sys.flags.hash_randomization == 1
    assert weft.get(flag.remote()) == 0


def test_the_context_tells_the_environment(start: Callable[..., Any]) -> None:
    start({"env_vars": {"WT_A": "1"}})

    @weft.remote
    def environment() -> Any:
        return weft.get_runtime_context().runtime_env.to_dict()

    own = {"env_vars": {"WT_B": "2"}}
    assert weft.get(environment.options(runtime_env=own).remote()) == {"env_vars": {"WT_A": "1", "WT_B": "2"}}


# ---- code ------------------------------------------------------------------------------------------


@weft.remote
def read_code() -> tuple[str, int]:
    import weft_test_module

    return Path("data.txt").read_text(), weft_test_module.value


def test_a_working_dir_is_a_copy_that_later_edits_do_not_change(
    start: Callable[..., Any], code: Path, cache: Path
) -> None:
    start({"working_dir": str(code)})
    assert weft.get(read_code.remote()) == ("first", 1)
    (code / "data.txt").write_text("second")
    assert weft.get(read_code.options(num_cpus=2).remote()) == ("first", 1)
    assert weft.get(Reader.remote().folder.remote()).startswith(str(cache / "jobs"))
    weft.shutdown()
    assert os.listdir(cache / "jobs") == []


def test_a_task_can_have_a_working_dir_of_its_own(start: Callable[..., Any], code: Path, cache: Path) -> None:
    start()
    assert weft.get(read_code.options(runtime_env={"working_dir": str(code)}).remote()) == ("first", 1)

    @weft.remote
    def inner() -> Any:
        return weft.get(read_code.options(runtime_env={"working_dir": str(code)}).remote())

    assert weft.get(inner.remote()) == ("first", 1)
    weft.shutdown()
    assert os.listdir(cache / "jobs") == []


def test_excluded_files_are_not_copied(start: Callable[..., Any], code: Path) -> None:
    (code / ".gitignore").write_text("*.log\n")
    for name in ("a.log", "b.bin", "c.txt"):
        (code / name).write_text("")
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "x.pyc").write_text("")
    start({"working_dir": str(code), "excludes": ["*.bin", "weft_test_package"]})

    @weft.remote
    def names() -> list[str]:
        return sorted(os.listdir())

    assert weft.get(names.remote()) == [".gitignore", "c.txt", "data.txt", "weft_test_module.py"]


def test_a_zip_file_is_unpacked(start: Callable[..., Any], code: Path, tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("data.txt", "weft_test_module.py"):
            file.write(code / name, name)
    start({"working_dir": str(archive)})
    assert weft.get(read_code.remote()) == ("first", 1)


def test_py_modules_can_be_imported(
    start: Callable[..., Any], code: Path, make_wheel: Callable[..., str], cache: Path
) -> None:
    modules = [str(code / "weft_test_package"), str(code / "weft_test_module.py"), make_wheel("weft_test_wheel")]
    start({"py_modules": modules})

    @weft.remote
    def values() -> Any:
        import weft_test_module
        import weft_test_package
        import weft_test_wheel  # type: ignore[import-not-found]

        return weft_test_package.value, weft_test_module.value, weft_test_wheel.version

    assert weft.get(values.remote()) == (2, 1, "1.0")
    weft.shutdown()
    assert os.listdir(cache / "jobs") == []


def test_a_folder_that_is_too_large_is_refused(
    start: Callable[..., Any], code: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_RUNTIME_ENV_MOST_BYTES", "3")
    with pytest.raises(ValueError, match="excludes"):
        start({"working_dir": str(code)})
    assert not weft.is_initialized()
    assert os.listdir(cache / "jobs") == []


# ---- packages --------------------------------------------------------------------------------------


def packages(*names: str) -> dict[str, Any]:
    return {"pip": {"packages": list(names), "pip_install_options": ["--no-index"]}}


@weft.remote
def installed_version() -> tuple[str, int]:
    import weft_test_wheel  # type: ignore[import-not-found]

    return weft_test_wheel.version, os.getpid()


def test_packages_are_installed_once_and_each_environment_sees_its_own(
    start: Callable[..., Any], make_wheel: Callable[..., str], cache: Path
) -> None:
    start()
    old = packages(make_wheel("weft_test_wheel", "1.0"))
    new = packages(make_wheel("weft_test_wheel", "2.0"))
    at_once = weft.get([installed_version.options(runtime_env=old).remote() for _ in range(4)])
    assert {version for version, _ in at_once} == {"1.0"}
    assert weft.get(installed_version.options(runtime_env=new).remote())[0] == "2.0"
    with pytest.raises(ModuleNotFoundError):
        weft.get(installed_version.remote())
    assert len(list((cache / "installed").glob("*.json"))) == 2


def test_another_version_of_a_loaded_package_gets_an_interpreter_of_its_own(
    start: Callable[..., Any], make_wheel: Callable[..., str]
) -> None:
    start(packages(make_wheel("cloudpickle", "99.0", _LIKE_CLOUDPICKLE)))

    @weft.remote
    def version() -> str:
        import cloudpickle  # type: ignore[import-untyped]

        return str(cloudpickle.version)

    assert weft.get(version.remote()) == "99.0"


_LIKE_CLOUDPICKLE = """
import importlib.util, os, sys
paths = [p + "/cloudpickle/__init__.py" for p in sys.path if p.endswith("site-packages") and "installed" not in p]
path = next(filter(os.path.exists, paths))
spec = importlib.util.spec_from_file_location("cloudpickle", path, submodule_search_locations=[path[:-12]])
module = importlib.util.module_from_spec(spec)
sys.modules["cloudpickle"] = module
spec.loader.exec_module(module)
module.version = "99.0"
"""


def test_a_failed_installation_is_raised_at_get_with_its_output(start: Callable[..., Any]) -> None:
    start()
    bad = packages("weft-test-no-such-package==1.0")
    refs = [process_id.options(runtime_env=bad, max_retries=-1, retry_exceptions=True).remote() for _ in range(3)]
    for ref in refs:
        with pytest.raises(RuntimeEnvSetupError, match="No matching distribution found"):
            weft.get(ref)
    actor = Reader.options(runtime_env=bad, max_restarts=-1).remote()
    with pytest.raises(RuntimeEnvSetupError, match="No matching distribution found"):
        weft.get(actor.folder.remote())
    with pytest.raises(ActorDiedError):
        weft.get(actor.folder.remote())
    assert weft.get(variable.remote("WT_NONE")) is None


def test_a_session_that_ends_during_an_installation_leaves_nothing(
    start: Callable[..., Any], tmp_path: Path, cache: Path
) -> None:
    fifo = tmp_path / "requirements.txt"
    os.mkfifo(fifo)  # pip waits for its content
    start()
    ref = process_id.options(runtime_env=packages("-r", str(fifo))).remote()
    writer = os.open(fifo, os.O_WRONLY)  # returns when pip has opened it
    weft.shutdown()
    os.close(writer)
    del ref
    assert not list((cache / "installed").glob("*.json"))


# ---- interpreters and hooks ------------------------------------------------------------------------


def test_a_worker_can_be_another_command(start: Callable[..., Any], code: Path) -> None:
    (code / "start.sh").write_text(f"export WT_FROM=script\n{sys.executable} $@\n")
    start({"working_dir": str(code), "py_executable": "bash start.sh"})
    assert weft.get(variable.remote("WT_FROM")) == "script"
    assert weft.get(read_code.remote()) == ("first", 1)
    actor = Reader.remote()
    assert weft.get(actor.variable.remote("WT_FROM")) == "script"
    weft.kill(actor)


@pytest.mark.parametrize("command", ["/no/such/python", "false", "bash -c 'echo broken; exit 3'"])
def test_a_command_that_is_no_worker_fails_what_needs_it(start: Callable[..., Any], command: str) -> None:
    start()
    with pytest.raises(RuntimeEnvSetupError, match="py_executable"):
        weft.get(process_id.options(runtime_env={"py_executable": command}).remote())
    actor = Reader.options(runtime_env={"py_executable": command}).remote()
    with pytest.raises(ActorDiedError, match="py_executable"):
        weft.get(actor.folder.remote())


def test_a_hook_runs_before_the_first_task(start: Callable[..., Any]) -> None:
    def prepare() -> None:
        os.environ["WT_HOOK"] = "ran"

    start({"worker_process_setup_hook": prepare, "env_vars": {"WT_A": "1"}})
    assert weft.get([variable.remote("WT_HOOK"), variable.remote("WT_A")]) == ["ran", "1"]
    assert weft.get(Reader.remote().variable.remote("WT_HOOK")) == "ran"


def test_a_hook_that_fails_fails_everything_there(start: Callable[..., Any]) -> None:
    def prepare() -> None:
        raise ValueError("not today")

    start({"worker_process_setup_hook": prepare})
    for _ in range(2):
        with pytest.raises(RuntimeEnvSetupError, match="not today"):
            weft.get(variable.remote("PATH"))
    with pytest.raises(ActorDiedError, match="Failed to execute the setup hook method"):
        weft.get(Reader.remote().folder.remote())
