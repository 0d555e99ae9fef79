"""Where workers may have control groups, over trees of files as machines have them; and what is too much."""

from __future__ import annotations

import pytest

from weft.engine.state.memory_groups import (
    NO_MOUNT,
    SLACK_BYTES,
    Grant,
    Limit,
    Reading,
    Refusal,
    decide,
    own_folder,
    reading,
)
from weft.engine.state.memory_pressure import SMALLEST_BYTES

MIB = 1 << 20
ALL = "cpuset cpu io memory hugetlb pids rdma misc"
MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
HYBRID_MOUNTS = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" + MOUNT.replace(
    "/cgroup rw", "/cgroup/unified rw"
)


def decided(
    files: dict[str, str], writable: str = "", membership: str = "0::/", mounts: str = MOUNT
) -> Grant | Refusal:
    """Files are named below /sys/fs/cgroup. Whatever is at or below `writable` may be written."""
    tree = {f"/sys/fs/cgroup{path}": text for path, text in files.items()}
    tree |= {"/proc/self/cgroup": membership, "/proc/self/mountinfo": mounts}

    def may_write(path: str) -> bool:
        return bool(writable) and f"{path}/".startswith(f"/sys/fs/cgroup{writable}/".replace("//", "/"))

    return decide(lambda path: tree.get(path, ""), may_write)


def group(path: str, controllers: str = ALL, handed_on: str = "", processes: str = "", **files: str) -> dict[str, str]:
    named = {name.replace("_", "."): text for name, text in files.items()}
    named |= {"cgroup.controllers": controllers, "cgroup.subtree_control": handed_on, "cgroup.procs": processes}
    return {f"{path}/{name}": text for name, text in ({"cgroup.type": "domain"} | named).items()}


USER = "/user.slice/user-1000.slice/user@1000.service"
DESKTOP = (
    group("", handed_on="cpu memory pids")
    | group("/user.slice", handed_on="cpu memory pids")
    | group("/user.slice/user-1000.slice", handed_on="cpu memory pids")
    | group(USER, "cpu memory pids", "cpu memory pids")
    | group(f"{USER}/app.slice", "cpu memory pids", "memory pids")
    | group(f"{USER}/app.slice/terminal.scope", "memory pids", "", "812\n813", memory_max="max", pids_max="18937")
)


def test_a_desktops_session_makes_groups_beside_its_own_and_no_more_processes_than_it_may() -> None:
    at = f"0::{USER}/app.slice/terminal.scope"
    assert decided(DESKTOP, USER, at) == Grant(f"/sys/fs/cgroup{USER}/app.slice", most_processes="18937")


def test_a_session_that_is_logged_in_by_ssh_is_not_the_users_own() -> None:
    files = DESKTOP | group("/user.slice/user-1000.slice/session-3.scope", "memory pids", "", "900")
    found = decided(files, USER, "0::/user.slice/user-1000.slice/session-3.scope")
    assert isinstance(found, Refusal)
    assert found.why == "this user may not write to /sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"
    assert "systemd-run --user --scope" in found.advice


@pytest.mark.parametrize(
    ("name", "value"), [("memory_max", "4294967296"), ("memory_high", "1000"), ("cpu_max", "50000 100000")]
)
def test_a_limit_of_its_own_group_is_never_escaped(name: str, value: str) -> None:
    files = DESKTOP | group(f"{USER}/app.slice/terminal.scope", "memory pids", "", "812", **{name: value})
    found = decided(files, USER, f"0::{USER}/app.slice/terminal.scope")
    assert isinstance(found, Refusal)
    assert f"would escape its {name.replace('_', '.')}" in found.why


def test_a_service_with_a_subgroup_for_its_processes_hands_the_controller_on() -> None:
    files = group("", handed_on="memory") | group("/weft.service", "memory") | group("/weft.service/main", "", "", "50")
    found = decided(files, "/weft.service", "0::/weft.service/main")
    assert found == Grant("/sys/fs/cgroup/weft.service", enables_memory=True)


def test_at_the_machines_root_processes_do_not_matter() -> None:
    root = {path: text for path, text in group("", processes="1\n2").items() if not path.endswith("cgroup.type")}
    assert decided(root, "/") == Grant("/sys/fs/cgroup", enables_memory=True)


