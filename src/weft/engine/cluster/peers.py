"""Where the other nodes of a cluster listen, remembered on disk by a node that `weft start --head` has started.

A head that is started again after it died finds by that whether its cluster lives on with another head, and joins it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from weft.engine.wire.link_messages import Member


def path_of(folder: str | Path, cluster: str) -> Path:
    return Path(folder, f"peers-{cluster.replace(':', '-')}")


def remember(folder: str, cluster: str, members: Iterable[Member]) -> None:
    """The addresses of the nodes that live now."""
    if not folder:
        return
    path = path_of(folder, cluster)
    temporary = path.with_suffix(".part")
    with contextlib.suppress(OSError):  # no descriptor, no room: an older list will do
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump([member.address for member in members], file)
        os.replace(temporary, path)


def remembered(folder: str | Path, cluster: str) -> list[str]:
    """What was remembered last; none when nothing was."""
    with contextlib.suppress(FileNotFoundError):
        return [str(address) for address in json.loads(path_of(folder, cluster).read_text())]
    return []


def forget(folder: str | Path, cluster: str) -> None:
    path_of(folder, cluster).unlink(missing_ok=True)
