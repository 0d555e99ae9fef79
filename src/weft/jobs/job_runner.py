"""Runs the commands of submitted jobs on one node: starts their supervisors, watches them, reads their logs.

Runs in the daemon's thread. What becomes of a job is said to `on_report`; the table is the head's (`service`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from weft.environments import apply
from weft.jobs import log_files, supervisor
from weft.jobs.submissions import UPLOADS
from weft.machine import own_folders, secrets
from weft.machine.programs import python_command
from weft.net.loop import Loop

SUBMISSION_VARIABLE = "WEFT_SUBMISSION_ID"
RUNTIME_ENV_VARIABLE = "WEFT_JOB_RUNTIME_ENV"
_ENTRY = "weft.jobs.supervisor"
_NOT_PASSED_ON = (*secrets.NAMES, "WEFT_ADDRESS", "RAY_ADDRESS", SUBMISSION_VARIABLE, RUNTIME_ENV_VARIABLE)
_FOR_INSTALLERS = ("pip", "uv")
_OF_THE_COMMAND = ("working_dir", "py_modules", "excludes", "env_vars")
END_S = 10.0


class RunOrder(msgspec.Struct, frozen=True):
    """A job as its node gets it."""

    id: str
    entrypoint: str
    runtime_env: dict[str, Any] = {}
    """In its normal form; "working_dir" and "py_modules" hold the names of uploaded packages."""


class Report(msgspec.Struct, frozen=True):
    """What a node says of a job: it has begun (a pid), or ended."""

    id: str
    pid: int = 0
    has_ended: bool = False
    exit_code: int | None = None
    message: str = ""


class Running:
    """One supervisor."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.process = process
        self.control = control


class Runner:
    """All jobs of a node, and where their files are."""

    def __init__(self, loop: Loop, folder: Callable[[], str], address: Callable[[], str]) -> None:
        self._loop = loop
        self._folder = folder
        """Made at the first need."""
        self._address = address
        """What the commands are to attach to."""
        self.on_report: Callable[[Report], None] = lambda _: None
        self._running: dict[str, Running] = {}

    @property
    def running(self) -> int:
        return len(self._running)

    def keep_package(self, name: str, offset: int, data: bytes) -> None:
        """A part of an uploaded archive; parts come in order."""
        path = self._package(name)
        own_folders.make_closed(os.path.dirname(path))
        # Not cut off: its name says what it holds, and a job that has it already may be reading it.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
            file.seek(offset)
            file.write(data)

    def start(self, order: RunOrder) -> None:
        """Raises OSError or ValueError when it cannot even be tried."""
        made = self._order(order)
        order_fd = os.memfd_create("weft-job-order")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                os.write(order_fd, msgspec.msgpack.encode(made))
                arguments = (str(theirs.fileno()), str(order_fd))
                process = subprocess.Popen(
                    python_command(_ENTRY, *arguments),
                    pass_fds=(theirs.fileno(), order_fd),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
            finally:
                os.close(order_fd)
        self._running[order.id] = Running(process, ours)
        self._loop.watch(ours.fileno(), lambda: self._read(order.id))

    def stop(self, job: str) -> None:
        if (running := self._running.get(job)) is not None:
            with contextlib.suppress(OSError):  # it is ending anyway
                running.control.send(supervisor.STOP)

    def read_log(self, job: str, offset: int, most_bytes: int) -> tuple[bytes, int]:
        return log_files.read(os.path.join(self._job_folder(job), "log"), offset, most_bytes)

    def has_files(self, job: str) -> bool:
        return os.path.isdir(self._job_folder(job))

    def keep_only(self, jobs: Collection[str]) -> None:
        """Remove the files of all others, and what was uploaded for them: none of them runs."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder()):
                if name not in jobs:
                    shutil.rmtree(os.path.join(self._folder(), name), ignore_errors=True)

    def delete(self, job: str) -> None:
        shutil.rmtree(self._job_folder(job), ignore_errors=True)

    def close(self) -> None:
        """End every job: a supervisor whose daemon is gone kills its command. Waits until nothing of them is left."""
        for running in self._running.values():
            self._loop.unwatch(running.control.fileno())
            running.control.close()
        for running in self._running.values():
            try:
                running.process.wait(END_S)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
        self._running.clear()

    # ---- inside ----

    def _job_folder(self, job: str) -> str:
        return os.path.join(self._folder(), _as_name(job))

    def _package(self, name: str) -> str:
        return os.path.join(self._folder(), UPLOADS, _as_name(name))

    def _order(self, order: RunOrder) -> supervisor.Order:
        folder = self._job_folder(order.id)
        own_folders.make_closed(folder)
        env = order.runtime_env
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        environment |= {"WEFT_ADDRESS": self._address(), SUBMISSION_VARIABLE: order.id, "PYTHONUNBUFFERED": "1"}
        # "python" in a command is the Python of the node.
        environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment.get("PATH", os.defpath)])
        environment = apply.with_variables(environment, env.get("env_vars", {}))
        rest = {name: value for name, value in env.items() if name not in _OF_THE_COMMAND}
        if rest:
            environment[RUNTIME_ENV_VARIABLE] = msgspec.json.encode(rest).decode()
        given = {f"module-{n}": name for n, name in enumerate(env.get("py_modules", []))}
        modules = [os.path.join(folder, name) for name in given]
        if "working_dir" in env:
            given["working_dir"] = env["working_dir"]
        where = os.path.join(folder, "working_dir") if "working_dir" in env else os.getcwd()
        path = [*modules, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        if path:
            environment["PYTHONPATH"] = os.pathsep.join(path)
        return supervisor.Order(
            order.entrypoint,
            where,
            os.path.join(folder, "log"),
            environment,
            {os.path.join(folder, name): self._package(package) for name, package in given.items()},
            {name: env[name] for name in _FOR_INSTALLERS if name in env},
        )

    def _read(self, job: str) -> None:
        running = self._running[job]
        try:
            data = running.control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            report = supervisor.reports.decode(data)
            if isinstance(report, supervisor.Started):
                self.on_report(Report(job, report.pid))
                return
            ended = Report(job, 0, True, report.exit_code, report.message)
        else:
            self._end_orphans(job)
            ended = Report(job, 0, True, None, "the process that watches over its command was killed")
        del self._running[job]
        self._loop.unwatch(running.control.fileno())
        running.control.close()
        running.process.wait()
        self.on_report(ended)

    def _end_orphans(self, job: str) -> None:
        """Its supervisor was killed, so those below it have no one that knows them but by their environment."""
        mark = f"{SUBMISSION_VARIABLE}={job}\0".encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{name}/environ", "rb") as file:
                        is_its = mark in file.read()
                    if is_its:
                        os.kill(int(name), signal.SIGKILL)


def _as_name(text: str) -> str:
    """A name of a file; ValueError for what could lead elsewhere."""
    if not text or text.startswith(".") or "/" in text or "\0" in text or len(text) > 200:
        raise ValueError(f"{text!r} cannot be a name: it must have 1 to 200 characters, no '/' and no '.' in front")
    return text
