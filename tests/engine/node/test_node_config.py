"""What a node offers."""

from __future__ import annotations

import pytest

from weft.engine.node import config
from weft.engine.node.config import NodeConfig, choose_gpus, decide, visible_gpus


def test_what_was_asked_for_is_offered() -> None:
    offer = decide(NodeConfig(num_cpus=0.5, num_gpus=0, resources={"disk": 3}, object_store_bytes=1 << 20))
    assert (offer.total["CPU"], offer.total["disk"], offer.object_store_bytes) == (0.5, 3, 1 << 20)
    assert "GPU" not in offer.total and offer.gpu_ids == ()
    assert offer.prestart == 1


def test_defaults_come_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    offer = decide(NodeConfig())
    assert offer.total["CPU"] == config.usable_cpus() >= 1
    assert 0 < offer.object_store_bytes < config.memory_bytes()


def test_many_pretended_cpus_do_not_start_as_many_processes() -> None:
    assert decide(NodeConfig(num_cpus=1000)).prestart <= max(config.usable_cpus(), 2)


@pytest.mark.parametrize(
    ("variable", "ids"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("2, 5", (2, 5)),
        ("GPU-1a2b,GPU-3c4d", (0, 1)),
        ("MIG-1a2b,MIG-3c4d,MIG-5e6f", (0, 1, 2)),
    ],
)
def test_visible_devices_are_read_as_cuda_does(variable: str | None, ids: tuple[int, ...] | None) -> None:
    assert visible_gpus(variable) == ids


def test_gpus_are_taken_from_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4,6")
    assert choose_gpus(2) == (3, 4)
    assert choose_gpus(None) == (3, 4, 6)
    with pytest.raises(ValueError, match=r"num_gpus is 4, but CUDA_VISIBLE_DEVICES='3,4,6' leaves 3"):
        choose_gpus(4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert choose_gpus(2) == (0, 1)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"/sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"/sys/fs/cgroup/cpu.max": "max 100000"}, 0),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0),
        ({}, 0),
    ],
)
def test_a_control_groups_quota_limits_the_cpus(files: dict[str, str], cpus: float) -> None:
    assert config._cpu_quota(lambda path: files.get(path, "")) == cpus
