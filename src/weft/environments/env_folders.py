"""Where the files of environments lie: the user's cache folder, and in it one folder a job for copied code.

    ROOT/jobs/NODE-JOB/HASH     copies of working_dir and py_modules, gone with the job
    ROOT/installed/HASH         what pip and uv have installed; stays, see `cache`

ROOT is $WEFT_CACHE_DIR, else $XDG_CACHE_HOME/weft, else ~/.cache/weft, else weft-UID in the temporary folder.

A job's folder is held by a shared lock of every process that uses it (the driver, its workers), so the kernel lets go
of it however they end. Whoever finds a folder that nobody holds removes it: a driver at its shutdown, a node daemon
when a job or the node ends, and the next one that makes a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator

from weft.machine import own_folders

_LOCK = ".lock"
_held: dict[str, int] = {}
"""The job folders that this process holds, and the descriptors of their locks."""


def root() -> str:
    """The cache folder. It may not exist yet."""
    if chosen := os.environ.get("WEFT_CACHE_DIR"):
        return os.path.abspath(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if _can_make(os.path.join(home, "weft")):
        return os.path.join(home, "weft")
    return os.path.join(tempfile.gettempdir(), f"weft-{os.getuid()}")


def _can_make(path: str) -> bool:
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def make(path: str) -> None:
    """A folder of the cache, for this user only. PermissionError when another user's lies in its place."""
    own_folders.make(path, "set WEFT_CACHE_DIR to one of yours")


def job_folder(name: str) -> str:
    """The folder of that job, held by this process from now on."""
    with _alone() as jobs:
        path = os.path.join(jobs, name)
        make(path)
        os.close(os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        _hold(path)
    return path


def hold(path: str) -> None:
    """Keep the job folder that a copy lies in; FileNotFoundError when it is gone."""
    _hold(os.path.dirname(path))


def _hold(folder: str) -> None:
    if folder in _held:
        return
    fd = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    if not os.path.exists(os.path.join(folder, _LOCK)):  # removed between the two
        os.close(fd)
        raise FileNotFoundError(f"the job's folder {folder} was removed")
    _held[folder] = fd


def release() -> None:
    """Let go of everything held, and remove what nobody holds any more."""
    if not _held:
        return
    for fd in _held.values():
        os.close(fd)
    _held.clear()
    sweep()


def sweep() -> None:
    """Remove the folders of jobs that are over. Nothing happens where there are none."""
    try:
        if not os.path.isdir(os.path.join(root(), "jobs")):
            return
        with _alone() as jobs:
            for entry in os.listdir(jobs):
                _remove_if_free(os.path.join(jobs, entry))
    except OSError:  # another time, or another process
        pass


def _remove_if_free(folder: str) -> None:
    with contextlib.suppress(OSError):
        if not os.path.isdir(folder):
            return
        fd = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            make_deletable(folder)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)


def make_deletable(folder: str) -> None:
    """Copies of read-only folders can be removed too."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)


@contextlib.contextmanager
def _alone() -> Iterator[str]:
    """The jobs folder, with nobody else making or removing one in it."""
    jobs = os.path.join(root(), "jobs")
    make(root())
    make(jobs)
    with locked(os.path.join(root(), "jobs.lock")):
        yield jobs


@contextlib.contextmanager
def locked(path: str) -> Iterator[int]:
    """Hold a lock file exclusively."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)
