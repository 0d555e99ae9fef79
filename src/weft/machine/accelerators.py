"""Which accelerators a machine has, as the kernel's drivers tell it: no library is loaded, and no device woken.

They come in the order of the bus. The kind is what `accelerator_type=` names: "H200",
"A100"; see `weft.util.accelerators`. A machine's GPUs are those of one vendor, the first that has any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NVIDIA = Path("/proc/driver/nvidia/gpus")
_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_MAKER = re.compile(r"^(NVIDIA|Tesla|Quadro|GeForce)\s+")


def nvidia_kinds(folder: Path = NVIDIA) -> list[str]:
    """One a device, "" for one that does not tell.

    >>> nvidia_kinds(Path("/nowhere"))
    []
    """
    if not folder.is_dir():
        return []
    kinds = []
    for device in sorted(folder.iterdir()):
        try:
            found = _MODEL.search((device / "information").read_text())
        except OSError:  # it was taken away meanwhile
            found = None
        kinds.append(kind_of(found.group(1)) if found else "")
    return kinds


def kind_of(model: str) -> str:
    """The kind of a model.

    >>> kind_of("NVIDIA H200"), kind_of("NVIDIA A100-SXM4-80GB"), kind_of("Tesla V100-SXM2-16GB")
    ('H200', 'A100', 'V100')
    >>> kind_of("NVIDIA RTX PRO 6000 Blackwell Server Edition")
    'RTX-PRO-6000'
    """
    name = model
    while _MAKER.match(name):
        name = _MAKER.sub("", name)
    if name.startswith("RTX PRO "):
        return "-".join(name.split()[:3])
    first = re.split(r"[\s-]", name, maxsplit=1)[0]
    return first if re.fullmatch(r"[A-Z]{1,3}[0-9]+[A-Za-z0-9]*", first) else "-".join(name.split())


SYS = Path("/sys/class")
_AMD = {
    0x738C: "AMD-Instinct-MI100",
    0x7408: "AMD-Instinct-MI250X",
    0x740C: "AMD-Instinct-MI250X-MI250",
    0x740F: "AMD-Instinct-MI210",
    0x74A0: "AMD-Instinct-MI300A",
    0x74A1: "AMD-Instinct-MI300X-OAM",
    0x74A2: "AMD-Instinct-MI308X",
    0x74A5: "AMD-Instinct-MI325X-OAM",
    0x74A9: "AMD-Instinct-MI300X-HF",
    0x75A0: "AMD-Instinct-MI350X-OAM",
    0x75A3: "AMD-Instinct-MI355X-OAM",
}
_INTEL = {0x0BD5: "Intel-GPU-Max-1550", 0x0BDA: "Intel-GPU-Max-1100"}
"""PCI's numbers of devices."""


def amd_kinds(folder: Path = SYS) -> list[str]:
    """Of the nodes of the compute driver's topology that have SIMD units: the others are CPUs.

    >>> amd_kinds(Path("/nowhere"))
    []
    """
    nodes = sorted(folder.glob("kfd/kfd/topology/nodes/*/properties"), key=lambda node: int(node.parent.name))
    found = [dict(line.split(" ", 1) for line in _read(node).splitlines() if " " in line) for node in nodes]
    return [_AMD.get(int(one["device_id"]), "") for one in found if int(one.get("simd_count", "0"))]


def intel_kinds(folder: Path = SYS) -> list[str]:
    """Of data centres' devices; what is built into a CPU is no resource.

    >>> intel_kinds(Path("/nowhere"))
    []
    """
    devices = sorted(folder.glob("drm/render*/device"), key=lambda device: device.parent.name)
    found = [int(_read(one / "device") or "0", 16) for one in devices if _read(one / "vendor") == "0x8086"]
    return [_INTEL[number] for number in found if number in _INTEL]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # it was taken away meanwhile
        return ""


@dataclass(frozen=True)
class Vendor:
    """How a vendor's libraries are told which devices a process may see."""

    variable: str
    kinds: Callable[[], list[str]]
    before: str = ""
    """The name of those that the numbers in the variable are places among."""
    prefix: str = ""
    none: str = ""

    def visible(self, variables: Mapping[str, str]) -> tuple[int, ...] | None:
        """The devices as numbers; places, where they are named by UUID, as MIG slices are. None for all.

        >>> NVIDIA_GPUS.visible({"CUDA_VISIBLE_DEVICES": "2,5"}), NVIDIA_GPUS.visible({})
        ((2, 5), None)
        """
        given = variables.get(self.variable)
        if given is None and self.before in variables:
            return tuple(range(len(_names(variables[self.before]))))
        if given is None:
            return None
        names = _names(given.removeprefix(self.prefix))
        if not names or names[0] in ("-1", "NoDevFiles", "void") or given == self.none:
            return ()
        if all(name.isdigit() for name in names):
            return tuple(int(name) for name in names)
        return None if self.prefix else tuple(range(len(names)))

    def names(self, ids: Sequence[int], variables: Mapping[str, str]) -> list[Any]:
        """As the libraries know the devices of these numbers: by UUID where the node's own are named so."""
        names = _names(variables.get(self.variable, ""))
        if self.prefix or all(name.isdigit() for name in names):
            return list(ids)
        return [names[place] if place < len(names) else place for place in ids]

    def selection(self, names: Sequence[Any]) -> str:
        """What the variable must be for a process that may see these.

        >>> INTEL_GPUS.selection([0, 2]), INTEL_GPUS.selection([])
        ('level_zero:0,2', '!*:gpu')
        """
        return self.prefix + ",".join(map(str, names)) if names else self.none


NVIDIA_GPUS = Vendor("CUDA_VISIBLE_DEVICES", nvidia_kinds)
AMD_GPUS = Vendor("HIP_VISIBLE_DEVICES", amd_kinds, before="ROCR_VISIBLE_DEVICES")
INTEL_GPUS = Vendor("ONEAPI_DEVICE_SELECTOR", intel_kinds, prefix="level_zero:", none="!*:gpu")


def vendor() -> Vendor:
    """Of this machine's GPUs; NVIDIA where there are none."""
    return next((one for one in (NVIDIA_GPUS, AMD_GPUS, INTEL_GPUS) if one.kinds()), NVIDIA_GPUS)


def _names(variable: str) -> list[str]:
    return [name.strip() for name in variable.split(",") if name.strip()]
