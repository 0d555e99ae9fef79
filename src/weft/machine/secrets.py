"""Secrets that a node is given in its environment: taken out of it before any code of users runs.

Runs in the daemon before it forks the zygote. Removing a variable is not enough: /proc/PID/environ shows the memory
that the process began with, and a fork has a copy of it; so that memory is overwritten.
"""

from __future__ import annotations

import os

TOKEN, STORE, DASHBOARD_TOKEN = "WEFT_TOKEN", "WEFT_STORE", "WEFT_DASHBOARD_TOKEN"
NAMES = (TOKEN, STORE, DASHBOARD_TOKEN)
_taken: dict[str, str] = {}


def take() -> None:
    """Out of the environment; `given` knows them from now on, in this process."""
    present = [name for name in NAMES if os.environ.get(name)]
    if not present:
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in present:
        where = libc.getenv(name.encode())
        _taken[name] = os.environ[name]
        del os.environ[name]
        if where:
            ctypes.memset(where, 0, len(os.fsencode(_taken[name])))


def given(name: str) -> str:
    """What the environment says, or said before it was taken; empty when nothing."""
    return _taken.get(name) or os.environ.get(name, "")


def forget() -> None:
    """In a fork that runs code of users."""
    _taken.clear()
