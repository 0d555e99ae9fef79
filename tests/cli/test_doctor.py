"""`weft doctor`: what it says of machines that lack something, and of this one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from weft.cli import doctor
from weft.cli.doctor import FAILURE, OK, WARNING
from weft.engine.state.memory_groups import Grant, Refusal

GIB = 1 << 30


def test_this_machine_can_run_weft() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weft.cli", "doctor", "--json"], capture_output=True, text=True, timeout=280
    )
    verdicts = {one["subject"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0, verdicts
    assert verdicts["session"]["level"] == OK
    assert "started in" in verdicts["session"]["finding"]
    assert set(verdicts) > {
        "python",
        "native core",
        "machine",
        "memory limits",
        "shared memory",
        "open files",
        "disk",
        "libraries",
    }


@pytest.mark.parametrize(
    ("verdict", "level", "advice"),
    [
        (doctor.python_version((3, 9, 1), "Linux"), FAILURE, "3.10 or newer"),
        (doctor.python_version((3, 12, 1), "Darwin"), FAILURE, "runs on Linux"),
        (doctor.machine(1, GIB, GIB // 4), WARNING, "little memory"),
        (doctor.machine(1, 8 * GIB, 2 * GIB), OK, ""),
        (doctor.memory_limits(Refusal("this user may not write to /x", "systemd-run")), OK, "systemd-run"),
        (doctor.memory_limits(Grant("/sys/fs/cgroup/x")), OK, ""),
        (doctor.open_files(1024), WARNING, "ulimit -n 65536"),
        (doctor.open_files(65536), OK, ""),
        (doctor.disk("/tmp", GIB, 16 * GIB), WARNING, "set TMPDIR"),
        (doctor.disk("/tmp", 100 * GIB, 16 * GIB), OK, ""),
        (doctor.stacks("1", 0, True), WARNING, "ptrace_scope=0"),
        (doctor.stacks("1", doctor.SYS_PTRACE, True), OK, ""),
        (doctor.stacks("0", 0, False), WARNING, "weft[observe]"),
    ],
)
def test_what_is_lacking_is_named_with_what_to_do(verdict: doctor.Verdict, level: str, advice: str) -> None:
    assert verdict.level == level
    assert advice in verdict.advice


def test_a_session_that_can_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("no daemon")

    monkeypatch.setattr("weft.init", fail)
    verdict = doctor.session()
    assert verdict.level == FAILURE
    assert "RuntimeError: no daemon" in verdict.finding
