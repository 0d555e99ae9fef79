"""What `pip` and `uv` install: virtual environments in the user's cache, named by what was asked for.

    ROOT/installed/HASH/            the virtual environment; it also sees the packages of the node's own Python
    ROOT/installed/HASH.json        made last: it is complete; its size; its time is when it was last used
    ROOT/installed/HASH.lock        shared: in use by a worker, or soon; exclusive: being removed
    ROOT/installed/HASH.making      exclusive: being made
    ROOT/installed/HASH.failed      what the installer wrote, for those who waited for it

Runs in a worker before it attaches, so it may take its time: nobody waits but the tasks that need it. The cache is
bounded ($WEFT_RUNTIME_ENV_CACHE_BYTES, 10 GiB): after each installation those used longest ago go, unless in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.environments import env_folders
from weft.exceptions import RuntimeEnvSetupError

CACHE_BYTES = 10 << 30
TIMEOUT_S = 600
PARENT_LINK = "_weft_parent.pth"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Installed:
    """One environment that is there."""

    folder: str

    @property
    def python(self) -> str:
        return os.path.join(self.folder, "bin", "python")

    @property
    def site(self) -> str:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return os.path.join(self.folder, "lib", version, "site-packages")


def key_of(env: Mapping[str, Any]) -> str:
    """The name of what it asks for: the same packages for the same Python are the same environment."""
    asked = {name: env[name] for name in ("pip", "uv") if name in env}
    local = [_stamp(entry) for fields in asked.values() for entry in fields["packages"] if os.path.exists(entry)]
    text = json.dumps([asked, local, sys.version, sys.executable], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _stamp(path: str) -> list[Any]:
    """A local wheel or project that has changed is another one."""
    about = os.stat(path)
    return [path, about.st_size, about.st_mtime_ns]


def ensure(env: Mapping[str, Any], variables: Mapping[str, str], cwd: str) -> Installed | None:
    """The environment's packages, installed now if nobody has; None when it asks for none.

    RuntimeEnvSetupError with the installer's output. They stay while this process lives (and what it executes)."""
    if "pip" not in env and "uv" not in env:
        return None
    home = os.path.join(env_folders.root(), "installed")
    env_folders.make(env_folders.root())
    env_folders.make(home)
    folder = os.path.join(home, key_of(env))
    began = time.time()
    fd = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.set_inheritable(fd, True)  # an executed interpreter still uses it
    fcntl.flock(fd, fcntl.LOCK_SH)
    try:
        if not os.path.exists(f"{folder}.json"):
            # A lock of its own: the first to hold the environment does so as long as it lives.
            with env_folders.locked(f"{folder}.making"):
                if not os.path.exists(f"{folder}.json"):
                    _raise_known_failure(folder, began)
                    _make_or_explain(Installed(folder), env, variables, cwd)
            prune(home)
        os.utime(f"{folder}.json")
    except BaseException:
        os.close(fd)
        raise
    return Installed(folder)


def _make_or_explain(made: Installed, env: Mapping[str, Any], variables: Mapping[str, str], cwd: str) -> None:
    try:
        _make(made, env, variables, cwd)
    except BaseException as error:
        shutil.rmtree(made.folder, ignore_errors=True)
        if isinstance(error, RuntimeEnvSetupError):
            _write(f"{made.folder}.failed", error.error_message)
        raise


def _raise_known_failure(folder: str, began: float) -> None:
    """Whoever waited for another's attempt shares its outcome; whoever comes later tries again."""
    try:
        if os.stat(f"{folder}.failed").st_mtime >= began:
            with open(f"{folder}.failed", encoding="utf-8") as file:
                raise RuntimeEnvSetupError(file.read())
    except FileNotFoundError:
        return
    os.unlink(f"{folder}.failed")


