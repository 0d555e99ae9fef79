"""A node with nothing to do costs nothing: no CPU, few threads, little memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import weft
from waiting import comes_true
from weft.engine.process.session import rpc

IDLE_S = 2.0
MOST_TICKS = 3
"""Of a hundredth of a second, of all processes together, in IDLE_S."""
MOST_THREADS = 4
MOST_WORKER_BYTES = 40 << 20
HANG_S = 60.0


@pytest.fixture(scope="module")
def node() -> Iterator[dict[str, list[int]]]:
    """A node that has worked: its processes by what they are."""
    weft.init(num_cpus=2)
    try:
        yield work()
    finally:
        weft.shutdown()


@weft.remote
def double(x: int) -> int:
    return 2 * x


@weft.remote
class Actor:
    def put(self, size: int) -> list[Any]:
        return [weft.put(bytes(size))]


actor_kept: list[Any] = []


def work() -> dict[str, list[int]]:
    """Tasks, an actor, large objects; then the pids of driver, daemon, zygote and workers."""
    actor = Actor.remote()
    assert weft.get([double.remote(x) for x in range(1000)]) == [2 * x for x in range(1000)]
    [ref] = weft.get(actor.put.remote(1 << 20))
    assert len(weft.get(ref)) == 1 << 20
    actor_kept[:] = [actor, ref]
    daemon = rpc.request("statistics")["daemon_pid"]
    zygote = psutil.Process(daemon).children()
    return {
        "driver": [os.getpid()],
        "daemon": [daemon],
        "zygote": [child.pid for child in zygote],
        "worker": [worker["pid"] for worker in rpc.request("workers") if worker["pid"]],
    }


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    yield
    actor_kept.clear()


def threads(pid: int) -> list[str]:
    """Their names."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            names.append(path.read_text().strip())
    return names


def ticks(pid: int) -> int:
    """User and system time; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def is_idle_for_a_while(pids: list[int]) -> bool:
    before = {pid: ticks(pid) for pid in pids}
    threading.Event().wait(IDLE_S)
    return sum(max(0, ticks(pid) - before[pid]) for pid in pids) <= MOST_TICKS


def test_an_idle_node_uses_no_cpu(node: dict[str, list[int]]) -> None:
    pids = [pid for group in node.values() for pid in group if psutil.pid_exists(pid)]
    assert comes_true(lambda: is_idle_for_a_while(pids)), {pid: ticks(pid) for pid in pids}


def test_a_driver_in_get_uses_no_cpu_while_it_waits(node: dict[str, list[int]], tmp_path: Path) -> None:
    @weft.remote
    def wait_for(path: str) -> str:
        """A fifo: opening it waits for the other end."""
        with open(path) as fifo:
            return fifo.read()

    path = tmp_path / "fifo"
    os.mkfifo(path)
    answers: list[str] = []
    getter = threading.Thread(target=lambda: answers.append(weft.get(wait_for.remote(str(path)))))
    getter.start()
    assert comes_true(lambda: weft.available_resources().get("CPU", 0.0) < 2)
    pids = [os.getpid(), *node["daemon"], *(worker["pid"] for worker in rpc.request("workers") if worker["pid"])]
    is_idle = comes_true(lambda: is_idle_for_a_while(pids))
    path.write_text("go on")
    getter.join()
    assert answers == ["go on"]
    assert is_idle


@pytest.mark.parametrize("role", ["daemon", "zygote", "worker"])
def test_a_process_has_few_threads(node: dict[str, list[int]], role: str) -> None:
    pids = [pid for pid in node[role] if psutil.pid_exists(pid)]
    assert pids
    assert all(len(threads(pid)) <= MOST_THREADS for pid in pids), {pid: threads(pid) for pid in pids}
    if role == "zygote":
        assert all(len(threads(pid)) == 1 for pid in pids), "it forks: it must have one thread"


def test_a_driver_gets_few_threads_with_its_session() -> None:
    """In a process of its own: a test's process has threads of its test tools."""
    program = """if True:
        import os, weft
        before = set(os.listdir("/proc/self/task"))
        weft.init(num_cpus=2)
        weft.get([weft.remote(lambda x: x).remote(i) for i in range(100)])
        weft.nodes()
        print(*(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")
                if task not in before))
        weft.shutdown()
        print(len(os.listdir("/proc/self/task")) - len(before))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=True)
    names, left = done.stdout.splitlines()
    assert len(names.split()) <= MOST_THREADS, names
    assert left == "0", "threads outlive the session"


def test_an_idle_worker_takes_little_more_memory_than_a_bare_python(node: dict[str, list[int]]) -> None:
    bare = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert bare.stdin is not None and bare.stdout is not None
    with bare, bare.stdin:
        bare.stdout.readline()
        floor = psutil.Process(bare.pid).memory_full_info()
    for pid in [worker["pid"] for worker in rpc.request("workers") if worker["pid"]]:
        try:
            memory = psutil.Process(pid).memory_full_info()
        except psutil.NoSuchProcess:
            continue  # an idle worker that was not needed ended meanwhile
        assert memory.uss - floor.uss < MOST_WORKER_BYTES, memory
        assert memory.pss - floor.pss < MOST_WORKER_BYTES, memory


def test_workers_that_were_needed_for_a_moment_do_not_pile_up(node: dict[str, list[int]]) -> None:
    """Tasks that wait for tasks need more workers than CPUs; afterwards the pool shrinks again, or is reused."""

    @weft.remote
    def deep(depth: int) -> int:
        return 0 if depth == 0 else 1 + weft.get(deep.remote(depth - 1))

    for _ in range(3):
        assert weft.get(deep.remote(10)) == 10
    assert len(rpc.request("workers")) <= 20
