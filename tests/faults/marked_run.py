"""A driver program in a process of its own, and what is left of it afterwards.

Every process of a run has the run's mark in its environment: workers inherit it, whoever their parent is by then. Its
files would be in a temporary folder that no other run uses.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from waiting import comes_true

HANG_S = 90.0
"""A guard, not a measure: the machine may be busy."""
MARK = "WEFT_TEST_MARK"


class MarkedRun:
    """One running program. Use it in a `with`: its end kills whatever is left."""

    def __init__(self, program: str | Path, folder: Path, *args: str) -> None:
        self.mark = uuid.uuid4().hex
        self.temporary = folder / self.mark
        self.temporary.mkdir()
        self._stderr = folder / f"{self.mark}.stderr"
        inline = [] if isinstance(program, Path) else ["-c"]
        text = str(program) if isinstance(program, Path) else _PROLOGUE + textwrap.dedent(program)
        with self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *inline, text, *args],
                env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self._stdout = self.process.stdout.fileno()
        self._unread = b""
        self._sockets: set[str] = set()

    def __enter__(self) -> MarkedRun:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    # ---- while it runs ----

    def processes(self) -> dict[int, str]:
        """The living processes of the run: what each one is, by pid."""
        needle = f"{MARK}={self.mark}".encode()
        found = {}
        for pid in _pids():
            try:
                if needle in Path(f"/proc/{pid}/environ").read_bytes():
                    found[pid] = self._role(pid)
            except OSError:
                continue  # it ended meanwhile, or is another user's
        return found

    def pids(self, role: str) -> list[int]:
        return [pid for pid, known in self.processes().items() if known == role]

    def _role(self, pid: int) -> str:
        if pid == self.process.pid:
            return "driver"
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        return {"weft-node": "daemon", "weft-zygote": "zygote", "weft-worker": "worker"}.get(name, "starting")

    def note_sockets(self) -> None:
        """Remember the names of the abstract sockets that the run holds now."""
        names = _abstract_sockets()
        for pid in self.processes():
            for target in _targets(pid):
                if target.startswith("socket:[") and (name := names.get(target[8:-1])):
                    self._sockets.add(name)

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        self.note_sockets()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def line(self) -> str:
        """The next line that it prints; fails when there is none."""
        deadline = time.monotonic() + HANG_S
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"it prints nothing:\n{self.story()}"
            data = os.read(self._stdout, 65536)
            assert data, f"it ended before it printed a line:\n{self.story()}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    # ---- its end ----

    def end(self) -> int:
        """Its exit status (negative: a signal), which must come."""
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGUSR1)  # the program shows its stacks
            threading.Event().wait(1)
            raise AssertionError(f"the run hangs:\n{self.story()}") from None

    def output(self) -> str:
        """All that it printed after what `line` has given; call it after `end`."""
        while data := os.read(self._stdout, 65536):
            self._unread += data
        return self._unread.decode()

    def story(self) -> str:
        processes = ", ".join(f"{role} {pid}" for pid, role in self.processes().items()) or "none"
        return f"processes: {processes}\nstderr:\n{self._stderr.read_text()[-8000:]}"

    def errors(self) -> str:
        return self._stderr.read_text()

    def assert_nothing_remains(self) -> None:
        """No process, and so no mapping and no anonymous file; no socket; no file."""
        assert comes_true(lambda: not self.processes(), HANG_S), f"processes remain:\n{self.story()}"
        left = self._sockets & set(_abstract_sockets().values())
        assert not left, f"sockets remain: {left}"
        assert not any(self.temporary.iterdir()), f"files remain: {list(self.temporary.iterdir())}"
        named = {name for name in os.listdir("/dev/shm") if "weft" in name}
        assert comes_true(lambda: not named.intersection(os.listdir("/dev/shm"))), f"shared memory remains: {named}"


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _targets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{number}")


def _abstract_sockets() -> dict[str, str]:
    """Weft's, by inode."""
    rows = (line.split() for line in Path("/proc/net/unix").read_text(errors="replace").splitlines())
    return {row[6]: row[7] for row in rows if len(row) == 8 and row[7].startswith("@weft-")}


_PROLOGUE = """\
import faulthandler, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
import weft
def say(*words):
    print(*words, flush=True)
"""