def _make(made: Installed, env: Mapping[str, Any], variables: Mapping[str, str], cwd: str) -> None:
    import venv

    shutil.rmtree(made.folder, ignore_errors=True)
    venv.EnvBuilder(symlinks=True, with_pip=False).create(made.folder)
    parents = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    links = [f"import site; site.addsitedir({path!r})\n" for path in parents]
    _write(os.path.join(made.site, PARENT_LINK), "".join(links))
    timeout_s = env.get("config", {}).get("setup_timeout_seconds", TIMEOUT_S)
    deadline = None if timeout_s == -1 else time.monotonic() + timeout_s
    for command in commands(made.python, env, variables):
        _run(command, {**variables, "VIRTUAL_ENV": made.folder}, cwd, deadline)
    about = {"asked": {name: env[name] for name in ("pip", "uv") if name in env}, "bytes": _size(made.folder)}
    _write(f"{made.folder}.json", json.dumps(about))


def commands(python: str, env: Mapping[str, Any], variables: Mapping[str, str]) -> list[list[str]]:
    """What installs the packages into the environment of `python`, in this order.

    With -I, so that a pip.py in the user's folder is not taken for pip."""
    quiet = ["--disable-pip-version-check", "--no-input"]
    if "pip" in env:
        fields = env["pip"]
        pip = [python, "-I", "-m", "pip"]
        made = [[*pip, "install", *quiet, f"pip{fields['pip_version']}"]] if fields.get("pip_version") else []
        made.append([*pip, "install", *quiet, *fields.get("pip_install_options", ()), *_requirements(fields)])
        return made + ([[*pip, "check"]] if fields["pip_check"] else [])
    fields = env["uv"]
    made = []
    uv = [shutil.which("uv", path=variables.get("PATH")) or ""]
    if fields.get("uv_version") or not uv[0]:
        made.append([python, "-I", "-m", "pip", "install", *quiet, f"uv{fields.get('uv_version', '')}"])
        uv = [python, "-I", "-m", "uv"]
    # uv does not count what the node's own Python has as installed; what is asked for is installed with all it needs.
    options = fields.get("uv_pip_install_options", ())
    made.append([*uv, "pip", "install", "--python", python, *options, *_requirements(fields)])
    return made + ([[*uv, "pip", "check", "--python", python]] if fields["uv_check"] else [])


def _requirements(fields: Mapping[str, Any]) -> list[str]:
    """A line such as "--find-links DIR" of a requirements file is two arguments."""
    return [part for entry in fields["packages"] for part in (entry.split() if entry.startswith("-") else [entry])]


def _run(command: list[str], variables: dict[str, str], cwd: str, deadline: float | None) -> None:
    """RuntimeEnvSetupError with all that the command wrote when it fails or takes too long."""
    variables.pop("PYTHONPATH", None)
    shown = " ".join(command)
    process = subprocess.Popen(
        command,
        env=variables,
        cwd=cwd if os.path.isdir(cwd) else "/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent,
    )
    try:
        output, _ = process.communicate(timeout=None if deadline is None else max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        text = output.decode("utf-8", "replace")
        raise RuntimeEnvSetupError(
            f"{shown}\ndid not end in time; raise config['setup_timeout_seconds'] of the runtime_env.\n{text}"
        ) from None
    if process.returncode:
        text = output.decode("utf-8", "replace")
        raise RuntimeEnvSetupError(f"{shown}\nended with status {process.returncode}:\n{text}")


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def prune(home: str) -> None:
    """Remove what was used longest ago until the rest fits; what is in use stays."""
    most = int(os.environ.get("WEFT_RUNTIME_ENV_CACHE_BYTES", CACHE_BYTES))
    with env_folders.locked(os.path.join(home, "prune.lock")):
        found = []
        for name in os.listdir(home):
            if name.endswith(".json"):
                with contextlib.suppress(OSError, ValueError), open(os.path.join(home, name)) as file:
                    size = json.load(file)["bytes"]
                    found.append((os.stat(file.fileno()).st_mtime, size, os.path.join(home, name[: -len(".json")])))
        total = sum(size for _, size, _ in found)
        for _, size, folder in sorted(found):
            if total > most and _remove_if_free(folder):
                total -= size


def _remove_if_free(folder: str) -> bool:
    fd = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        os.unlink(f"{folder}.json")
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(fd)


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _write(path: str, text: str) -> None:
    """Whole or not at all."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
