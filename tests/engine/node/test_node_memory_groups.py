"""Groups are made, limited and removed, over a tree of files that behaves as the kernel's does.

What the kernel itself does with them is in tests/faults/test_memory_limits.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.engine.node import memory_groups
from weft.engine.node.memory_groups import MemoryGroups, limits_granted
from weft.engine.state.events import Process
from weft.engine.state.memory_groups import SLACK_BYTES, Grant, Refusal
from weft.engine.state.memory_pressure import StoppedForMemory
from weft.net.loop import Loop

MIB = 1 << 20
ARENA = 500 * MIB
FILES = (
    "cgroup.procs cgroup.subtree_control pids.max memory.max memory.high memory.swap.max memory.oom.group "
    "memory.events memory.stat memory.current memory.peak"
).split()
WORKER: Process = (3, 1)


class Tree:
    """A parent in which a folder comes with its files, and goes with them unless a process is in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.populate(root)

    def populate(self, folder: Path) -> None:
        for name in FILES:
            (folder / name).write_text("")

    def make(self, path: str) -> None:
        Path(path).mkdir()
        self.populate(Path(path))

    def remove(self, path: str) -> bool:
        folder = Path(path)
        if (folder / "cgroup.procs").read_text() or any(one.is_dir() for one in folder.iterdir()):
            return False
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()
        return True

    @property
    def nodes(self) -> list[Path]:
        return [one for one in self.root.iterdir() if one.is_dir()]

    @property
    def worker(self) -> Path:
        (node,) = self.nodes
        return node / "3-1"

    def says(self, worker: Path, **values: str) -> None:
        for name, text in values.items():
            (worker / f"memory.{name}").write_text(text)


class NoEvents(Loop):
    """Files of a plain file system cannot be waited for."""

    def watch(self, fd: int, callback: object, events: int = 0) -> None:
        self.look = callback

    def unwatch(self, fd: int) -> None:
        self.look = None


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    tree = Tree(tmp_path)
    monkeypatch.setattr(memory_groups, "_make", tree.make)
    monkeypatch.setattr(memory_groups, "_remove", tree.remove)
    return tree


@pytest.fixture
def loop() -> Iterator[NoEvents]:
    loop = NoEvents()
    yield loop
    loop.close()


Stops = list[tuple[Process, StoppedForMemory]]


@pytest.fixture
def stops() -> Stops:
    return []


@pytest.fixture
def groups(tree: Tree, loop: NoEvents, stops: Stops) -> MemoryGroups:
    grant = Grant(str(tree.root), enables_memory=True, most_processes="99")
    return MemoryGroups(loop, grant, "ab" * 16, ARENA, lambda *stop: stops.append(stop))


def test_nothing_is_made_until_memory_is_declared(groups: MemoryGroups, tree: Tree) -> None:
    groups.limit(WORKER, 7, 0)
    assert tree.nodes == []
    groups.close()


def test_a_worker_is_put_into_a_group_with_the_limits_of_its_work(groups: MemoryGroups, tree: Tree) -> None:
    groups.limit(WORKER, 7, 100 * MIB)
    (node,) = tree.nodes
    assert [(one / "cgroup.subtree_control").read_text() for one in (tree.root, node)] == ["+memory", "+memory"]
    assert (node / "pids.max").read_text() == "99"
    assert (tree.worker / "cgroup.procs").read_text() == "7"
    assert (tree.worker / "memory.high").read_text() == str(100 * MIB + SLACK_BYTES)
    assert (tree.worker / "memory.max").read_text() == str(100 * MIB + SLACK_BYTES + ARENA)
    groups.limit(WORKER, 7, 0)
    assert (tree.worker / "memory.max").read_text().startswith("max")
    (tree.worker / "cgroup.procs").write_text("")
    groups.close()
    assert tree.nodes == []
    assert (tree.root / "cgroup.subtree_control").read_text() == "-memory"


