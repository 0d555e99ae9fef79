"""What is read of the machine's and the control group's memory."""

from __future__ import annotations

import os
from pathlib import Path

from weft.engine.node.memory import group_usage, machine_usage, private_bytes
from weft.engine.state.memory_pressure import Usage


def write(folder: Path, files: dict[str, str]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder)


def test_caches_of_files_are_not_counted_as_used(tmp_path: Path) -> None:
    files = {"memory.max": "1000\n", "memory.current": "900\n"}
    files["memory.stat"] = "anon 300\ninactive_file 200\nactive_file 100\nshmem 50\n"
    assert group_usage(5000, write(tmp_path, files)) == Usage(600, 1000)


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    files = {"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "900\n"}
    files["memory.stat"] = "cache 5\ninactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n"
    write(tmp_path / "memory", files)
    assert group_usage(5000, str(tmp_path)) == Usage(600, 1000)


def test_a_group_without_a_limit_of_its_own_says_nothing(tmp_path: Path) -> None:
    assert group_usage(5000, write(tmp_path, {"memory.max": "max\n"})) is None
    assert group_usage(5000, write(tmp_path, {"memory.max": "9000\n"})) is None
    assert group_usage(5000, str(tmp_path / "nothing")) is None


def test_the_machines_own_memory_is_read() -> None:
    usage = machine_usage()
    assert 0 < usage.used_bytes < usage.limit_bytes
    assert private_bytes(os.getpid()) > 0
    assert private_bytes(2**22 + 1) == 0
