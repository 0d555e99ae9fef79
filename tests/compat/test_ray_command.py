"""The `ray` command, as a person types it, and what it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_compat import real_ray

from weft.compat import API_LEVEL, command

JOB = """
import ray
ray.init("ray://{address}")

@ray.remote
def version():
    import ray
    return ray.__version__

print("here", ray.__version__, "worker", ray.get(version.remote()))
"""


def test_only_an_import_of_ray_teaches_weft_its_words() -> None:
    """Else who uses Weft beside it would be raised another TaskCancelledError than it knows."""
    code = "import sys, weft.compat, weft.compat.command; sys.exit('weft.compat.words' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Shell:
    """Types commands, with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
        for name in ("WEFT_TOKEN", "WEFT_ADDRESS", "RAY_ADDRESS"):
            self.environment.pop(name, None)

    def type(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=280,
        )

    def ray(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.type("weft.compat.command", *arguments)

    def weft(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.type("weft.cli", *arguments)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def started(shell: Shell, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a cluster that the command of the test's parameter has started."""
    begun = getattr(shell, request.param)("start", "--head", "--port", "0", "--num-cpus", "1")
    assert begun.returncode == 0, begun.stderr
    address = begun.stdout.split("of the cluster ")[1].split()[0]
    try:
        yield address
    finally:
        stopped = shell.ray("stop", "--address", f"ray://{address}")
        assert "1 of 1 nodes ended" in stopped.stdout, stopped


@pytest.mark.parametrize("started", ["weft"], indirect=True)
def test_a_job_that_is_submitted_finds_ray_in_a_cluster_that_knows_nothing_of_it(shell: Shell, started: str) -> None:
    (shell.folder / "job.py").write_text(JOB.format(address=started))
    done = shell.ray("job", "submit", "--address", f"http://{started}", "--working-dir", ".", "--", "python", "job.py")
    assert done.stdout == f"here {API_LEVEL} worker {API_LEVEL}\n", done.stderr
    assert "job.py" in shell.ray("job", "list", f"--address=http://{started}").stdout
    assert "1 of 1 nodes are alive" in shell.ray("status", "--address", f"ray://{started}").stdout
    assert "of the object store in use" in shell.ray("memory", "--address", started).stdout
    assert shell.ray("timeline", "--address", started).returncode == 0
    assert [path.suffix for path in shell.folder.glob("ray-timeline-*")] == [".json"]


@pytest.mark.parametrize("started", ["ray"], indirect=True)
def test_every_job_of_a_cluster_that_ray_has_started_finds_ray(shell: Shell, started: str) -> None:
    code = "import ray; print(ray.__version__)"
    done = shell.weft("job", "submit", "--address", started, "--", "python", "-c", code)
    assert done.stdout == f"{API_LEVEL}\n", done.stderr


def test_the_command_of_a_real_ray_runs_where_that_is_installed(shell: Shell, tmp_path: Path) -> None:
    shell.environment |= real_ray(tmp_path / "installed")
    assert shell.ray("status").stdout == "the real one\n"
    shell.environment["RAY_MEANS_WEFT"] = "1"
    assert API_LEVEL in shell.ray("--version").stdout


def test_a_command_that_weft_has_not_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["up", "cluster.yaml"]) == 2
    assert "Weft has no `ray up`" in capsys.readouterr().err
    assert command.main(["no-such"]) == 2
    assert "there are: start, stop" in capsys.readouterr().err


def test_options_without_a_counterpart_are_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.start(["--head", "--temp-dir", "/x", "--disable-usage-stats"]) == ["--head"]
    assert "--temp-dir" in capsys.readouterr().err


def test_labels_are_pairs_or_json(tmp_path: Path) -> None:
    assert command.start(["--head", "--labels", '{"a": "b"}'])[-1] == '{"a": "b"}'
    (tmp_path / "labels").write_text('{"a": "b", "c": "d"}')
    assert command.start(["--labels-file", str(tmp_path / "labels"), "--labels", "a=x"])[-1] == '{"a": "x", "c": "d"}'
    for wrong in ('{"a": 1}', '{"ray.io/node-id": "111"}', "zone"):
        with pytest.raises(ValueError, match="Label string is not a key-value pair"):
            command.start(["--head", "--labels", wrong])
    with pytest.raises(ValueError, match="KEY=VALUE"):
        command.start(["--head", "--labels", "zone"])


def test_a_runtime_environment_keeps_its_own_path_behind_the_alias() -> None:
    given = '{"env_vars": {"PYTHONPATH": "/mine", "A": "1"}}'
    made = command.job(["submit", "--runtime-env-json", given, "--", "true"])
    assert made[-2:] == ["--", "true"]
    assert '/on_path:/mine"' in made[2] and '"A": "1"' in made[2]
