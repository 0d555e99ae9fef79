"""`import ray` finds Weft where it was asked to: in the driver, in workers, and in every process that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from weft.compat import API_LEVEL, alias
from weft.compat.addresses import cluster_address

SCRIPT = """
import sys
import ray
from ray.util import ActorPool
import ray.exceptions
import beside

@ray.remote
def where():
    import ray
    import ray.util.queue
    return ray.__version__, ray.is_initialized()

ray.init(num_cpus=1)
print(ray.__version__, ActorPool.__module__, ray.get(where.remote()), sys.argv[1:], beside.HERE)
try:
    import ray.no_such_module
except ModuleNotFoundError as error:
    print("missing:", error.name)
"""

CHILDREN = """
import importlib.metadata, multiprocessing, subprocess, sys
import ray

CODE = "import importlib.metadata as m; print(m.version('ray')); import ray.util.queue; print(ray.__version__)"

def versions():
    import ray
    return [ray.__version__, importlib.metadata.version("ray")]

@ray.remote
def in_a_worker():
    return versions() + subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True).stdout.split()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(versions))
    print(subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True).stdout.split())
    ray.init(num_cpus=1)
    print(ray.get(in_a_worker.remote()))
"""


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, **options)  # type: ignore[call-overload, no-any-return]


def real_ray(folder: Path) -> dict[str, str]:
    """The environment of a Python that has the real Ray installed."""
    package = folder / "ray" / "scripts"
    package.mkdir(parents=True)
    (folder / "ray" / "__init__.py").write_text("__version__ = '2.9.3'")
    (package / "__init__.py").write_text("")
    (package / "scripts.py").write_text("def main():\n    print('the real one')")
    (folder / "ray-2.9.3.dist-info").mkdir()
    (folder / "ray-2.9.3.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.9.3\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_script_for_ray_runs_with_the_alias(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("HERE = 'beside'")
    done = run("-m", "weft.compat", str(script), "--flag")
    assert done.returncode == 0, done.stderr
    assert f"{API_LEVEL} weft.util.actor_pool ('{API_LEVEL}', True) ['--flag'] beside" in done.stdout
    assert "missing: ray.no_such_module" in done.stdout


def test_every_child_of_a_program_finds_ray_and_its_metadata(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILDREN)
    done = run("-m", "weft.compat", str(script))
    assert done.stdout.splitlines() == [
        str([API_LEVEL] * 2),
        str([API_LEVEL] * 2),
        str([API_LEVEL] * 4),
    ], done.stderr


def test_a_module_and_code_run_with_the_alias_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import ray, sys; print(ray.__version__, sys.argv[1:], __name__)")
    done = run("-m", "weft.compat", "-m", "program", "--flag", cwd=tmp_path)
    assert done.stdout == f"{API_LEVEL} ['--flag'] __main__\n", done.stderr
    done = run("-m", "weft.compat", "-c", "import ray, sys; print(ray.__version__, sys.argv, __name__)", "word")
    assert done.stdout == f"{API_LEVEL} ['-c', 'word'] __main__\n", done.stderr


def test_the_alias_leaves_weft_as_it_is() -> None:
    code = """
import weft, weft.compat
before = weft.__spec__, weft.util.__spec__
weft.compat.install_as_ray()
import ray, ray.util.queue, ray.exceptions, weft.util.queue
assert ray.get is weft.get and ray.util.queue is weft.util.queue and ray.exceptions is weft.exceptions
assert (weft.__spec__, weft.util.__spec__) == before and weft.util.__name__ == "weft.util"
assert ray.__version__ != weft.__version__ and ray.__version__ == weft.compat.API_LEVEL
"""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


def test_the_metadata_says_the_level_of_the_api() -> None:
    (file,) = Path(alias.ON_PATH).glob("ray-*")
    assert file.name == f"ray-{API_LEVEL}.egg-info"  # one file: a build leaves folders of metadata out of its wheels
    assert f"Version: {API_LEVEL}\n" in file.read_text()


def test_a_name_that_is_missing_is_told_in_the_words_of_the_program() -> None:
    done = run("-m", "weft.compat", "-c", "import ray; ray.no_such_name")
    assert "AttributeError: module 'ray' has no attribute 'no_such_name'" in done.stderr


def test_a_submodule_is_not_hidden_by_a_future_statement() -> None:
    done = run("-c", "import weft.util; print(weft.util.annotations.__name__)")
    assert done.stdout == "weft.util.annotations\n"


def test_a_real_ray_that_was_imported_before_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("")
    done = run("-c", "import ray, weft.compat; weft.compat.install_as_ray()", cwd=tmp_path)
    assert "ray is imported already" in done.stderr


def test_a_real_ray_that_is_installed_is_named_once_and_not_found(tmp_path: Path) -> None:
    code = """
import ray, subprocess, sys
subprocess.run([sys.executable, "-c", "import ray, weft.compat; weft.compat.install_as_ray(); print(ray.__version__)"])
"""
    done = run("-m", "weft.compat", "-c", code, env=real_ray(tmp_path))
    assert done.stdout == f"{API_LEVEL}\n", done.stderr
    assert done.stderr.count("Ray 2.9.3 is installed here") == 1
    assert str(tmp_path) in done.stderr


def test_a_python_without_weft_is_told_why_ray_is_not_found() -> None:
    done = run("-I", "-S", "-c", f"import sys; sys.path.insert(0, {alias.ON_PATH!r}); import ray")
    assert "`import ray` means Weft here" in done.stderr


def test_addresses_of_ray_name_the_cluster_at_its_head() -> None:
    assert cluster_address("ray://head.example:10001") == "head.example:6379"
    assert cluster_address("ray://head.example") == "head.example:6379"
    assert cluster_address("http://127.0.0.1:8265/") == "127.0.0.1:6379"
    assert cluster_address("ray://127.0.0.1:7001") == "127.0.0.1:7001"
    for same in ("auto", "local", "10.0.0.1:10001"):
        assert cluster_address(same) == same
