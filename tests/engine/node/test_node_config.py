"""What a node offers."""

from __future__ import annotations

import dataclasses

import pytest

from weft.engine.node import config
from weft.engine.node.config import NodeConfig, choose_gpus, decide
from weft.machine import accelerators


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
    given = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert accelerators.NVIDIA_GPUS.visible(given) == ids


def test_gpus_are_taken_from_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4,6")
    assert choose_gpus(2) == (3, 4)
    assert choose_gpus(None) == (3, 4, 6)
    with pytest.raises(ValueError, match=r"num_gpus is 4, but CUDA_VISIBLE_DEVICES='3,4,6' leaves 3"):
        choose_gpus(4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert choose_gpus(2) == (0, 1)


def test_devices_of_other_vendors_are_offered_with_their_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    amd = dataclasses.replace(accelerators.AMD_GPUS, kinds=lambda: ["AMD-Instinct-MI300X-OAM"] * 4)
    monkeypatch.setattr(accelerators, "vendor", lambda: amd)
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    offer = decide(NodeConfig())
    assert (offer.total["GPU"], offer.total["accelerator_type:AMD-Instinct-MI300X-OAM"]) == (4, 1)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,3")
    assert choose_gpus(None) == (0, 1)
    with pytest.raises(ValueError, match=r"num_gpus is 3, but ROCR_VISIBLE_DEVICES='2,3' leaves 2"):
        choose_gpus(3)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert choose_gpus(None) == (1,)


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
