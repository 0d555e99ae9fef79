"""Folders under names that others can foresee, for what only this user may read or write. In any process."""

from __future__ import annotations

import contextlib
import errno
import os


def make(path: str, instead: str) -> None:
    """The folder, and those above it that are missing. PermissionError, with what to do `instead`, where another user's
    lies in its place, or a link of another user's, which may lead to any folder of ours."""
    make_closed(path)
    if {os.stat(path).st_uid, os.lstat(path).st_uid} != {os.getuid()}:
        raise PermissionError(f"the folder {path} belongs to another user; {instead}")


def make_closed(path: str | os.PathLike[str]) -> None:
    """The folder, in a place that the user has chosen, and those above it that are missing: each for this user only.
    One that is there stays as it is."""
    path = os.path.abspath(path)
    missing, above = [path], os.path.dirname(path)
    while above and not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, 0o700)  # not makedirs: those above would be as open as the umask is
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def state_folder() -> str:
    """For tokens, logs and sessions of this user's nodes. PermissionError where it is another user's."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    made = os.path.join(base, "weft")
    make(made, "set XDG_STATE_HOME to one of yours")
    return made
