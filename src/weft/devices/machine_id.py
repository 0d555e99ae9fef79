"""Whether two processes can reach each other by a socket without a name in the file system: the same kernel, and the
same network namespace."""

from __future__ import annotations

import functools
import os
from pathlib import Path


@functools.cache
def of() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
