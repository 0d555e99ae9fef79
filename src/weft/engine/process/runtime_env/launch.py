"""A worker that needs more than a fork: packages to install, another interpreter, variables that act at a start.

Runs in the process that the zygote has just forked, before it attaches: records for it wait in its ring meanwhile. In
the end it is a worker, in this interpreter where that will do, else in the one that it executes (`launched`). It is a
worker even when all this fails: then everything that it is asked to run fails with the reason.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.engine.state.launches import AT_IMPORT, AT_START
from weft.engine.wire.messages import BindJob
from weft.environments import apply, installed
from weft.environments.installed import Installed
from weft.environments.merge import parse
from weft.exceptions import RuntimeEnvSetupError

PROBE_TIMEOUT_S = 120
_OWN_MODULES = frozenset(sys.stdlib_module_names)
_HERE = os.path.dirname(os.path.abspath(__file__))
_SCRIPT = (os.path.join(_HERE, "launched.py"), _HERE[: -len("/weft/engine/process/runtime_env")])


def run(binding_fd: int, segment_fd: int, event_fd: int, slot: int, generation: int) -> int:
    """Be the worker of that slot, for the job and environment that the descriptor tells. The exit status."""
    from weft.engine.process.worker import main as worker

    payload = os.pread(binding_fd, os.fstat(binding_fd).st_size, 0)
    job = msgspec.msgpack.decode(payload, type=BindJob)
    env = parse(job.runtime_env)
    packages, failure = None, ""
    try:
        variables = apply.variables(job.environment, job.runtime_env)
        packages = installed.ensure(env, variables, job.cwd)
        if command := command_for(env, packages):
            if "py_executable" in env:
                _probe(command, variables, env.get("working_dir") or job.cwd)
            numbers = (binding_fd, segment_fd, event_fd, slot, generation)
            _execute(command, variables, env.get("working_dir") or job.cwd, packages, numbers)
    except RuntimeEnvSetupError as error:
        failure = error.error_message
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    os.close(binding_fd)
    return worker.main(segment_fd, event_fd, slot, generation, worker.Birth(job, packages=packages, failure=failure))


def command_for(env: Mapping[str, Any], packages: Installed | None) -> list[str]:
    """The interpreter to execute; empty when this one will do."""
    if "py_executable" in env:
        return shlex.split(env["py_executable"])
    loaded = {name.partition(".")[0] for name in sys.modules}
    own = packages.python if packages is not None else sys.executable
    if packages is not None and not loaded.isdisjoint(_top_levels(packages.site)):
        return [own]  # another version of what is loaded here already
    wanted = env.get("env_vars", {})
    if any(name.startswith(AT_START) for name in wanted):
        return [own]
    if "numpy" in loaded and any(name.startswith(AT_IMPORT) for name in wanted):
        return [own]  # its libraries have counted their threads already
    return []


def _top_levels(site: str) -> set[str]:
    names = {entry.partition(".")[0] for entry in os.listdir(site)}
    return names - _OWN_MODULES


def _execute(
    command: list[str], variables: dict[str, str], folder: str, packages: Installed | None, numbers: tuple[int, ...]
) -> None:
    """Replace this process. Returns never; RuntimeEnvSetupError when the command cannot be executed."""
    site = packages.folder if packages is not None else "-"
    if os.path.isdir(folder):
        os.chdir(folder)
    for fd in numbers[:3]:
        os.set_inheritable(fd, True)
    arguments = [*command, *_SCRIPT, site, *map(str, numbers)]
    try:
        os.execvpe(arguments[0], arguments, variables)
    except OSError as error:
        raise RuntimeEnvSetupError(f"py_executable {' '.join(command)!r} could not be executed: {error}") from None


def _probe(command: list[str], variables: dict[str, str], folder: str) -> None:
    """Whether it can import what a worker needs. A worker that dies at its start could not say why."""
    shown = " ".join(command)
    try:
        done = subprocess.run(
            [*command, *_SCRIPT],
            env=variables,
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeEnvSetupError(f"py_executable {shown!r} could not be executed: {error}") from None
    if done.returncode:
        raise RuntimeEnvSetupError(
            f"py_executable {shown!r} cannot be a worker: it must be a Python {sys.version_info.major}."
            f"{sys.version_info.minor} that can import weft.\n{done.stdout.decode('utf-8', 'replace')}"
        )
