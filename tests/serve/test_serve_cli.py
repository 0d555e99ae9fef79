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
