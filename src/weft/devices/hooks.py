"""What this package is told by those above it, and what its two ends share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

FAR = "weft.util.far_blocks"
"""The module whose `fetch` brings the blocks of a holding of another machine; it stands on the public API."""
PACKET_BYTES = 128 * 1024


def _nowhere() -> str:
    return ""


node_id: Callable[[], str] = _nowhere
"""The node of this process; `engine/process/session/host.py` sets it."""

server: Any = None
"""The server of this process's holdings (`holder.py`); None before the first."""


def end() -> None:
    """The session is over: what this process holds and has open for its values goes."""
    for name in ("weft.devices.reader", "weft.devices.holder"):
        if (part := sys.modules.get(name)) is not None:
            part.end()
