"""The environment that something submitted here will run in: its own, over what this process runs in.

Runs on the thread that submits, once per session for each environment. Local folders are copied here.
"""

from __future__ import annotations

import threading
from typing import Any

from weft import _native
from weft.engine.process.session import cluster, context_state
from weft.environments import env_folders, packages
from weft.environments.merge import canonical, merge, parse

_lock = threading.Lock()
_known: dict[tuple[int, str, str], str] = {}


def effective(asked: str) -> str:
    """As canonical JSON. Raises ValueError or OSError when a local folder cannot be copied."""
    own = context_state.here().runtime_env
    if not asked:
        return own
    key = (_native.session(), own, asked)
    with _lock:
        if key not in _known:
            for stale in [other for other in _known if other[0] != key[0]]:
                del _known[stale]
            _known[key] = canonical(merge(parse(own), with_copies(parse(asked))))
        return _known[key]


def with_copies(env: dict[str, Any]) -> dict[str, Any]:
    """With copies in place of local folders; they are what workers see."""
    if "working_dir" not in env and "py_modules" not in env:
        return env
    made = dict(env)
    excludes = made.pop("excludes", [])
    state = context_state.state
    folder = env_folders.job_folder(f"{cluster.own_node_id()[:16]}-{state.job}")
    if "working_dir" in env:
        made["working_dir"] = packages.copy_working_dir(env["working_dir"], excludes, folder)
    if "py_modules" in env:
        made["py_modules"] = [packages.copy_module(path, excludes, folder) for path in env["py_modules"]]
    return made
