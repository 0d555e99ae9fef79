"""`weft doctor`: whether this machine can run Weft well, and what to do where it cannot.

Each check looks at one thing and gives a verdict. The last one starts a session and uses it. Nothing is changed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import mmap
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict

from weft.cli import security
from weft.cli.options import Commands, add_command, add_json, print_json, size
from weft.cli.verdicts import FAILURE, OK, WARNING, Verdict
from weft.dashboard.profile import py_spy
from weft.engine.node.config import NodeConfig, decide, read_text
from weft.engine.node.memory_groups import limits_granted
from weft.engine.state.memory_groups import Grant, Refusal
from weft.machine import strays

FEW_FILES = 4096
"""A daemon has two descriptors for each worker and one for each link; programs have their own."""
LITTLE_DISK_BYTES = 1 << 30
LITTLE_MEMORY_BYTES = 2 << 30
PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
SYS_PTRACE = 1 << 19
"""The capability, as a bit of CapEff."""


def add(commands: Commands) -> None:
    doctor = add_command(
        commands,
        "doctor",
        _doctor,
        "check this machine and say what is wrong",
        "Looks at what Weft needs of this machine, says what would go wrong and what to do, then starts a session and "
        "uses it. Ends with 1 when something fails.",
        "weft doctor\nweft doctor --security\nweft doctor --json",
    )
    doctor.add_argument(
        "--security",
        action="store_true",
        help="look at the nodes that run here instead: ports, tokens, what strangers see",
    )
    add_json(doctor)


def _doctor(options: argparse.Namespace) -> int:
    verdicts = []
    for verdict in security.examine() if options.security else examine():
        verdicts.append(verdict)
        if not options.json:
            print(f"  {verdict.level:8} {verdict.subject:18} {verdict.finding}", flush=True)
            if verdict.advice:
                print(f"  {'':27} {verdict.advice}", flush=True)
    if options.json:
        print_json([asdict(verdict) for verdict in verdicts])
    return 1 if any(verdict.level == FAILURE for verdict in verdicts) else 0


def examine() -> Iterator[Verdict]:
    """All checks, in an order in which the first failure explains the others."""
    yield python_version(sys.version_info[:3], platform.system())
    core = native_core()
    yield core
    if core.level == FAILURE:
        return
    offer = decide(NodeConfig())
    memory = offer.total["memory"] + offer.object_store_bytes
    yield machine(offer.total["CPU"], memory, offer.object_store_bytes)
    yield memory_limits(limits_granted())
    yield shared_memory()
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield disk(tempfile.gettempdir(), shutil.disk_usage(tempfile.gettempdir()).free, offer.object_store_bytes)
    yield stacks(read_text(PTRACE_SCOPE), _capabilities(), _has_py_spy())
    yield gpus(offer.gpu_ids, os.environ.get("CUDA_VISIBLE_DEVICES"))
    yield libraries()
    yield leftovers(strays.find())
    yield session()


def python_version(version: tuple[int, ...], system: str) -> Verdict:
    shown = f"Python {'.'.join(map(str, version))} on {system}"
    if system != "Linux":
        return Verdict("python", FAILURE, shown, "Weft runs on Linux; on other systems use a container or WSL")
    if version < (3, 10):
        return Verdict("python", FAILURE, shown, "Weft needs Python 3.10 or newer")
    return Verdict("python", OK, shown)


def native_core() -> Verdict:
    try:
        from weft import _native
    except ImportError as error:
        return Verdict(
            "native core", FAILURE, str(error), "build it for this Python: pip install --force-reinstall weft"
        )
    return Verdict("native core", OK, os.path.basename(_native.__file__ or "built in"))


def machine(cpus: float, memory: float, store: int) -> Verdict:
    found = f"{cpus:g} CPU, {size(memory)} of memory, {size(store)} of it for objects"
    if memory < LITTLE_MEMORY_BYTES:
        return Verdict("machine", WARNING, found, "little memory: each worker is a Python process of its own")
    return Verdict("machine", OK, found)


def memory_limits(granted: Grant | Refusal) -> Verdict:
    """Whether the kernel holds workers to the memory that they declare."""
    if isinstance(granted, Grant):
        return Verdict("memory limits", OK, f"granted: workers with memory= get groups below {granted.parent}")
    return Verdict("memory limits", OK, f"not granted, so only the node's are watched: {granted.why}", granted.advice)


def shared_memory() -> Verdict:
    try:
        descriptor = os.memfd_create("weft-doctor", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, 1 << 20)
            with mmap.mmap(descriptor, 1 << 20) as view:
                view[:4] = b"weft"
        finally:
            os.close(descriptor)
    except OSError as error:
        advice = "the kernel or a sandbox forbids memfd_create: allow it in the container's seccomp profile"
        return Verdict("shared memory", FAILURE, str(error), advice)
    return Verdict("shared memory", OK, "memfd_create and mmap work")


def open_files(limit: int) -> Verdict:
    if limit != resource.RLIM_INFINITY and limit < FEW_FILES:
        advice = f"enough for small programs; with hundreds of workers raise it: ulimit -n {16 * FEW_FILES}"
        return Verdict("open files", WARNING, f"at most {limit}", advice)
    return Verdict("open files", OK, "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit}")


def disk(folder: str, free: int, store: int) -> Verdict:
    found = f"{size(free)} free in {folder}, where objects go when memory is full"
    if free < max(LITTLE_DISK_BYTES, store // 4):
        return Verdict("disk", WARNING, found, "little to spill to: set TMPDIR to a folder on a larger disk")
    return Verdict("disk", OK, found)


def stacks(ptrace_scope: str, capabilities: int, has_py_spy: bool) -> Verdict:
    """Whether `weft stack --py-spy` can look into other processes."""
    if not has_py_spy:
        return Verdict(
            "stacks", WARNING, "py-spy is not installed", "for `weft stack --py-spy`: pip install 'weft[observe]'"
        )
    if ptrace_scope not in ("", "0") and not capabilities & SYS_PTRACE:
        advice = "for `weft stack --py-spy`: sysctl kernel.yama.ptrace_scope=0, or run it with sudo"
        return Verdict("stacks", WARNING, f"ptrace_scope is {ptrace_scope}", advice)
    return Verdict("stacks", OK, "py-spy can read other processes")


def gpus(ids: tuple[int, ...], variable: str | None) -> Verdict:
    limited = f" (CUDA_VISIBLE_DEVICES={variable})" if variable is not None else ""
    return Verdict("gpus", OK, f"{len(ids) or 'none'}{limited}")


def leftovers(found: dict[int, str]) -> Verdict:
    """What tasks had started on nodes that were killed."""
    if not found:
        return Verdict("leftovers", OK, "no process is left of a node that was killed")
    shown = ", ".join(f"{pid} ({name})" for pid, name in list(found.items())[:10])
    advice = f"started by tasks of nodes that were killed; to end them: kill {' '.join(map(str, list(found)[:10]))}"
    return Verdict("leftovers", WARNING, f"{len(found)} process{'es' * (len(found) > 1)}: {shown}", advice)


def libraries() -> Verdict:
    """Which extras have all that they need."""
    complete, missing = extras()
    found = f"ready: {', '.join(complete) or 'none'}"
    advice = f"pip install 'weft[{missing[0]}]' and the like for: {', '.join(missing)}; 'weft[all]' for all"
    return Verdict("libraries", OK, found, advice if missing else "")


def extras() -> tuple[list[str], list[str]]:
    """(those that have all that they need, the others)"""
    wanted: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("weft") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if name and extra and name[0] != "weft":  # which is how the extra "all" names the others
            wanted.setdefault(extra[1], []).append(name[0])
    complete = [extra for extra, names in wanted.items() if all(_is_installed(name) for name in names)]
    return complete, [extra for extra in wanted if extra not in complete]


def session() -> Verdict:
    """Start one, run a task and an actor, pass an array, end it."""
    import numpy as np

    import weft

    def total(array: object) -> int:
        return int(np.asarray(array).sum())

    class Counter:
        def next(self) -> int:
            return 1

    begun = time.perf_counter()
    try:
        weft.init(log_to_driver=False)
        started = time.perf_counter()
        array = weft.put(np.ones(1 << 20, dtype=np.uint8))
        answers: list[int] = weft.get(
            [weft.remote(total).remote(array), weft.remote(Counter).remote().next.remote()], timeout=60
        )
        ended = time.perf_counter()
    except Exception as error:
        return Verdict("session", FAILURE, f"{type(error).__name__}: {error}", "the logs are in `weft logs`")
    finally:
        weft.shutdown()
    if answers != [1 << 20, 1]:
        return Verdict("session", FAILURE, f"wrong answers: {answers}", "this is a bug of Weft: please report it")
    start_ms, use_ms = 1000 * (started - begun), 1000 * (ended - started)
    return Verdict("session", OK, f"started in {start_ms:.0f} ms; a task, an actor and an array in {use_ms:.0f} ms")


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _has_py_spy() -> bool:
    try:
        py_spy()
    except LookupError:
        return False
    return True


def _capabilities() -> int:
    for line in read_text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
