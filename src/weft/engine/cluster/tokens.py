"""Where the token of a cluster comes from: the variable WEFT_TOKEN, a file, or the one that the head has left here.

The head writes its token to a file that only its user can read; `weft stop` removes it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from weft.engine.cluster import launch, peers
from weft.machine import own_folders, secrets

VARIABLE = secrets.TOKEN


def folder() -> Path:
    """For tokens and logs of this user's nodes. PermissionError where it is another user's."""
    return Path(own_folders.state_folder())


def path_of(cluster: str) -> Path:
    return folder() / f"token-{launch.normal(cluster).replace(':', '-')}"


def find(cluster: str, file: str | None) -> bytes:
    """LookupError, with what to do, when there is none."""
    if file is not None:
        if not (token := Path(file).read_bytes().strip()):
            raise ValueError(f"the token file {file} is empty: with an empty token, everybody would be let in")
        return token
    if given := secrets.given(VARIABLE):
        return given.encode()
    with contextlib.suppress(FileNotFoundError):
        return path_of(cluster).read_bytes().strip()
    raise LookupError(
        f"the cluster {cluster} asks for its token: set {VARIABLE}, or pass --token-file with a copy of the file that "
        "`weft start --head` has named"
    )


def keep(cluster: str, token: bytes) -> Path:
    path = path_of(cluster)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(token + b"\n")
    return path


def forget(cluster: str) -> None:
    path_of(cluster).unlink(missing_ok=True)
    peers.forget(folder(), launch.normal(cluster))
