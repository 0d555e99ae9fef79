"""Which devices a machine has and a process may see, by files as the kernel's drivers show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.engine.process.worker import binding
from weft.machine import accelerators
from weft.machine.accelerators import AMD_GPUS, INTEL_GPUS, NVIDIA_GPUS, amd_kinds, intel_kinds, nvidia_kinds


def test_nvidias_devices_come_from_its_driver(tmp_path: Path) -> None:
    for bus, model in (("0000:81:00.0", "NVIDIA A100-SXM4-80GB"), ("0000:01:00.0", "NVIDIA H200")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t {model}\nIRQ: 12\n")
    (tmp_path / "0000:c1:00.0").mkdir()  # one that does not tell
    assert nvidia_kinds(tmp_path) == ["H200", "A100", ""]


def test_amds_devices_are_the_nodes_of_the_topology_with_simd_units(tmp_path: Path) -> None:
    for number, (simd, device) in enumerate([(0, 0), (304, 0x74A1), (304, 0x74A1), (104, 0x1)]):
        node = tmp_path / f"kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 96\nsimd_count {simd}\ndevice_id {device}\n")
    assert amd_kinds(tmp_path) == ["AMD-Instinct-MI300X-OAM", "AMD-Instinct-MI300X-OAM", ""]


def test_intels_devices_are_those_of_data_centres(tmp_path: Path) -> None:
    for name, vendor, device in [("128", "0x8086", "0x0bda"), ("129", "0x8086", "0x4680"), ("130", "0x10de", "0x0bd5")]:
        folder = tmp_path / f"drm/render{name}/device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "device").write_text(device + "\n")
    assert intel_kinds(tmp_path) == ["Intel-GPU-Max-1100"]


def test_each_vendor_has_its_own_words_for_what_a_process_sees() -> None:
    assert AMD_GPUS.visible({"HIP_VISIBLE_DEVICES": "1,3", "ROCR_VISIBLE_DEVICES": "4,5,6,7"}) == (1, 3)
    assert AMD_GPUS.visible({"ROCR_VISIBLE_DEVICES": "4,5,6"}) == (0, 1, 2)
    assert INTEL_GPUS.visible({"ONEAPI_DEVICE_SELECTOR": "level_zero:0,2"}) == (0, 2)
    assert INTEL_GPUS.visible({"ONEAPI_DEVICE_SELECTOR": "!*:gpu"}) == ()
    assert INTEL_GPUS.visible({"ONEAPI_DEVICE_SELECTOR": "*:gpu"}) is None
    slices = {"CUDA_VISIBLE_DEVICES": "MIG-1a2b, MIG-3c4d"}
    assert (NVIDIA_GPUS.visible(slices), NVIDIA_GPUS.names([1], slices)) == ((0, 1), ["MIG-3c4d"])
    assert NVIDIA_GPUS.names([3], {"CUDA_VISIBLE_DEVICES": "3,4"}) == [3]


@pytest.mark.parametrize(
    ("vendor", "given", "nothing"),
    [
        (NVIDIA_GPUS, {"CUDA_VISIBLE_DEVICES": "1,2"}, {"CUDA_VISIBLE_DEVICES": ""}),
        (AMD_GPUS, {"CUDA_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1,2"}, {"HIP_VISIBLE_DEVICES": ""}),
        (INTEL_GPUS, {"ONEAPI_DEVICE_SELECTOR": "level_zero:1,2"}, {"ONEAPI_DEVICE_SELECTOR": "!*:gpu"}),
    ],
    ids=["NVIDIA", "AMD", "Intel"],
)
def test_a_worker_sees_what_it_was_given_and_nothing_when_it_asked_for_none(
    monkeypatch: pytest.MonkeyPatch, vendor: accelerators.Vendor, given: dict[str, str], nothing: dict[str, str]
) -> None:
    monkeypatch.setattr(binding, "_VENDOR", vendor)
    monkeypatch.setattr(binding, "_OF_THE_NODE", {})
    for name in (*given, *nothing):
        monkeypatch.delenv(name, raising=False)
    for ids, expected in (([1, 2], given), ([], nothing)):
        binding.show_gpus(ids)
        assert expected.items() <= dict(binding.os.environ).items()