def test_a_container_whose_processes_are_in_its_root_says_so() -> None:
    found = decided(group("", processes="1\n7"), "/")
    assert isinstance(found, Refusal)
    assert found.why == "/sys/fs/cgroup has processes in it, so no limits can be set below it"


def test_a_container_with_a_tree_that_is_only_read_says_so() -> None:
    assert decided(group("", processes="1")) == Refusal(
        "this user may not write to /sys/fs/cgroup",
        "start it in a group of your own: systemd-run --user --scope COMMAND",
    )


def test_a_controller_that_is_bound_to_the_first_version_is_named() -> None:
    found = decided(
        {"/unified/cgroup.controllers": "hugetlb"}, "/", "4:memory:/x\n1:name=systemd:/\n0::/", HYBRID_MOUNTS
    )
    assert isinstance(found, Refusal)
    assert found.why == "the memory controller is not in /sys/fs/cgroup/unified: it is bound to version 1"


def test_a_machine_without_the_second_version_says_so() -> None:
    assert decided({}, "/", "4:memory:/", HYBRID_MOUNTS.splitlines()[0]) == Refusal(
        NO_MOUNT, "boot with systemd.unified_cgroup_hierarchy=1"
    )


def test_a_folder_is_found_below_what_is_mounted() -> None:
    mount = "36 35 0:26 /docker/abc /sys/fs/my\\040groups rw - cgroup2 cgroup rw"
    assert own_folder("0::/docker/abc/inner", mount) == ("/sys/fs/my groups", "/sys/fs/my groups/inner")
    assert own_folder("0::/docker/other", mount) is None


def test_what_the_kernel_says_is_read_with_and_without_a_peak() -> None:
    stat, events = (
        "anon 300\nfile 90\nkernel 20\nshmem 60\n",
        "low 0\nhigh 4\nmax 2\noom 1\noom_kill 1\noom_group_kill 0",
    )
    assert reading("500", "700", stat, events) == Reading(500, 700, 90, 60, 1)
    assert reading("500", "", stat, "") == Reading(500, 500, 90, 60, 0)
    assert reading("500", "700", stat, events).private_bytes == 410


def test_the_arena_and_caches_are_nobodys_excess() -> None:
    limit = Limit(100 * MIB)
    now = Reading(900 * MIB, 900 * MIB, 850 * MIB, 600 * MIB, 0)
    assert not limit.is_exceeded(now)
    assert limit.high_bytes(now) == 700 * MIB + SLACK_BYTES, "what the group has of the arena is added"
    assert limit.max_bytes(1000 * MIB) == 1100 * MIB + SLACK_BYTES
    assert limit.is_exceeded(Reading(701 * MIB, 900 * MIB, 600 * MIB, 600 * MIB, 0))


def test_what_a_worker_kept_of_earlier_work_does_not_count_against_the_next() -> None:
    limit = Limit(100 * MIB, kept_bytes=300 * MIB)
    assert not limit.is_exceeded(Reading(390 * MIB, 390 * MIB, 0, 0, 0))
    assert limit.is_exceeded(Reading(401 * MIB, 401 * MIB, 0, 0, 0))


def test_a_tiny_limit_leaves_what_a_worker_needs_to_run() -> None:
    assert not Limit(1).is_exceeded(Reading(SMALLEST_BYTES, SMALLEST_BYTES, 0, 0, 0))


def test_the_reason_has_the_peak_that_a_retry_asks_for() -> None:
    limit = Limit(100 * MIB, kept_bytes=10 * MIB)
    stopped = limit.reason(7, Reading(130 * MIB, 160 * MIB, 10 * MIB, 0, 0))
    assert stopped.text == (
        "stopped for memory: pid 7 held 120 MiB (peak 140 MiB), but its work declared a memory of 100 MiB"
    )
    assert stopped.peak_bytes == 140 * MIB
    assert "pid 7 was killed by the kernel (peak 190 MiB)" in limit.reason(7, Reading(0, 200 * MIB, 0, 0, 1)).text
