"""Sessions for tests, and a check after every test that nothing of Weft outlives its session.

This process adopts orphans (PR_SET_CHILD_SUBREAPER), so a worker whose parent died is still seen as a child here.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from waiting import comes_true

LEAK_DEADLINE_S = 30.0
"""What ends by itself has ended by then, on a machine that is busy with other tests."""
PR_SET_CHILD_SUBREAPER = 36

ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, whose children ignore it as well
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def weft_session() -> Iterator[ModuleType]:
    """Weft with two CPUs, for this test alone."""
    yield from _session()


@pytest.fixture(scope="module")
def shared_weft_session() -> Iterator[ModuleType]:
    """Weft with two CPUs, for all tests of a module that do no harm to it."""
    yield from _session()


def _session() -> Iterator[ModuleType]:
    import weft

    weft.init(num_cpus=2)
    try:
        yield weft
    finally:
        weft.shutdown()


@pytest.fixture(autouse=True, scope="module")
def _no_leaks_in_module() -> Iterator[None]:
    yield from _leak_check()


@pytest.fixture(autouse=True)
def _no_leaks_in_test(_no_leaks_in_module: None) -> Iterator[None]:
    yield from _leak_check()


def _leak_check() -> Iterator[None]:
    """Compare what the process holds before and after; a session that was there before may stay."""
    if _is_initialized():
        yield
        assert _is_initialized(), "the test ended a session that it shares with others"
        return
    children_before = set(_children())
    descriptors_before = _descriptors()
    yield
    assert not _is_initialized(), "the test left Weft initialised: call weft.shutdown() or use weft_session"
    children = [child for child in _children() if child not in children_before]
    _, alive = psutil.wait_procs(children, timeout=LEAK_DEADLINE_S)
    assert not alive, f"processes left behind: {[_describe(child) for child in alive]}"
    assert comes_true(lambda: not _weft_threads(), LEAK_DEADLINE_S), f"threads left behind: {_weft_threads()}"
    if len(_descriptors()) > len(descriptors_before):
        gc.collect()
        extra = {number: target for number, target in _descriptors().items() if number not in descriptors_before}
        assert comes_true(lambda: len(_descriptors()) <= len(descriptors_before), LEAK_DEADLINE_S), (
            f"descriptors left open: {extra}"
        )


def _is_initialized() -> bool:
    weft = sys.modules.get("weft")
    return weft is not None and hasattr(weft, "is_initialized") and weft.is_initialized()


def _children() -> list[psutil.Process]:
    """All processes below this one. Most tests have none, which the kernel says at once; psutil looks at every process
    of the machine."""
    try:
        if not any((task / "children").read_text() for task in Path("/proc/self/task").iterdir()):
            return []
    except OSError:
        pass  # a thread ended meanwhile, or the kernel has no such lists
    return psutil.Process().children(recursive=True)


def _weft_threads() -> list[str]:
    """Python's threads by name and native ones by what the kernel calls them."""
    names = [thread.name for thread in threading.enumerate()]
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue  # it ended meanwhile
    return [name for name in names if name.startswith("weft")]


def _descriptors() -> dict[int, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the listing's own descriptor
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid} gone"
