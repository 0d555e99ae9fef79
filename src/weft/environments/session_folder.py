"""Where a node keeps the files of submitted jobs: their logs, their code.

A node that lives on its own (`weft start`) keeps them in the user's state folder, where they stay to be read; only the
newest `SESSIONS_KEPT` sessions are kept. A node that ends with whoever started it leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from weft.environments import env_folders
from weft.machine import own_folders

SESSIONS_KEPT = 10


def make(node_id: str, keeps: bool) -> str:
    """The folder of that node's session, made now."""
    if not keeps:
        return env_folders.job_folder(f"{node_id[:16]}-submitted")
    sessions = os.path.join(own_folders.state_folder(), "sessions")
    made = os.path.join(sessions, node_id[:16])
    own_folders.make_closed(made)
    for old in sorted(os.listdir(sessions), key=lambda name: _age(sessions, name))[SESSIONS_KEPT:]:
        shutil.rmtree(os.path.join(sessions, old), ignore_errors=True)
    return made


def _age(sessions: str, name: str) -> float:
    with contextlib.suppress(OSError):
        return -os.stat(os.path.join(sessions, name)).st_mtime
    return 0.0