def test_a_worker_that_is_on_its_way_is_put_there_when_it_comes(groups: MemoryGroups, tree: Tree) -> None:
    groups.limit(WORKER, 0, 100 * MIB)
    assert (tree.worker / "cgroup.procs").read_text() == ""
    groups.forked(WORKER, 8)
    assert (tree.worker / "cgroup.procs").read_text() == "8"
    (tree.worker / "cgroup.procs").write_text("")
    groups.close()


def test_the_limit_follows_the_arena_and_stops_who_takes_more(
    groups: MemoryGroups, tree: Tree, loop: NoEvents, stops: Stops
) -> None:
    groups.limit(WORKER, 7, 100 * MIB)
    tree.says(tree.worker, current=str(250 * MIB), stat=f"file {200 * MIB}\nshmem {200 * MIB}")
    loop.look()
    assert (tree.worker / "memory.high").read_text() == str(300 * MIB + SLACK_BYTES)
    assert stops == []
    tree.says(tree.worker, current=str(301 * MIB))
    loop.look()
    ((process, why),) = stops
    assert process == WORKER
    assert why.text.startswith("stopped for memory: pid 7 held 101 MiB (peak 101 MiB)")
    (tree.worker / "cgroup.procs").write_text("")
    groups.close()


def test_a_kill_by_the_kernel_is_told_with_the_peak(groups: MemoryGroups, tree: Tree) -> None:
    groups.limit(WORKER, 7, 100 * MIB)
    tree.says(tree.worker, events="oom 1\noom_kill 1", peak=str(180 * MIB))
    (tree.worker / "cgroup.procs").write_text("")
    killed = groups.exited(WORKER, 7)
    assert killed is not None and killed.peak_bytes == 180 * MIB
    assert killed.text.startswith("stopped for memory: pid 7 was killed by the kernel (peak 180 MiB)")
    assert groups.exited(WORKER, 7) is None, "it is told once"
    groups.close()
    assert tree.nodes == []


def test_a_group_stays_while_what_its_worker_started_runs(groups: MemoryGroups, tree: Tree) -> None:
    groups.limit(WORKER, 7, 100 * MIB)
    left = tree.worker
    assert groups.exited(WORKER, 7) is None
    assert left.exists()
    groups.limit((4, 1), 8, 100 * MIB)
    (left / "cgroup.procs").write_text("")
    (left.parent / "4-1" / "cgroup.procs").write_text("")
    groups.exited((4, 1), 8)
    assert not left.exists(), "it goes with the next one"
    groups.close()


def test_what_a_killed_node_left_goes_at_the_next_start_and_what_a_living_one_has_stays(
    tree: Tree, loop: NoEvents, groups: MemoryGroups
) -> None:
    tree.make(f"{tree.root}/weft-dead")
    tree.make(f"{tree.root}/weft-dead/5-1")
    tree.make(f"{tree.root}/others")
    groups.limit(WORKER, 7, 100 * MIB)
    another = MemoryGroups(loop, Grant(str(tree.root)), "cd" * 16, ARENA, lambda *_: None)
    assert {one.name for one in tree.nodes} == {"others", "weft-abababababababab"}
    another.close()
    (tree.root / "weft-abababababababab" / "3-1" / "cgroup.procs").write_text("")
    groups.close()


def test_limits_that_can_not_be_set_are_given_up_with_one_word(
    groups: MemoryGroups, tree: Tree, capfd: pytest.CaptureFixture[str]
) -> None:
    os.unlink(tree.root / "cgroup.subtree_control")
    groups.limit(WORKER, 7, 100 * MIB)
    groups.limit((4, 1), 8, 100 * MIB)
    told = capfd.readouterr().err
    assert told.count("weft: workers get no memory limits of their own any more: ") == 1
    assert "cgroup.subtree_control" in told
    groups.close()


def test_they_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_MEMORY_GROUPS", "0")
    assert limits_granted() == Refusal("WEFT_MEMORY_GROUPS is 0")
