"""Waiting for states that no handle can be waited on, and looking at processes that may end meanwhile: counts and
deaths of other processes arrive when they arrive."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

HANG_S = 60.0
"""When what does not come is taken to never come, on a machine that is busy with other things."""


def comes_true(condition: Callable[[], object], timeout_s: float = HANG_S) -> bool:
    """Whether it does, now or before the deadline; it is asked again and again."""
    deadline = time.monotonic() + timeout_s
    tick = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        tick.wait(0.01)
    return True


def wait_until(condition: Callable[[], object], timeout_s: float = HANG_S) -> None:
    """TimeoutError when it does not come true."""
    if not comes_true(condition, timeout_s):
        raise TimeoutError(f"{condition} is still not true after {timeout_s:g} s")


def meet(folder: Path, name: str, count: int) -> None:
    """Leave a name in the folder and return once it has so many: for those who must run at the same time."""
    (folder / name).touch()
    wait_until(lambda: len(os.listdir(folder)) >= count)


def those(processes: Iterable[psutil.Process], condition: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The processes for which it holds; one that has ended since it was listed is none of them."""
    found = []
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if condition(one):
                found.append(one)
    return found


def children_named(pid: int, name: str) -> list[psutil.Process]:
    """The zygote, or the server of the control store, of the daemon with that pid."""
    return those(psutil.Process(pid).children(), lambda one: one.name() == name)
