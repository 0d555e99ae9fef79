"""The progress line: at a terminal and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest

from weft.terminal import status_line

CODE = """
import time, weft
from weft.engine.process.telling import progress
progress.AFTER_S, progress.EVERY_S = 0.5, 0.1
weft.init(num_cpus=1, include_dashboard=False)
@weft.remote
def slow(seconds):
    time.sleep(seconds)
    return seconds
print(weft.get([slow.remote(0.6) for _ in range(3)]))
try:
    weft.get(slow.remote(30), timeout=0.9)
except weft.exceptions.GetTimeoutError as error:
    print(str(error).partition(" are")[0])
ready, rest = weft.wait([slow.remote(30) for _ in range(3)], num_returns=2, timeout=0.9)
print(len(ready), len(rest))
"""
SAID = "[0.6, 0.6, 0.6]\nget() waited 0.9 s and 1 of 1 objects\n0 3\n"


def at_terminal(**variables: str) -> tuple[str, str]:
    """What a program writes to its standard output, and to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE],
        env={**os.environ, "TERM": "xterm", **variables},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    out, _ = process.communicate(timeout=280)
    drawn = b""
    try:
        while data := os.read(ours, 1 << 16):
            drawn += data
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    return out, drawn.decode()


def test_a_long_wait_at_a_terminal_shows_a_line_and_wipes_it() -> None:
    out, drawn = at_terminal()
    assert out == SAID
    assert re.search(r"weft: 1 of 3 done, 1 run, 2 pending \(1 wait for a worker: \S+ of 1 CPU free\), \d s", drawn)
    assert "weft: 0 of 1 done" in drawn
    assert "weft: 0 of 3 done (2 wanted), 1 run, 3 pending (3 wait for a worker" in drawn
    assert drawn.endswith("\r\x1b[2K")


def test_it_can_be_turned_off() -> None:
    assert at_terminal(WEFT_PROGRESS="0") == (SAID, "")


@pytest.mark.parametrize(("variable", "wanted"), [("", False), ("0", False), ("1", True)])
def test_a_pipe_sees_none_unless_asked(variable: str, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(status_line.VARIABLE, variable)
    with open(os.devnull, "w") as pipe:
        assert status_line.is_wanted(pipe) is wanted


def test_a_terminal_that_is_gone_does_not_end_the_wait() -> None:
    with open("/dev/full", "w") as out:
        line = status_line.Line(out)
        line.show("x")
        line.wipe()
        out_any: Any = out
        with pytest.raises(OSError, match="No space"):
            out_any.close()
