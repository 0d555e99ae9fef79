"""Pages of the dashboard for libraries: publish what a run knows about itself, and the page shows the newest.

>>> publish("tune", "my_experiment", {"trials": []})
>>> withdraw("tune", "my_experiment")

A board is JSON. Publishing sends it to the node daemon, some 100 microseconds: once a second is often enough.
"""

from __future__ import annotations

import json
from typing import Any

from weft.engine.process import rpc, session

__all__ = ["publish", "withdraw"]

LARGEST_BYTES = 4 << 20
_NAMESPACE = "boards"


def publish(page: str, name: str, board: Any) -> None:
    """Replace the board of that name on that page ("tune", "rl"). ValueError when it is not JSON, or over 4 MiB."""
    try:
        value = json.dumps(board, allow_nan=True).encode()
    except TypeError as error:
        raise ValueError(f"the board {name!r} of {page!r} is not JSON: {error}") from error
    if len(value) > LARGEST_BYTES:
        raise ValueError(f"the board {name!r} of {page!r} must be at most {LARGEST_BYTES} bytes, but has {len(value)}")
    session.ensure()
    rpc.request("kv_put", key=f"{page}\0{name}", value=value, namespace=_NAMESPACE)


def withdraw(page: str, name: str) -> None:
    """Remove it. Nothing happens when there is none."""
    session.ensure()
    rpc.request("kv_del", key=f"{page}\0{name}", namespace=_NAMESPACE)
