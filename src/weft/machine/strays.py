"""Processes that tasks and actors have started by themselves: they end with their node.

The zygote adopts what a dead worker leaves, and the daemon, when it ends, what the zygote leaves; it kills those before
it goes. A daemon that is killed cannot: what its tasks had started is found by a variable in its environment
(`weft doctor`). It names the daemon by its pid and the time at which that began, as pids are used again.
"""

from __future__ import annotations

import contextlib
import os
import signal

VARIABLE = "WEFT_NODE_PROCESS"
_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> None:
    """Orphans below this process become its children."""
    import ctypes  # which costs a node that starts some milliseconds

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def mark(daemon_pid: int) -> None:
    """What this process starts from now on belongs to that daemon."""
    os.environ[VARIABLE] = f"{daemon_pid}-{_began(daemon_pid)}"


def children() -> set[int]:
    """Of all threads of this process; none where the kernel does not tell."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            found.update(map(int, file.read().split()))
    return found


def end_adopted(own: set[int]) -> None:
    """Kill all children but these, and what they leave in turn."""
    while adopted := children() - own:
        for pid in adopted:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def find() -> dict[int, str]:
    """This user's processes whose daemon is gone: by pid, their names."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                _, _, rest = (b"\0" + file.read()).partition(f"\0{VARIABLE}=".encode())
            pid, _, began = rest.partition(b"\0")[0].decode().partition("-")
            if pid.isdigit() and _began(int(pid)) != began:
                with open(f"/proc/{name}/comm", errors="replace") as file:
                    found[int(name)] = file.read().strip()
    return found


def _began(pid: int) -> str:
    """In ticks since the machine started; empty when there is no such process, or it only waits to be buried."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]
