"""Which accelerators a machine has, as the kernel's drivers tell it: no library is loaded, and no device woken.

They come in the order of the bus. The kind is what `accelerator_type=` names: "H200",
"A100"; see `weft.util.accelerators`.
"""

from __future__ import annotations

import re
from pathlib import Path

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
