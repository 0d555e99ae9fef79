"""How much lineage a process keeps: the variables WEFT_LINEAGE_MEMORY and WEFT_LINEAGE_DISK, in bytes.

Lineage is what it takes to make lost objects again. What is older than fits into memory goes to a file without a name
in TMPDIR; what does not fit there is forgotten, the oldest first. Runs in drivers and workers, as they attach.
"""

from __future__ import annotations

import os

from weft import _native

MEMORY, DISK = "WEFT_LINEAGE_MEMORY", "WEFT_LINEAGE_DISK"
MEMORY_BYTES, DISK_BYTES = 64 << 20, 4 << 30


def apply() -> None:
    """Take the limits over from the environment."""
    if MEMORY in os.environ or DISK in os.environ:
        _native.limit_lineage(_bytes(MEMORY, MEMORY_BYTES), _bytes(DISK, DISK_BYTES))


def _bytes(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if text and not text.isdigit():
        raise ValueError(f"{variable} must be a number of bytes, but got {text!r}")
    return int(text) if text else default
