"""Workers are held to the memory that they declare, by the kernel, where this machine lets them be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
from waiting import wait_until
from weft.engine.node.memory_groups import limits_granted
from weft.engine.state.memory_groups import PREFIX, Grant
from weft.exceptions import ActorDiedError, OutOfMemoryError

GRANTED = limits_granted()
pytestmark = pytest.mark.skipif(
    not isinstance(GRANTED, Grant), reason=f"limits are not granted here: {getattr(GRANTED, 'why', '')}"
)
DECLARED = 100 << 20


@pytest.fixture(autouse=True)
def _session() -> Iterator[None]:
    weft.init(num_cpus=2, object_store_memory=512 << 20, resources={"memory": 2 << 30})
    yield
    weft.shutdown()
    assert groups() == [], "a group is left"


def groups() -> list[Path]:
    assert isinstance(GRANTED, Grant)
    return list(Path(GRANTED.parent).glob(f"{PREFIX}*"))


def hold(bytes_: int) -> int:
    return len(bytearray(b"x") * bytes_)


def own_group() -> str:
    return Path("/proc/self/cgroup").read_text()


def test_a_task_that_takes_more_than_it_declared_is_stopped_and_says_so() -> None:
    greedy = weft.remote(memory=DECLARED, max_retries=0)(hold)
    with pytest.raises(OutOfMemoryError, match=r"\(peak \d+ MiB\), but its work declared a memory of 100 MiB"):
        weft.get(greedy.remote(3 * DECLARED))


def test_it_is_tried_again_with_more_memory_until_that_is_enough() -> None:
    greedy = weft.remote(memory=DECLARED, max_retries=3)(hold)
    assert weft.get(greedy.remote(2 * DECLARED)) == 2 * DECLARED


def test_an_actor_is_held_to_what_it_declared() -> None:
    @weft.remote(memory=DECLARED)
    class Greedy:
        def hold(self, bytes_: int) -> int:
            return hold(bytes_)

    actor = Greedy.remote()
    assert weft.get(actor.hold.remote(DECLARED // 4)) == DECLARED // 4
    with pytest.raises(ActorDiedError, match=r"stopped for memory: .* but its work declared a memory of 100 MiB"):
        weft.get(actor.hold.remote(3 * DECLARED))


def test_what_a_task_writes_into_the_arena_is_not_its_own() -> None:
    @weft.remote(memory=DECLARED, max_retries=0)
    def make() -> list[weft.ObjectRef[np.ndarray]]:
        return [weft.put(np.ones(40 << 20, dtype=np.uint8)) for _ in range(6)]

    assert sum(int(part[-1]) for part in weft.get(weft.get(make.remote()))) == 6


def test_work_that_declares_nothing_has_no_limit_and_no_group() -> None:
    before = own_group()
    assert weft.get(weft.remote(own_group).remote()) == before
    assert groups() == []


def test_a_worker_that_is_used_again_is_held_to_what_its_new_work_declares() -> None:
    @weft.remote(max_retries=0)
    def at_work(bytes_: int) -> tuple[int, int]:
        return os.getpid(), hold(bytes_)

    first, _ = weft.get(at_work.options(memory=DECLARED).remote(1))
    wait_until(lambda: weft.available_resources()["memory"] == weft.cluster_resources()["memory"])
    second, held = weft.get(at_work.remote(3 * DECLARED))
    assert (first, held) == (second, 3 * DECLARED), "the limit was lifted"
    wait_until(lambda: weft.available_resources()["CPU"] == 2)
    with pytest.raises(OutOfMemoryError):
        weft.get(at_work.options(memory=DECLARED).remote(3 * DECLARED))


def test_a_killed_nodes_groups_are_removed_at_the_next_start() -> None:
    program = f"""
import os, signal, weft
weft.init(num_cpus=1, resources={{"memory": {4 * DECLARED}}})
weft.get(weft.remote(memory={DECLARED})(lambda: 1).remote())
print(os.popen(f"pgrep -x weft-node --parent {{os.getpid()}}").read().strip(), flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        daemon = int(driver.stdout.readline())
        assert len(groups()) == 1
        os.kill(daemon, signal.SIGKILL)
        driver.kill()
    wait_until(lambda: not any("populated 1" in (one / "cgroup.events").read_text() for one in groups()))
    weft.shutdown()
    weft.init(num_cpus=1)
    wait_until(lambda: groups() == [])
