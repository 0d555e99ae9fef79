"""`weft serve`, as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from weft.serve.cli import load
from weft.serve.config_file import BadConfig, parse

APP = """
from weft import serve

@serve.deployment
def hello(name: str = "you") -> str:
    return f"hello {name}"

app = hello.bind()
"""


def test_an_application_is_run_shown_and_ended(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    weft = [sys.executable, "-m", "weft.cli", "serve"]
    command = [*weft, "run", "shop:app", "--port", "0", "--route-prefix", "/hi"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        url = running.stdout.readline().split()[-1]
        address = running.stdout.readline().split()[-1]
        assert httpx.get(url, params={"name": "there"}, timeout=30).text == "hello there"
        shown = subprocess.run([*weft, "status", "--address", address], capture_output=True, text=True, check=True)
        assert json.loads(shown.stdout)["default"]["deployments"]["hello"]["replicas"] == {"RUNNING": 1}
        running.send_signal(signal.SIGINT)
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [("json", "MODULE:APP"), ("json:nothing", "has no 'nothing'"), ("no_such_module:app", "there is no module")],
)
def test_a_wrong_name_is_refused_in_a_sentence(path: str, message: str) -> None:
    with pytest.raises((LookupError, ValueError), match=message):
        load(path)


BUILT = """
from weft import serve

@serve.deployment
class Counter:
    def __init__(self, start: int) -> None:
        self.start = start
        self.step = 1

    def reconfigure(self, step: int) -> None:
        self.step = step

    def __call__(self) -> int:
        return self.start + self.step

def make(start: int) -> serve.Application:
    return Counter.bind(start)
"""

FILE = """
http: {port: 0}
applications:
  - import_path: counting:make
    name: counting
    route_prefix: /count
    args: {start: 10}
    deployments:
      - {name: Counter, num_replicas: 2, user_config: STEP}
"""


def test_a_file_says_what_a_cluster_serves(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(BUILT)
    (tmp_path / "shop.py").write_text(APP)
    weft = [sys.executable, "-m", "weft.cli", "serve"]
    with subprocess.Popen(
        [*weft, "run", "shop:app", "--port", "0", "--route-prefix", "/hi"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        address = running.stdout.readline().split()[-1]
        for step in (5, 7):
            (tmp_path / "serve.yaml").write_text(FILE.replace("STEP", str(step)))
            command = [*weft, "deploy", "serve.yaml", "--address", address]
            deployed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
            url = deployed.stdout.splitlines()[0].split()[-1]
            assert httpx.get(url, timeout=30).json() == 10 + step
        dry = subprocess.run([*command, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert dry.stdout == "", "nothing has changed since"
        back = [*weft, "rollback", "--address", address]
        rolled = subprocess.run(back, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "~ applications.counting.deployments.Counter.user_config: 7 -> 5" in rolled.stderr
        assert httpx.get(url, timeout=30).json() == 15
        assert subprocess.run(back, cwd=tmp_path, capture_output=True).returncode == 2, "there is none before"
        shown = subprocess.run([*weft, "status", "--address", address], capture_output=True, text=True, check=True)
        found = json.loads(shown.stdout)
        assert list(found) == ["counting"], "what the file does not name is ended"
        assert found["counting"]["deployments"]["Counter"]["replicas"] == {"RUNNING": 2}
        subprocess.run([*weft, "shutdown", "--address", address], check=True)
        running.send_signal(signal.SIGINT)
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the file must be a mapping"),
        ({}, "a list of applications"),
        ({"applications": [{}]}, r"applications\[0\] must have an import_path"),
        ({"applications": [{"import_path": "a:b", "port": 1}]}, r"applications\[0\] has no field 'port'"),
        ({"applications": [{"import_path": "a:b"}] * 2}, "two applications have the name 'default'"),
        (
            {"applications": [{"import_path": "a:b"}], "http": {"port": 1, "max_body_bytes": 0}},
            "http: max_body_bytes must",
        ),
        ({"applications": [{"import_path": "a:b"}], "http": {"port": "http"}}, "http: port must be .* but got 'http'"),
        ({"applications": [{"import_path": "a:b"}], "http": {"workers": "2"}}, "http: workers must be a number"),
        ({"applications": [{"import_path": "a:b"}], "grpc": {"port": 1}}, "grpc: .*servicers"),
        (
            {"applications": [{"import_path": "a:b"}], "grpc": {"servicers": ["a:b"], "host": "::1", "threads": 1}},
            "grpc has no field 'threads'",
        ),
        (
            {"applications": [{"import_path": "a:b", "deployments": [{"name": "D", "num_replicas": -1}]}]},
            r"deployments\[0\]: num_replicas must be at least 0",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(document: object, message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        parse(document)
